"""The tasks of others: their data is repeatable, and what is called a cause is one by the rules of the task."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("minigrid")
pytest.importorskip("popgym")

from minigrid.core.constants import COLOR_NAMES, COLOR_TO_IDX
from paper.tasks import HELD_OUT, TASKS, TRAINING
from paper.tasks.bsuite import Discounting
from paper.tasks.unseen import UNSEEN
from paper.tasks.unseen_small import UNSEEN_SMALL
from paper.tasks.unseen_third import UNSEEN_THIRD

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


def test_training_and_held_out_seeds_are_apart():
    assert not set(TRAINING) & set(HELD_OUT)


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides_everything(name):
    data, few, other = made(name), ALL[name].make(5, SEED), ALL[name].make(5, SEED + 1)
    rows = few.trajectories.offsets[-1]
    first = data.trajectories[:5]
    for field in ("observations", "actions", "rewards"):
        map_arrays(np.testing.assert_array_equal, getattr(first, field), getattr(few.trajectories, field))
    np.testing.assert_array_equal(data.truth[:rows], few.truth)
    assert not first.equals(other.trajectories)


@pytest.mark.parametrize("name", ALL)
def test_the_truth_lies_before_the_reward(name):
    data = made(name)
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
    if name not in (
        "frozen_lake",
        "blackjack",
        "no_past_slots",
        "no_past_verdict",
    ):  # there chance decides with the action
        outcomes = by_present(data)
        assert all(len(signs) == 1 for signs in outcomes.values())


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


@pytest.mark.parametrize("name", ["taxi_delivery", "taxi_delivery_signed"])
def test_a_delivery_pays_after_a_pick_up_where_the_passenger_waits(name):
    data = made(name)
    seen, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    np.testing.assert_array_equal(data.truth, (seen[:, 3] == 1) & (actions == PICK_UP))
    over = ends(data)[data.trajectories.terminated[ends(data)]]
    assert (actions[over] == DROP_OFF).all()
    agree(rewards[over] > 0, has_cause(data)[over])
    if name == "taxi_delivery_signed":
        assert (rewards[over] != 0).all()


def test_taxi_pays_its_own_rewards_at_the_destination():
    data = made("taxi_own_rewards")
    seen, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    assert set(np.unique(rewards)) == {-10, -1, 20}
    places = np.array([(0, 0), (0, 4), (4, 0), (4, 3)])
    tried = (actions == DROP_OFF) & (seen[:, :2] == places[seen[:, 2]]).all(1)
    assert set(rewards[tried]) == {-10, 20}
    agree(rewards[tried] == 20, has_cause(data)[tried])
    _, cause = causes(data)
    assert (actions[cause] == PICK_UP).all() and (seen[cause, 3] == 1).all()


@pytest.mark.parametrize("name", ["unlock", "unlock_clock"])
def test_a_locked_door_opens_after_the_key_was_picked_up(name):
    data = made(name)
    seen, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    if name == "unlock_clock":
        assert set(seen) == {"image", "direction", "time"}
        assert seen["time"].min() == 0 and seen["time"].max() <= 1
        seen = seen["image"]
    assert not seen[:, :, 6].any(), "neither what is carried nor what lies beside is seen"
    ahead = seen[:, 3, 5, 0]
    assert (ahead[data.truth] == KEY).all() and (actions[data.truth] == 3).all()
    tried = (actions == TOGGLE) & (ahead == DOOR)
    agree(rewards[tried] > 0, has_cause(data)[tried])
    assert not rewards[~tried].any()


def test_the_blue_door_pays_after_the_red_one():
    data = made("red_blue_doors")
    over = ends(data)[data.trajectories.terminated[ends(data)]]
    assert (data.trajectories.observations[over, 3, 5, :2] == (DOOR, 2)).all(), "the blue door is ahead"
    agree(data.trajectories.rewards[over] > 0, has_cause(data)[over])


@pytest.mark.parametrize("name", ["memory_s7", "memory_s11"])
def test_the_end_pays_that_holds_the_cue(name):
    data = made(name)
    images, directions = (data.trajectories.observations[key] for key in ("image", "direction"))
    over = ends(data)[data.trajectories.terminated[ends(data)]]
    assert has_cause(data)[over].all() and len(over) > 0.9 * EPISODES
    assert not data.truth[over].any(), "the cue is out of view when it decides"
    things = np.isin(images[..., 0], (KEY, BALL)).sum((1, 2))
    cue = []
    for row in over:
        rows = np.arange(starts_of(data)[row], row)
        looking = rows[data.truth[rows] & (directions[rows] == 2) & (things[rows] == 1)]
        (kind,) = set(images[looking][..., 0].flat) & {KEY, BALL}
        cue.append(kind)
    at_the_end = images[over, 3, 4, 0]
    agree(data.trajectories.rewards[over] > 0, at_the_end == cue)


@pytest.mark.parametrize("name", ["repeat_first", "repeat_previous"])
def test_cards_pay_for_the_suit_of_their_cause(name):
    data = made(name)
    rows, cause = causes(data)
    agree(data.trajectories.rewards[rows] > 0, data.trajectories.actions[rows] == data.trajectories.observations[cause])
    rewarded = np.flatnonzero(data.trajectories.rewards)
    assert set(rewarded) - set(rows) <= set(data.trajectories.offsets), "but for a reward at the first step"


def test_the_umbrella_is_chosen_at_the_first_step():
    data = made("umbrella")
    rows, cause = causes(data)
    np.testing.assert_array_equal(rows, ends(data))
    assert not data.trajectories.observations[:, 1].any(), "the umbrella is out of sight"
    needed = data.trajectories.observations[rows, 0]
    agree(data.trajectories.rewards[rows] > 0, data.trajectories.actions[cause] == needed)


def test_the_bit_is_repeated_at_the_last_step():
    data = made("memory_len")
    shown = data.trajectories.observations[:, 2]
    np.testing.assert_array_equal(shown != 0, data.truth)
    first, last = data.trajectories.offsets[:-1], ends(data)
    agree(data.trajectories.rewards[last] > 0, 2 * data.trajectories.actions[last] - 1 == shown[first])


def test_the_first_action_chooses_when_the_reward_comes():
    data = made("discounting_chain")
    within = np.arange(len(data.truth)) - starts_of(data)
    chosen = data.trajectories.actions[starts_of(data)]
    agree(data.trajectories.rewards > 0, within == np.array(Discounting.delays)[chosen] - 1)
    assert not data.trajectories.observations[:, 0].any(), "the choice is out of sight"


def test_the_goal_pays_after_the_left_hill():
    data = made("mountain_car_left")
    np.testing.assert_array_equal(data.truth, data.trajectories.observations[:, 0] < -1.1)
    over = data.trajectories.terminated
    agree(data.trajectories.rewards[over] > 0, has_cause(data)[over])


def test_unseen_tasks_are_apart():
    assert len(ALL) == sum(map(len, (TASKS, UNSEEN, UNSEEN_SMALL, UNSEEN_THIRD)))
    assert sum(task.past_matters for task in UNSEEN_SMALL.values()) == 16 and len(UNSEEN_SMALL) == 19
    assert sum(task.past_matters for task in UNSEEN_THIRD.values()) == 12 and len(UNSEEN_THIRD) == 16
    assert sum(task.past_matters for task in UNSEEN.values()) == 8 and len(UNSEEN) == 11
    assert len({task.source.split(";")[0] for task in UNSEEN.values()} & {task.source for task in TASKS.values()}) == 0


ONE_TRY = [name for name in NEEDING if name in UNSEEN_SMALL and name not in ("grid_key", "coupons")]


@pytest.mark.parametrize("name", [*UNSEEN, *ONE_TRY])
def test_both_outcomes_are_common_in_unseen_tasks(name):
    rewards, task = np.asarray(made(name).trajectories.rewards), ALL[name]
    paid = rewards == 1 if name in ("key_to_door", "apples") else rewards < 0 if name == "trap" else rewards > 0
    rewarded = np.add.reduceat(paid, made(name).trajectories.offsets[:-1]) > 0
    if name in ("battleship", "autoencode"):  # every step pays or costs
        assert 0.05 < paid[rewards != 0].mean() < 0.6
    else:
        assert 0.04 < rewarded.mean() < 0.7, task


def test_a_second_shot_at_a_cell_never_hits():
    data = made("battleship")
    shots, rewards = data.trajectories.actions, data.trajectories.rewards
    rows, cause = causes(data)
    np.testing.assert_array_equal(shots[rows], shots[cause])
    assert (rewards[rows] < 0).all()
    new = np.setdiff1d(np.arange(len(rewards)), rows)
    episodes = np.stack([starts_of(data)[new], *shots[new].T], 1)
    assert len(np.unique(episodes, axis=0)) == len(new), "each is the first at its cell"
    assert 0.3 < (rewards[new] > 0).mean() < 0.7, "and chance decides it"


def test_cards_are_asked_for_in_reverse_order():
    data = made("autoencode")
    rows, cause = causes(data)
    watching, suits = data.trajectories.observations
    assert not watching[rows].any() and watching[cause].all()
    agree(data.trajectories.rewards[rows] > 0, data.trajectories.actions[rows] == suits[cause])
    assert len(rows) == EPISODES * 51


def test_the_goal_pays_after_both_corners():
    data = made("cliff_both_corners")
    seen, rewards = data.trajectories.observations, data.trajectories.rewards
    np.testing.assert_array_equal(data.truth, (seen == 0) | (seen == 11))
    left, right = (np.add.reduceat(seen == corner, data.trajectories.offsets[:-1]) for corner in (0, 11))
    assert max(left.max(), right.max()) == 1, "no corner is visited twice"
    assert data.trajectories.terminated[ends(data)].all()
    agree(rewards[ends(data)] > 0, (left == 1) & (right == 1))
    assert not np.delete(rewards, ends(data)).any()


def test_the_goal_pays_for_the_corner_visited_last():
    data = made("cliff_last_corner")
    seen, rewards = data.trajectories.observations, data.trajectories.rewards
    rows, cause = causes(data)
    agree(rewards[rows] > 0, seen[cause] == 0)
    assert np.isin(seen[cause], (0, 11)).all()
    for row, first in zip(rows, cause, strict=True):
        assert not np.isin(seen[first + 1 : row], (0, 11)).any()
    never = np.setdiff1d(ends(data), rows)
    assert len(never) and not rewards[never].any() and not has_cause(data)[never].any()


def test_the_pendulum_pays_after_it_was_upright():
    data = made("pendulum_upright")
    np.testing.assert_array_equal(data.truth, data.trajectories.observations[:, 0] > 0.95)
    over = data.trajectories.terminated
    agree(data.trajectories.rewards[over] > 0, has_cause(data)[over])
    assert not data.trajectories.rewards[~over].any()
    assert np.mean(data.trajectories.lengths) > 180


def test_the_door_pays_whose_colour_the_first_observation_names():
    data = made("go_to_door")
    image, named = (data.trajectories.observations[key] for key in ("image", "mission"))
    np.testing.assert_array_equal(named > 0, starts_of(data) == np.arange(len(named)))
    rows = ends(data)[data.trajectories.terminated[ends(data)]]
    ahead = image[rows, 3, 5]
    assert (ahead[:, 0] == DOOR).all() and (data.trajectories.actions[rows] == 6).all()
    colours = np.array([COLOR_TO_IDX[name] for name in COLOR_NAMES])[named[starts_of(data)[rows]] - 1]
    right, paid = ahead[:, 1] == colours, data.trajectories.rewards[rows] > 0
    assert paid[right].all()
    assert (paid & ~right).mean() < 0.05, "but for doors on both sides of a corner"
    agree(data.truth == 0, (data.trajectories.rewards > 0) & (starts_of(data) < np.arange(len(named))))


def test_the_box_pays_for_empty_hands():
    data = made("unlock_pickup")
    image, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    assert not image[:, :, 6].any(), "what is carried is not seen"
    ahead, shown = image[:, 3, 5, 0], (image[..., 0] == KEY).any((1, 2))
    tried = (ahead == BOX) & (actions == 3)
    agree(rewards[tried] > 0, has_cause(data)[tried])
    assert not rewards[~tried].any()
    assert ((actions[data.truth] == 4) & (ahead[data.truth] == 1) | shown[data.truth]).all(), "dropped, or seen to lie"
    assert (shown[tried & (rewards > 0)]).mean() < 0.3, "the key mostly lies out of view"


def test_the_last_door_pays_for_the_key_of_the_first_room():
    data = made("key_to_door")
    image, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    assert not image[:, :, 6].any()
    ahead = image[:, 3, 5, 0]
    rows, cause = causes(data)
    assert (ahead[cause] == KEY).all() and (actions[cause] == 3).all() and (data.truth[rows] < 15).all()
    took = np.add.reduceat((ahead == KEY) & (actions == 3), data.trajectories.offsets[:-1])
    assert set(took) == {0, 1}
    tried = (ahead == DOOR) & (actions == TOGGLE)
    agree(rewards[tried] == 1, np.repeat(took, data.trajectories.lengths)[tried] == 1)
    np.testing.assert_array_equal(rewards == 0.1, (ahead == BALL) & (actions == 3))
    np.testing.assert_array_equal(rewards == 1, data.truth >= 0)


@pytest.mark.parametrize("name", ["door_key", "dynamic_obstacles"])
def test_what_lies_ahead_pays(name):
    data = made(name)
    ahead = data.trajectories.observations[:, 3, 5, 0]
    agree(data.trajectories.rewards > 0, (ahead == GOAL) & (data.trajectories.actions == 2))


@pytest.mark.parametrize("name", UNSEEN_SMALL | UNSEEN_THIRD)
def test_small_tasks_keep_to_their_spaces(name):
    data = made(name).trajectories[:20]
    for space, columns in (
        (data.observation_space, data.observations),
        (data.action_space, data.actions),
    ):
        for row in range(data.steps):
            assert space.contains(map_arrays(lambda column, row=row: column[row], columns)), (name, row)


MARKS = {  # of small tasks: the steps that are marked, by what was seen and done
    "grid_key": lambda seen, done: (seen[:, 1, 1, 1] == 1) & (done == 4),
    "delivery_end": lambda seen, done: (seen[:, 2] == 1) & (seen[:, 3] < 3) & (done == 4),
    "trap": lambda seen, done: (seen[:, 1] > 0.5) & (done == 2),
    "combo_lock": lambda seen, done: (seen[:, 1] == 1) & (done == 2),
    "shop": lambda seen, done: (seen[:, 1] == 1) & (done > 0),
    "dict_clock": lambda seen, done: (seen["picture"].max((1, 2, 3)) == 250) & (done == 1),
    "reach_grip": lambda seen, done: (np.hypot(*seen[:, 2:4].T) < 0.3) & (done[:, 2] > 0),
    "either_or": lambda seen, done: (seen[:, 1] > 0) & (done == 2),
    "mail_order": lambda seen, done: (seen[:, 0] == 7) & (done == 1),
    "greenhouse": lambda seen, done: seen[:, 0] == 1,
    "orbit_burn": lambda seen, done: (seen[:, 2] == 1) & (done[:, 0] > 0.2),
    "conveyor": lambda seen, done: np.isin(seen[0], (1, 2)) & (done == seen[0]),
    "fuse": lambda seen, done: seen[:, 0] == 2,
    "grafting": lambda seen, done: (seen[:, 0] == 3) & (done == 3),
    "samples": lambda seen, done: (seen == 4) & (done == 2),
    "cue_then_choice": lambda seen, done: (seen[:, 0] != 0) | (seen[:, 1] == 1),
    "safe": lambda seen, done: ((seen[:, 0] == 1) & (done == 2)) | ((seen[:, 0] == 2) & (done == 0)),
}


@pytest.mark.parametrize("name", MARKS)
def test_marks_of_small_tasks_are_of_what_was_seen_and_done(name):
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


def test_a_parcel_pays_that_was_fetched_before_the_round_ended():
    data = made("delivery_end")
    handed_in = (data.trajectories.observations[:, 3] == 1) & (data.trajectories.actions == 5)
    handed_in = np.add.reduceat(handed_in, data.trajectories.offsets[:-1]) > 0
    agree(data.trajectories.rewards[ends(data)] > 0, has_cause(data)[ends(data)] & handed_in)


def test_the_lock_opens_for_red_and_then_blue():
    data = made("combo_lock")
    over = np.flatnonzero(data.trajectories.terminated)
    rooms, firsts = data.trajectories.observations[:, 0], starts_of(data)[over]
    pressed = [rooms[first:row][data.truth[first:row]].tolist() for first, row in zip(firsts, over, strict=True)]
    assert {(), (0,), (3,), (0, 3), (3, 0)} >= {tuple(order) for order in pressed}
    agree(data.trajectories.rewards[over] > 0, np.array([order == [0, 3] for order in pressed]))


def test_the_treatment_pays_that_the_test_showed():
    data = made("test_then_treat")
    seen, actions, rewards = data.trajectories.observations, data.trajectories.actions, data.trajectories.rewards
    tested, shown = ends(data)[has_cause(data)[ends(data)]], np.flatnonzero(data.truth)
    assert (actions[shown - 1] == 1).all() and (np.abs(seen[shown, 2]) > 1).all()
    agree(rewards[tested] > 0, actions[tested] == np.where(seen[shown, 2] > 0, 3, 2))
    assert {-1, 1} == set(rewards[np.setdiff1d(ends(data), tested)]), "else chance decides"


def test_the_obstacle_pays_for_the_item_that_fits():
    data = made("shop")
    seen, over = data.trajectories.observations, ends(data)
    items = np.add.reduceat(data.trajectories.actions * data.truth, data.trajectories.offsets[:-1])
    agree(data.trajectories.rewards[over] > 0, items == seen[over, 2])
    assert (seen[over, 2] > 0).all() and not np.delete(data.trajectories.rewards, over).any()


def test_the_door_pays_for_the_key_and_apples_pay_at_once():
    data = made("apples")
    seen, actions, rewards = data.trajectories.observations[:, 0], data.trajectories.actions, data.trajectories.rewards
    took = np.add.reduceat((seen == 2) & (actions == 1), data.trajectories.offsets[:-1]) > 0
    tried = (seen == 3) & (actions == 1)
    agree(rewards[tried] == 1, np.repeat(took, data.trajectories.lengths)[tried])
    np.testing.assert_array_equal(rewards == 0.1, (seen == 1) & (actions == 1))
    rows, cause = causes(data)
    assert (rewards[rows] == 1).all() and (seen[cause] == 2).all() and (actions[cause] == 1).all()


def test_each_till_pays_for_the_coupon_of_its_colour():
    data = made("coupons")
    (kinds, colours), actions = data.trajectories.observations.T, data.trajectories.actions
    agree(data.trajectories.rewards > 0, data.truth >= 0)
    rows, cause = causes(data)
    assert (kinds[rows] == 2).all() and (kinds[cause] == 1).all() and (actions[cause] == 1).all()
    np.testing.assert_array_equal(colours[rows], colours[cause])
    assert (kinds == 2).sum() == 3 * EPISODES
    clipped = np.add.reduceat((kinds == 1) & (actions == 1), data.trajectories.offsets[:-1])
    np.testing.assert_array_equal(np.add.reduceat(data.truth >= 0, data.trajectories.offsets[:-1]), clipped)
