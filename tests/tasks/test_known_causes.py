"""The registry of tasks, and those that no study of the paper tests: mazes, Key-to-Door, the taxi's instances."""

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

from secret_rl.envs.tabular import best_return
from secret_rl.evaluation.benchmark import default_tasks
from secret_rl.tasks import HELD_OUT, TRAINING, Task, load_data, register_task, task_of, tasks
from secret_rl.tasks import task as registry
from secret_rl.tasks.task import step_numbers

KEY, APPLE, DOOR = 1, 2, 3  # channels
AHEAD = np.array([(0, 1), (2, 1), (1, 0), (1, 2)])  # where each action leads, in a view of 3x3 cells


@cache
def made(name, episodes=200, seed=TRAINING[0]):
    return task_of(name).make(episodes, seed)


def entered(data, rows):
    """(rows, channels) what lies in the cell that an action leads to."""
    row, column = AHEAD[data.trajectories.actions[rows]].T
    return data.trajectories.observations[rows, row, column]


def starts_of(data):
    return np.repeat(data.trajectories.offsets[:-1], data.trajectories.lengths)


@pytest.mark.parametrize("name", ["key_to_door", "key_to_door_apples"])
def test_the_door_pays_with_the_key_and_the_step_that_took_it_is_the_cause(name):
    data = made(name)
    rewards = data.trajectories.rewards
    paid = np.flatnonzero(data.truth >= 0)
    assert len(paid) and (rewards[paid] == 5).all() and not (rewards[data.truth < 0] == 5).any()
    assert entered(data, paid)[:, DOOR].all(), "a door is entered"
    assert entered(data, (starts_of(data) + data.truth)[paid])[:, KEY].all(), "a key was taken"
    takes = entered(data, np.arange(len(rewards)))[:, KEY] == 1
    taken = np.concatenate([[0], np.cumsum(takes)])[:-1]
    closed = np.flatnonzero(data.trajectories.terminated & (rewards != 5))
    assert len(closed) and (taken == taken[starts_of(data)])[closed].all(), "a door that does not pay: there was no key"
    apples = entered(data, np.flatnonzero(rewards == 1))
    assert apples[:, APPLE].all() and (len(apples) > len(paid)) == (name == "key_to_door_apples")


def test_what_is_carried_is_not_seen():
    data = made("key_to_door").trajectories
    after = np.flatnonzero(entered(made("key_to_door"), np.arange(data.steps))[:, KEY] == 1) + 1
    assert len(after) and not data.observations[after][..., KEY].any(), "there is one key, and it is gone"


@pytest.mark.parametrize(("name", "switches"), [("triggers_8x8_1t1p", 1), ("triggers_8x8_3t1p", 3)])
def test_a_prize_pays_once_all_switches_were_activated(name, switches):
    data = made(name, 100)
    activated = np.concatenate([[0], np.cumsum(data.truth)])[:-1]
    before = activated - activated[starts_of(data)]
    rewards = data.trajectories.rewards
    assert (before[rewards > 0] == switches).all() and (before[rewards < 0] < switches).all()
    assert (rewards > 0).any() and (rewards < 0).any()
    assert task_of(name).judged_rewards(data).sum() == (rewards > 0).sum()


def test_an_instance_of_the_taxi_is_played_by_gymnasiums_own_rules():
    env = task_of("taxi_delivery").instance(3)
    taxi = gym.make("Taxi-v4").unwrapped
    rng = np.random.default_rng(0)
    for _ in range(20):
        seen, info = env.reset()
        taxi.reset()
        taxi.s = info["state"]
        ended = False
        while not ended:
            row, column, passenger, destination = taxi.decode(taxi.s)
            here = passenger < 4 and taxi.locs[passenger] == (row, column)
            assert seen.tolist() == [row, column, destination, here]
            action = int(rng.integers(6)) if rng.random() < 0.5 or not here else 4
            attempt = action == 5 and taxi.locs[destination] == (row, column)
            seen, reward, terminated, truncated, info = env.step(action)
            taxi.step(action)
            assert info["state"] == taxi.s and terminated == attempt
            assert reward == (attempt and passenger == 4)
            ended = terminated or truncated
    assert best_return(env.tabular(), 0.99) > 0.5, "it can be solved"


def test_held_out_seeds_share_no_episode_with_those_of_training():
    assert not set(TRAINING) & set(HELD_OUT)
    source, held_out = (made("taxi_delivery", 300, seed).trajectories for seed in (TRAINING[0], HELD_OUT[0]))
    seeds = [set(data.episode_annotations["seed"].tolist()) for data in (source, held_out)]
    assert all(len(part) == 300 for part in seeds) and not seeds[0] & seeds[1]


def test_a_task_of_ones_own_is_registered_under_a_free_name(monkeypatch):
    tasks()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    mine = Task("mine", "here", "A step pays.", task_of("memory_len").make, 10)
    assert register_task(mine) is mine is task_of("mine")
    with pytest.raises(ValueError, match=r"'mine' is registered already: choose another name"):
        register_task(Task("mine", "there", "Another.", mine.make, 10))
    with pytest.raises(ValueError, match=r"unknown task 'chess': expected one of .*key_to_door.*mine"):
        task_of("chess")


def test_data_is_made_once(tmp_path):
    task = Task("small", "here", "As memory_len.", task_of("memory_len").make, 10)
    first = load_data(task, 4, 0, tmp_path)
    again = load_data(Task("small", "here", "Not made again.", None, 10), 4, 0, tmp_path)
    assert first.trajectories.equals(again.trajectories)
    np.testing.assert_array_equal(first.truth, again.truth)


def test_doors_are_due_to_the_keys_that_were_taken_for_them():
    pytest.importorskip("vizdoom")
    task = task_of("keys_doors")
    data = task.make(2, 5)
    judged = task.judged_rewards(data)
    assert judged.any() and (np.asarray(data.trajectories.rewards)[judged] == 1).all()
    assert (data.truth[judged] < step_numbers(data.trajectories)[judged]).all(), "a key is taken before its door opens"
    assert task.costly and task.name not in default_tasks()
