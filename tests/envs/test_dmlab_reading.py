"""Telling keys from doors by what the level pays and shows; and the stand-in for Lab refuses what Lab refuses."""

import numpy as np
import pytest
from tests.envs.dmlab_fake import LEVEL, PAINTS, module

from secret_rl.envs.dmlab_reading import LEAST_SIZE, UNSEEN, Happened, Reading, shown_key
from secret_rl.envs.keys_doors import COLOURS


@pytest.mark.parametrize(
    ("held", "paid", "shown", "told", "then"),
    [
        (0, 0.0, 0, Happened(0, 0, False), 0),
        (3, 0.0, 3, Happened(0, 0, False), 3),
        (3, 0.0, 5, Happened(0, 0, False), 3),  # a black sky is no key: nothing was paid
        (0, 1.0, 2, Happened(2, 0, False), 2),
        (3, 1.0, 2, Happened(2, 0, False), 2),  # another key takes its place
        (3, 1.0, 3, Happened(3, 0, False), 3),  # of the same colour
        (3, 1.0, 0, Happened(0, 3, False), 0),
        (0, 2.0, 0, Happened(UNSEEN, UNSEEN, False), 0),
        (3, 2.0, 0, Happened(UNSEEN, UNSEEN, False), 0),
        (3, 2.0, 1, Happened(1, 3, False), 1),
        (0, 2.0, 1, Happened(1, 0, False), 1),
        (0, 50.0, 0, Happened(0, 0, True), 0),
        (4, 51.0, 0, Happened(0, 4, True), 0),
        (4, 50.0, None, Happened(0, 0, True), 4),
        (4, 1.0, None, Happened(0, 0, False), 4),
    ],
)
def test_what_a_step_tells(held, paid, shown, told, then):
    reading = Reading()
    reading.held = held
    assert reading.after(paid, shown) == told
    assert reading.held == then


@pytest.mark.parametrize("paid", [-1.0, 0.5, 3.0, 49.0, 100.0])
def test_other_rewards_are_refused(paid):
    with pytest.raises(RuntimeError, match=f"the level paid {paid} in one step"):
        Reading().after(paid, 1)


def test_a_key_that_is_not_shown_is_noticed():
    with pytest.raises(RuntimeError, match="shows no key"):
        Reading().after(1.0, 0)


@pytest.mark.parametrize("size", [LEAST_SIZE, (84, 84), (96, 72), (160, 120), (333, 77), (640, 480)])
@pytest.mark.parametrize("colour", COLOURS)
def test_the_square_is_read_where_lab_paints_it(size, colour):
    width, height = size
    picture = np.random.default_rng(0).integers(90, 160, (height, width, 3)).astype(np.uint8)
    assert shown_key(picture) == 0
    rows = slice(round(12 * height / 480), round(60 * height / 480))
    picture[rows, round(12 * width / 640) : round(60 * width / 640)] = np.array(PAINTS[colour]) * 255
    assert shown_key(picture) == COLOURS.index(colour) + 1
    picture[round(36 * height / 480), round(36 * width / 640)] = (128, 128, 128)  # nothing that is not even
    assert shown_key(picture) == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda lab: lab(LEVEL, ("RGB_INTERLEAVED",)), TypeError),
        (lambda lab: lab(LEVEL, [], {"width": 80}), TypeError),
        (lambda lab: lab(LEVEL, [], ["width"]), TypeError),
        (lambda lab: lab(LEVEL, ["RGB_INTERLEAVE"]), ValueError),
        (lambda lab: lab(LEVEL, [], renderer="gpu"), RuntimeError),
        (lambda lab: lab(LEVEL, [], {"unheardOf": "1"}), RuntimeError),
        (lambda lab: lab("nowhere", []), RuntimeError),
        (lambda lab: lab(LEVEL, []).reset(seed=np.int64(3)), ValueError),
        (lambda lab: lab(LEVEL, []).reset(seed=2**31), AssertionError),
        (lambda lab: lab(LEVEL, []).observations(), RuntimeError),
        (lambda lab: lab(LEVEL, []).events(), RuntimeError),
        (lambda lab: lab(LEVEL, []).step(np.zeros(7, np.intc)), RuntimeError),
        (lambda lab: _running(lab).step([0] * 7), TypeError),
        (lambda lab: _running(lab).step(np.zeros(7, np.int64)), ValueError),
        (lambda lab: _running(lab).step(np.zeros(6, np.intc)), ValueError),
        (lambda lab: _running(lab).step(np.full(7, 2, np.intc)), AssertionError),
        (lambda lab: _running(lab).step(np.zeros(7, np.intc), 1.0), TypeError),
    ],
)
def test_the_stand_in_is_strict(wrong, error):
    with pytest.raises(error):
        wrong(module().Lab)


def test_the_stand_in_ends_as_lab_does():
    world = _running(module().Lab)
    still = np.zeros(7, np.intc)
    assert world.step(still, num_steps=3599) == 0.0 and world.is_running()
    world.step(still)
    assert not world.is_running() and world.events() == []
    with pytest.raises(RuntimeError, match="wrong status"):
        world.step(still)
    with pytest.raises(RuntimeError, match="wrong status"):
        world.observations()
    world.reset(seed=1)
    assert world.is_running() and world.close() and not world.is_running() and not world.close()
    with pytest.raises(RuntimeError, match="wrong status to advance"):
        world.step(still)


def _running(lab):
    world = lab(LEVEL, ["RGB_INTERLEAVED"], {"width": "64", "height": "48"})
    world.reset(seed=0)
    return world
