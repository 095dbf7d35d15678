"""A network instead of a table: what it tends to, the same answers alone and in company, and files."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.sealing import change_arrays
from tests.shaping.playing import learn_compiled

import secret_rl as srl
from secret_rl.credit import oracle_attributions, uniform_attributions
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import (
    Batch,
    ChangingPotential,
    CoverageWarning,
    LearnedPotential,
    PotentialShaping,
    TablePotential,
    estimate_potential,
    learn_potential,
)
from secret_rl.testing.shaping import EveryEnding, OneEnvironment
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import stack

MAZE = {"size": 4, "triggers": 1, "layout_seed": 3, "max_steps": 25, "window": None}
QUICK = {"steps": 3, "units": 4}


@cache
def maze_data():
    return srl.collect("secret_rl/Triggers-v0", 300, seed=0, env_options=MAZE, progress=False)


def credit_of(data):
    return oracle_attributions(data, data.annotations["trigger_activated"])


@cache
def maze_potential(**options):
    return learn_potential(maze_data(), credit_of(maze_data()), **options)


def learn_values(observations, values, space, **options):
    """Learned on trajectories whose Monte-Carlo value with a tiny discount is, nearly, some values at observations."""
    parts = [slice(i, i + 5) for i in range(0, len(values), 5)]
    episodes = [
        {"observations": observations[part], "actions": np.zeros_like(values[part], int), "rewards": values[part]}
        for part in parts
    ]
    data = Trajectories.from_episodes(episodes, observation_space=space, action_space=gym.spaces.Discrete(1))
    return learn_potential(data, kind="value", delay_discount=1e-9, rewards="all", **options)


# What it learns


@pytest.mark.parametrize("kind", ["pending", "cumulative", "mixed", "value"])
def test_with_the_full_state_observed_it_tends_to_the_table(kind):
    credit = credit_of(maze_data())
    table = estimate_potential(maze_data(), credit, kind)
    potential = maze_potential(kind=kind)
    states, firsts = np.unique(maze_data().states, return_index=True)
    found = potential.lookup(maze_data().observations[firsts])
    expected = table.lookup(states)
    assert expected.max() > 0.1
    np.testing.assert_allclose(found, expected, atol=0.03 * table.bound)
    assert (potential.bound, potential.reward_bound) == (pytest.approx(table.bound), table.reward_bound)
    assert potential.report.explained > 0.98


def test_nothing_credited_is_nothing():
    few = maze_data()[:3]
    none = uniform_attributions(replace(few, rewards=np.zeros(few.steps)))
    none = replace(none, lengths=maze_data().lengths)
    with pytest.warns(CoverageWarning) as caught:
        potential = learn_potential(maze_data(), none)
    assert caught[0].filename == __file__
    assert not potential.lookup(maze_data().observations[:50]).any() and potential.bound == 0


# The same answers alone and in company


@settings(max_examples=40)
@given(st.data())
def test_alone_in_company_and_from_a_file_the_answers_are_the_same(tmp_path, data):
    found, seed = data.draw(trajectories()), data.draw(st.integers(0, 99))
    assume(found.rewards.any())
    potential = learn_potential(found, kind="value", rewards="all", threshold=0.0, seed=seed, **QUICK)
    space = found.observation_space
    space.seed(0)
    elements = [space.sample() for _ in range(9)]
    alone = [OneEnvironment(potential).start(element, {}) for element in elements]
    read = LearnedPotential.load(potential.save(tmp_path / "p.safetensors"))
    for one in (potential, read):
        one._known._answers.clear()
        np.testing.assert_array_equal(one.lookup(stack(space, elements)), alone)
        one._known._answers.clear()
        mask = np.arange(9) % 3 > 0
        phi = one.step(None, Batch(mask, ~mask & False, stack(space, elements)))[1]
        np.testing.assert_array_equal(phi[mask], np.array(alone)[mask])
    assert all(potential.low <= answer <= potential.high for answer in alone)
    for name in ("low", "high", "bound", "reward_bound", "threshold", "report"):
        assert getattr(read, name) == getattr(potential, name)
    read.check_spaces(space, found.action_space)
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]


def test_compiled_and_stepped_learners_are_shaped_alike():
    learn_compiled(PotentialShaping(TriggersEnv(**MAZE), maze_potential(), 0.99), 60, seed=3)


# Files, and what does not fit


def test_other_observations_are_refused():
    with pytest.raises(ValueError, match=r"learned on observations of Box.*\(4, 4, 3\).*there are Box"):
        PotentialShaping(TriggersEnv(**{**MAZE, "size": 5}), maze_potential(), 0.99)
    with pytest.raises(ValueError, match="there are Dict"):
        PotentialShaping(EveryEnding(), maze_potential(), 0.99)
    wider = gym.spaces.Box(0, 2, (4, 4, 3), TriggersEnv(**MAZE).observation_space.dtype)
    maze_potential().check_spaces(wider, gym.spaces.Discrete(4))


def test_shaping_pulls_no_torch():
    code = "import sys, secret_rl.shaping; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "paper"}, "kind must be one of .*'cumulative', 'mixed', 'pending', 'value'.*got 'paper'"),
        ({"threshold": 1.0}, "threshold must be"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"units": 0}, "units must be"),
        ({"kind": "pending"}, "needs attributions"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        learn_potential(maze_data(), **{"kind": "value", **options})


def test_validation_where_observations_hardly_repeat_and_what_is_far_is_bounded():
    rng = np.random.default_rng(0)
    rows, noise = rng.normal(size=(600, 6)).astype(np.float32), rng.normal(size=600)
    space = gym.spaces.Box(-1e9, 1e9, (6,), np.float32)
    potential = learn_values(rows, noise, space, threshold=0.2)
    report = potential.report
    assert report.steps < 400 and -0.3 < report.validation_explained < report.explained, "not by heart"
    repeating = learn_values(np.repeat(rows[:100], 6, 0), noise, space).report
    assert (repeating.visits, repeating.distinct) == (600, 100)
    assert (repeating.steps, repeating.validation_explained) == (400, None), "means over visits need none"
    far = potential.lookup(rng.uniform(-1e9, 1e9, (500, 6)).astype(np.float32))
    assert potential.low <= far.min() and far.max() <= potential.high
    inside = np.abs(potential.lookup(rows))
    assert not ((inside > 0) & (inside < 0.2 * potential.bound)).any(), "what is small is nothing"


def test_a_seed_says_everything():
    before = torch.get_rng_state()
    rows = maze_data().observations
    same, again, other = (learn_potential(maze_data(), kind="value", steps=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(same.lookup(rows), again.lookup(rows))
    assert not np.array_equal(same.lookup(rows), other.lookup(rows))
    assert torch.equal(before, torch.get_rng_state()), "the user's own generator is left alone"


def test_a_path_is_enough(tmp_path):
    path = maze_potential().save(tmp_path / "learned.safetensors")
    assert isinstance(PotentialShaping(TriggersEnv(**MAZE), str(path), 0.99).potential, LearnedPotential)
    changing = ChangingPotential(TablePotential({0: 1.0}).save(tmp_path / "table.json"))
    changing.swap(path)
    assert isinstance(changing.present, LearnedPotential)
    for content in (b"", b"\0" * 8, b"hello, world", path.read_bytes()[:400], path.read_bytes()[:-1] + b"\1"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(FileFormatError):
            PotentialShaping(TriggersEnv(**MAZE), tmp_path / "other", 0.99)
    change_arrays(path, lambda about, _: about.update(units=10**9))
    with pytest.raises(FileFormatError, match="size mismatch|shape"):  # without the memory for it
        LearnedPotential.load(path)
