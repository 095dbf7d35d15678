"""The tasks of others: their data is repeatable, and what is called a cause is one by the rules of the task."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("minigrid")
pytest.importorskip("popgym")

from minigrid.core.constants import COLOR_NAMES, COLOR_TO_IDX
from paper.beyond_triggers import TASKS
from paper.tasks.unseen import UNSEEN
from paper.tasks.unseen_small import UNSEEN_SMALL
from paper.tasks.unseen_third import UNSEEN_THIRD

from secret_rl.tasks import HELD_OUT, TRAINING
from secret_rl.tasks.bsuite import Discounting
from secret_rl.trajectories.nested import map_arrays

EPISODES, SEED = 150, 7
ALL = TASKS | UNSEEN | UNSEEN_SMALL | UNSEEN_THIRD
NEEDING = [name for name, task in ALL.items() if task.past_matters]
OTHERS = [name for name, task in ALL.items() if not task.past_matters]
CONTINUOUS = (
    "mountain_car_left", "pendulum_upright", "trap", "doctor", "test_then_treat", "dict_clock", "reach_grip",
    "three_of_three", "greenhouse", "sign_maze", "orbit_burn", "conveyor", "cue_then_choice",
)  # fmt: skip
DOOR, KEY, BALL, BOX, GOAL = 4, 5, 6, 7, 8  # MiniGrid's numbers of objects
PICK_UP, DROP_OFF, TOGGLE = 4, 5, 5


@cache
def made(name):
    return ALL[name].make(EPISODES, SEED)


def starts_of(data):
    return np.repeat(data.trajectories.offsets[:-1], np.diff(data.trajectories.offsets))


def marks_before(data):
    """(steps,) how many marked steps of the episode lie before the step."""
    before = np.concatenate([[0], np.cumsum(data.truth)])[:-1]
    return before - before[starts_of(data)]


def has_cause(data):
    """(steps,) whether a marked step lies before the step, or it has a cause of its own."""
    return data.truth >= 0 if data.truth.dtype != bool else marks_before(data) > 0


def causes(data):
    """(rewards with a cause, their causes), as rows of the trajectories."""
    rows = np.flatnonzero(data.truth >= 0)
    return rows, starts_of(data)[rows] + data.truth[rows]


def ends(data):
    return data.trajectories.offsets[1:] - 1


def is_judged(name, rewards):
    return {"all": rewards != 0, "positive": rewards > 0, "negative": rewards < 0}[ALL[name].judged]


def agree(paid, expected):
    np.testing.assert_array_equal(paid, expected)
    assert paid.any() and not paid.all(), "both outcomes are in the data"


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides_everything_and_the_truth_lies_before_the_reward(name):
    data, few, other = made(name), ALL[name].make(5, SEED), ALL[name].make(5, SEED + 1)
    rows = few.trajectories.offsets[-1]
    first = data.trajectories[:5]
    for field in ("observations", "actions", "rewards"):
        map_arrays(np.testing.assert_array_equal, getattr(first, field), getattr(few.trajectories, field))
    np.testing.assert_array_equal(data.truth[:rows], few.truth)
    assert not first.equals(other.trajectories)
    steps = data.trajectories.offsets[-1]
    assert data.truth.shape == (steps,)
    assert not data.trajectories.annotations, "the truth is not in the data"
    if data.truth.dtype != bool:
        assert data.truth.dtype == np.int64 and data.truth.min() >= -1
        assert (data.truth < np.arange(steps) - starts_of(data)).all()


@pytest.mark.parametrize("name", NEEDING)
def test_every_judged_reward_has_a_cause(name):
    data = made(name)
    rewards, found = data.trajectories.rewards, has_cause(data)
    if data.truth.dtype == bool:
        judged = is_judged(name, rewards)
        assert judged.any() and (found[judged].all() or name == "test_then_treat"), "there chance pays who did not test"
    else:
        judged = found
        assert judged.any() and (rewards[judged] != 0).all()
    if ALL[name].judged == "positive":
        assert (rewards[judged] > 0).all() and (rewards <= 0).any()
    elif ALL[name].judged == "negative":
        assert (rewards[judged] < 0).all() and (rewards > 0).any()
    else:
        assert (rewards[judged] < 0).any() or name == "shop", "there what does not fit pays 0"
        if name == "insurance":  # there everything costs, more or less
            assert len(np.unique(rewards[judged])) == 2
            return
        assert (rewards > 0).any()
        assert (rewards[judged] > 0).any() or name == "battleship", "there a cause is why nothing is hit"


@pytest.mark.parametrize("name", OTHERS)
def test_no_reward_has_a_cause_where_the_past_does_not_matter(name):
    data = made(name)
    assert (data.truth == -1).all()
    if name not in ("frozen_lake", "blackjack", "no_past_slots", "no_past_verdict"):  # chance decides with the action
        assert all(len(signs) == 1 for signs in by_present(data).values())


def present(name, data):
    """(steps, numbers) observation and action, without what never comes twice: clocks, random bits and wide views."""
    seen = data.trajectories.observations
    if name in ("go_to_door", "unlock_pickup", "key_to_door"):
        seen = (seen["image"] if isinstance(seen, dict) else seen)[:, 3, 5]  # what lies ahead, and hidden facts, decide
    if isinstance(seen, tuple):
        seen = np.column_stack(seen)
    if isinstance(seen, dict):
        seen = np.concatenate(
            [part.reshape(len(part), -1) for key, part in seen.items() if key not in ("time", "lights")], 1
        )
    seen = seen.reshape(len(seen), -1)
    if name in ("umbrella", "shop"):
        seen = seen[:, :3]
    return np.concatenate([seen, data.trajectories.actions.reshape(len(seen), -1)], 1)


def by_present(data, name=None):
    outcomes = {}
    for row, reward in zip(present(name, data), data.trajectories.rewards, strict=True):
        outcomes.setdefault(row.tobytes(), set()).add(np.sign(reward + 0.5 * (name == "insurance")))
    return outcomes


@pytest.mark.parametrize("name", [name for name in NEEDING if name not in CONTINUOUS])
def test_the_present_alone_does_not_decide(name):
    data = made(name)
    outcomes = by_present(data, name)
    rows = present(name, data)
    judged = np.flatnonzero(has_cause(data) & is_judged(name, data.trajectories.rewards))
    ambiguous = [len(outcomes[rows[row].tobytes()]) > 1 for row in judged]
    assert np.mean(ambiguous) > 0.5


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_end_says_little_about_what_was_before(name):
    data = made(name)
    last = ends(data)[data.trajectories.terminated[ends(data)]]
    rows = present(name, data)[last].astype(float)
    rows = (rows - rows.mean(0)) / np.maximum(rows.std(0), 1e-6)
    paid = data.trajectories.rewards[last] > 0
    distance = ((rows[:, None] - rows) ** 2).sum(-1) + np.diag(np.full(len(rows), np.inf))
    share = paid[np.argsort(distance, 1)[:, :9]].mean(1)  # of the nearest ends that paid
    more = share > paid.mean()
    assert (more[paid].mean() + 1 - more[~paid].mean()) / 2 < 0.7, "balanced accuracy; chance is 0.5"


def view(name):
    """The columns of a task's data, and rows of its episodes."""
    data = made(name)
    found = SimpleNamespace(
        seen=data.trajectories.observations, actions=data.trajectories.actions, rewards=data.trajectories.rewards,
        truth=data.truth, has=has_cause(data), first=data.trajectories.offsets[:-1], last=ends(data),
        start=starts_of(data), lengths=data.trajectories.lengths, over=np.flatnonzero(data.trajectories.terminated),
    )  # fmt: skip
    if data.truth.dtype != bool:
        found.rows, found.cause = causes(data)
    found.image = found.seen["image"] if isinstance(found.seen, dict) and "image" in found.seen else found.seen
    if not isinstance(found.image, dict | tuple) and found.image.ndim == 4 and found.image.shape[1:3] == (7, 7):
        found.ahead, found.colour = found.image[:, 3, 5, 0], found.image[:, 3, 5, 1]
    found.episodes = lambda mask: np.add.reduceat(mask, found.first)
    return found


def memory(d):
    """The end pays that holds the cue."""
    cue, things = [], np.isin(d.image[..., 0], (KEY, BALL)).sum((1, 2))
    assert not d.truth[d.over].any(), "the cue is out of view when it decides"
    for row in d.over:
        rows = np.arange(d.start[row], row)
        looking = rows[d.truth[rows] & (d.seen["direction"][rows] == 2) & (things[rows] == 1)]
        (kind,) = set(d.image[looking][..., 0].flat) & {KEY, BALL}
        cue.append(kind)
    return d.rewards[d.over] > 0, d.image[d.over, 3, 4, 0] == cue


def combo_lock(d):
    """Red and then blue."""
    pressed = [
        d.seen[first:row, 0][d.truth[first:row]].tolist() for first, row in zip(d.start[d.over], d.over, strict=True)
    ]
    return d.rewards[d.over] > 0, np.array([order == [0, 3] for order in pressed])


def treated(d):
    """The treatment that the test has shown."""
    tested, shown = d.last[d.has[d.last]], np.flatnonzero(d.truth)
    assert {-1, 1} == set(d.rewards[np.setdiff1d(d.last, tested)]), "else chance decides"
    return d.rewards[tested] > 0, d.actions[tested] == np.where(d.seen[shown, 2] > 0, 3, 2)


def at_the_end(d):
    return d.rewards[d.over] > 0, d.has[d.over]


def as_its_cause(d):
    seen = d.seen[1] if isinstance(d.seen, tuple) else d.seen
    return d.rewards[d.rows] > 0, d.actions[d.rows] == seen[d.cause]


def took(d, thing, action=3):
    """(steps,) whether something was taken in the episode."""
    return np.repeat(d.episodes((thing) & (d.actions == action)) > 0, d.lengths)


PLACES = np.array([(0, 0), (0, 4), (4, 0), (4, 3)])  # of Taxi
PAYS = {  # what pays, and when it should, by the rules of the task
    "taxi_delivery": at_the_end,
    "taxi_delivery_signed": at_the_end,
    "red_blue_doors": at_the_end,
    "mountain_car_left": at_the_end,
    "pendulum_upright": at_the_end,
    "memory_s7": memory,
    "memory_s11": memory,
    "repeat_first": as_its_cause,
    "repeat_previous": as_its_cause,
    "autoencode": as_its_cause,
    "taxi_own_rewards": lambda d: (
        d.rewards == 20,
        (d.actions == DROP_OFF) & (d.seen[:, :2] == PLACES[d.seen[:, 2]]).all(1) & d.has,
    ),
    "unlock": lambda d: (d.rewards > 0, (d.actions == TOGGLE) & (d.ahead == DOOR) & d.has),
    "unlock_clock": lambda d: (d.rewards > 0, (d.actions == TOGGLE) & (d.ahead == DOOR) & d.has),
    "unlock_pickup": lambda d: (d.rewards > 0, (d.actions == 3) & (d.ahead == BOX) & d.has),
    "key_to_door": lambda d: (d.rewards == 1, (d.actions == TOGGLE) & (d.ahead == DOOR) & took(d, d.ahead == KEY)),
    "door_key": lambda d: (d.rewards > 0, (d.actions == 2) & (d.ahead == GOAL)),
    "dynamic_obstacles": lambda d: (d.rewards > 0, (d.actions == 2) & (d.ahead == GOAL)),
    "umbrella": lambda d: (d.rewards[d.rows] > 0, d.actions[d.cause] == d.seen[d.rows, 0]),
    "memory_len": lambda d: (d.rewards[d.last] > 0, 2 * d.actions[d.last] - 1 == d.seen[d.first, 2]),
    "discounting_chain": lambda d: (
        d.rewards > 0,
        np.arange(len(d.truth)) - d.start == np.array(Discounting.delays)[d.actions[d.start]] - 1,
    ),
    "cliff_both_corners": lambda d: (
        d.rewards[d.last] > 0,
        (d.episodes(d.seen == 0) == 1) & (d.episodes(d.seen == 11) == 1),
    ),
    "cliff_last_corner": lambda d: (d.rewards[d.rows] > 0, d.seen[d.cause] == 0),
    "delivery_end": lambda d: (
        d.rewards[d.last] > 0,
        d.has[d.last] & (d.episodes((d.seen[:, 3] == 1) & (d.actions == 5)) > 0),
    ),
    "combo_lock": combo_lock,
    "test_then_treat": treated,
    "shop": lambda d: (d.rewards[d.last] > 0, d.episodes(d.actions * d.truth) == d.seen[d.last, 2]),
    "apples": lambda d: (
        d.rewards == 1,
        (d.seen[:, 0] == 3) & (d.actions == 1) & took(d, d.seen[:, 0] == 2, 1),
    ),
    "coupons": lambda d: (d.rewards > 0, d.truth >= 0),
}
CAUSES = {  # what was seen and done at the step that is called a cause
    "taxi_own_rewards": lambda d: (d.seen[d.cause, 3] == 1) & (d.actions[d.cause] == PICK_UP),
    "key_to_door": lambda d: (d.ahead[d.cause] == KEY) & (d.actions[d.cause] == 3),
    "battleship": lambda d: (d.actions[d.cause] == d.actions[d.rows]).all(1) & (d.rewards[d.rows] < 0),
    "autoencode": lambda d: (d.seen[0][d.cause] > 0) & (d.seen[0][d.rows] == 0),
    "cliff_last_corner": lambda d: np.isin(d.seen[d.cause], (0, 11)),
    "apples": lambda d: (d.seen[d.cause, 0] == 2) & (d.actions[d.cause] == 1),
    "coupons": lambda d: (d.seen[d.cause, 0] == 1) & (d.seen[d.cause, 1] == d.seen[d.rows, 1]),
}
MARKS = {  # the steps that are marked, by what was seen and done, where payments do not show it
    "greenhouse": lambda seen, done: seen[:, 0] == 1,
    "orbit_burn": lambda seen, done: (seen[:, 2] == 1) & (done[:, 0] > 0.2),
    "conveyor": lambda seen, done: np.isin(seen[0], (1, 2)) & (done == seen[0]),
    "fuse": lambda seen, done: seen[:, 0] == 2,
    "grafting": lambda seen, done: (seen[:, 0] == 3) & (done == 3),
    "samples": lambda seen, done: (seen == 4) & (done == 2),
    "cue_then_choice": lambda seen, done: (seen[:, 0] != 0) | (seen[:, 1] == 1),
}


@pytest.mark.parametrize("name", MARKS)
def test_marks_are_of_what_was_seen_and_done(name):
    data = made(name)
    np.testing.assert_array_equal(data.truth, MARKS[name](data.trajectories.observations, data.trajectories.actions))


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("grid_key", 1), ("trap", 1), ("doctor", 1), ("dict_clock", 1), ("sowing", 1), ("reach_grip", 1),
        ("either_or", 1), ("mail_order", 1), ("safe", 2), ("three_of_three", 3),
    ],
)  # fmt: skip
def test_small_tasks_pay_for_their_marks(name, needed):
    data = made(name)
    seen, rewards, asked = (getattr(data.trajectories, key) for key in ("observations", "rewards", "terminated"))
    if name == "grid_key":
        asked = (seen[:, 1, 1, 2] == 1) & (data.trajectories.actions == 4)
    elif name == "mail_order":
        asked = seen[:, 1] == 1
    agree(rewards[asked] < 0 if name == "trap" else rewards[asked] > 0, marks_before(data)[asked] >= needed)
    assert len(np.unique(rewards[~asked])) == 1


@pytest.mark.parametrize("name", PAYS)
def test_what_pays_follows_the_rules_of_the_task(name):
    d = view(name)
    agree(*PAYS[name](d))
    if name in ("unlock", "unlock_clock", "unlock_pickup", "key_to_door"):
        assert not d.image[:, :, 6].any(), "what is carried is out of sight"


@pytest.mark.parametrize("name", CAUSES)
def test_causes_are_what_they_are_called(name):
    found = view(name)
    assert len(found.rows) and CAUSES[name](found).all()


def test_the_door_pays_whose_colour_the_first_observation_names():
    d = view("go_to_door")
    named = d.seen["mission"]
    np.testing.assert_array_equal(named > 0, d.start == np.arange(len(named)))
    assert (d.ahead[d.over] == DOOR).all() and (d.actions[d.over] == 6).all()
    colours = np.array([COLOR_TO_IDX[name] for name in COLOR_NAMES])[named[d.start[d.over]] - 1]
    right, paid = d.colour[d.over] == colours, d.rewards[d.over] > 0
    assert paid[right].all() and (paid & ~right).mean() < 0.05, "but for doors on both sides of a corner"
    agree(d.truth == 0, (d.rewards > 0) & (d.start < np.arange(len(named))))


def test_seeds_and_unseen_tasks_are_apart():
    assert not set(TRAINING) & set(HELD_OUT)
    assert len(ALL) == sum(map(len, (TASKS, UNSEEN, UNSEEN_SMALL, UNSEEN_THIRD)))
    sizes = [
        (len(tasks), sum(task.past_matters for task in tasks.values()))
        for tasks in (UNSEEN, UNSEEN_SMALL, UNSEEN_THIRD)
    ]
    assert sizes == [(11, 8), (19, 16), (16, 12)]
    assert not {task.source.split(";")[0] for task in UNSEEN.values()} & {task.source for task in TASKS.values()}


@pytest.mark.parametrize("name", UNSEEN_SMALL | UNSEEN_THIRD)
def test_small_tasks_keep_to_their_spaces(name):
    data = made(name).trajectories[:20]
    for space, columns in ((data.observation_space, data.observations), (data.action_space, data.actions)):
        for row in range(data.steps):
            assert space.contains(map_arrays(lambda column, row=row: column[row], columns)), (name, row)
