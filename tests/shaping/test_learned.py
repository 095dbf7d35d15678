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
from tests.sealing import assert_tampering_is_refused
from tests.shaping.mdps import MdpEnv, is_clear, random_mdp
from tests.shaping.playing import changed_states, learn_compiled

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
    learned,
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


def test_the_credit_may_come_from_another_view_of_the_same_episodes():
    crop = srl.collect("secret_rl/Triggers-v0", 300, seed=0, env_options={**MAZE, "window": 3}, progress=False)
    one, other = learn_potential(maze_data(), credit_of(crop)), maze_potential()
    np.testing.assert_array_equal(*(potential.lookup(maze_data().observations) for potential in (one, other)))


def test_equal_observations_are_learned_once_with_the_mean_of_their_visits():
    values = np.array([1.0, 3.0, -1.0, 0.5, 1.5, 0.5])
    seen = np.array([0, 0, 1, 2, 2, 2])
    potential = learn_values(seen, values, gym.spaces.Discrete(3), threshold=0.0)
    assert (potential.report.visits, potential.report.distinct) == (6, 3)
    np.testing.assert_allclose(potential.lookup(np.arange(3)), [2.0, -1.0, 2.5 / 3], atol=1e-2)
    assert (potential.low, potential.high, potential.bound) == pytest.approx((-1.0, 2.0, 2.0))


SPACES = {
    "vector": (gym.spaces.Box(-1e3, 1e3, (2,), np.float32), lambda rng, n: rng.uniform([0, 500], [1, 900], (n, 2))),
    "numbers": (gym.spaces.MultiDiscrete([3, 4], start=[1, 0]), lambda rng, n: rng.integers([1, 0], [4, 4], (n, 2))),
    "switches": (gym.spaces.MultiBinary(4), lambda rng, n: rng.integers(0, 2, (n, 4))),
    "floats": (gym.spaces.Box(-np.inf, np.inf, (), np.float64), lambda rng, n: rng.normal(size=n)),
    "bits": (gym.spaces.Box(0, 1, (5, 4, 3), np.uint8), lambda rng, n: rng.integers(0, 2, (n, 5, 4, 3))),
    "bytes": (gym.spaces.Box(0, 255, (20, 17, 3), np.uint8), lambda rng, n: bright(rng, n, 20, 17)),
    "grey": (gym.spaces.Box(0, 1, (18, 18), np.float32), lambda rng, n: bright(rng, n, 18, 18)[..., 0] / 255),
}
GOALS = {
    "vector": lambda seen: seen[:, 0] + (seen[:, 1] - 500) / 400,
    "numbers": lambda seen: (seen[:, 0] == 2) + 0.5 * (seen[:, 1] == 3),
    "switches": lambda seen: seen[:, 0] ^ seen[:, 1],
    "floats": lambda seen: np.tanh(seen),
    "bits": lambda seen: seen[:, 0, 0, 0] + 0.5 * seen[:, 4, 3, 2],
    "bytes": lambda seen: seen[:, :10, :8].mean((1, 2, 3)) > seen[:, 10:, 8:].mean((1, 2, 3)),
    "grey": lambda seen: seen[:, :9].mean((1, 2)) > seen[:, 9:].mean((1, 2)),
}


def bright(rng, n, height, width):
    """Pictures with a bright corner in one of two places."""
    pictures = rng.integers(0, 60, (n, height, width, 3))
    for picture, top in zip(pictures, rng.random(n) < 0.5, strict=True):
        (picture[: height // 2, : width // 2] if top else picture[height // 2 :, width // 2 :])[:] += 120
    return pictures


@pytest.mark.parametrize("kind", SPACES)
def test_it_generalises_over_every_kind_of_space(kind):
    space, draw = SPACES[kind]
    rng = np.random.default_rng(0)
    rows, fresh = (draw(rng, n).astype(space.dtype) for n in (250, 100))
    potential = learn_values(rows, GOALS[kind](rows).astype(float), space, steps=100, validation=0.0)
    error = potential.lookup(fresh) - GOALS[kind](fresh)
    assert np.mean(error**2) < 0.2 * np.var(GOALS[kind](fresh))


def test_what_is_small_is_nothing_and_what_is_far_is_bounded():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    space = gym.spaces.Box(-1e9, 1e9, (2,), np.float32)
    potential = learn_values(rows, np.maximum(rows[:, 0], 0).astype(float), space, threshold=0.2)
    answers = potential.lookup(rng.uniform(-1e9, 1e9, (500, 2)).astype(np.float32))
    assert answers.min() >= potential.low == 0.0
    assert answers.max() <= potential.high == pytest.approx(rows.max(), abs=0.1)
    inside = potential.lookup(rows)
    assert (inside == 0).mean() > 0.4 and not ((inside > 0) & (inside < 0.2 * potential.high)).any()


def test_noise_is_not_learned_by_heart_where_observations_hardly_repeat():
    rng = np.random.default_rng(0)
    rows, noise = rng.normal(size=(600, 6)).astype(np.float32), rng.normal(size=600)
    space = gym.spaces.Box(-9, 9, (6,), np.float32)
    careful = learn_values(rows, noise, space).report
    careless = learn_values(rows, noise, space, validation=0.0).report
    assert careless.error < 0.2 * careless.constant_error and careless.validation_error is None
    assert careful.steps < 400 and careful.validation_error < 1.3 * careful.validation_constant_error
    repeating = learn_values(np.repeat(rows[:100], 6, 0), noise, space).report
    assert (repeating.steps, repeating.validation_error) == (400, None), "means over visits need none"


def test_nothing_credited_is_nothing():
    few = maze_data()[:3]
    none = uniform_attributions(replace(few, rewards=np.zeros(few.steps)))
    none = replace(none, lengths=maze_data().lengths)
    with pytest.warns(CoverageWarning) as caught:
        potential = learn_potential(maze_data(), none)
    assert caught[0].filename == __file__
    assert not potential.lookup(maze_data().observations[:50]).any() and potential.bound == 0


def test_a_seed_tells_everything():
    before = torch.get_rng_state()
    same, again, other = (learn_potential(maze_data(), kind="value", steps=20, seed=seed) for seed in (1, 1, 2))
    rows = maze_data().observations
    np.testing.assert_array_equal(same.lookup(rows), again.lookup(rows))
    assert not np.array_equal(same.lookup(rows), other.lookup(rows))
    assert torch.equal(before, torch.get_rng_state()), "the user's own generator is left alone"


def code(rows):
    """Where the agent is and how many pixels are set: a state code, as if learned elsewhere."""
    agent = rows[..., 0].reshape(len(rows), -1)
    return np.concatenate([agent, rows.reshape(len(rows), -1).sum(1, keepdims=True)], axis=1)


def test_features_stand_in_for_observations(tmp_path):
    potential = maze_potential(features=code)
    plain = maze_potential()
    rows = maze_data().observations
    assert potential.report.explained > 0.98
    np.testing.assert_allclose(potential.lookup(rows), plain.lookup(rows), atol=0.15 * plain.bound)
    path = potential.save(tmp_path / "p.safetensors")
    with pytest.raises(FileFormatError, match="made by the function code.*features="):
        LearnedPotential.load(path)
    np.testing.assert_array_equal(LearnedPotential.load(path, features=code).lookup(rows), potential.lookup(rows))
    with pytest.raises(ValueError, match=r"features made an array of .* of shape \(1,\) .* a row of numbers for each"):
        learn_potential(maze_data(), kind="value", features=lambda rows: np.zeros(1))
    with pytest.raises(FileFormatError, match="without features"):
        LearnedPotential.load(plain.save(tmp_path / "q.safetensors"), features=code)


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


def test_an_observation_that_comes_again_costs_a_lookup(monkeypatch):
    potential, asked = maze_potential(), []
    potential._known._answers.clear()
    answers = potential.network.answers
    monkeypatch.setattr(potential.network, "answers", lambda rows: asked.append(len(rows)) or answers(rows))
    rows = maze_data().observations[:200]
    first = potential.lookup(rows)
    np.testing.assert_array_equal([potential.lookup(row[None])[0] for row in rows], first)
    assert asked == [len(np.unique(rows, axis=0))]
    monkeypatch.setattr(learned, "_REMEMBERED", 0)
    potential._known._answers.clear()
    np.testing.assert_array_equal([potential.lookup(row[None])[0] for row in rows], first)
    assert len(asked) == 201 and not potential._known._answers


def test_compiled_and_stepped_learners_are_shaped_alike():
    learn_compiled(PotentialShaping(TriggersEnv(**MAZE), maze_potential(), 0.99), 60, seed=3)


@pytest.mark.filterwarnings("ignore::secret_rl.shaping.PotentialRangeWarning")
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_optimal_actions_are_the_same_set(seed):
    mdp = random_mdp(seed, states=4, actions=2)
    assume(is_clear(mdp, 0.9))
    values = np.random.default_rng(seed).normal(0, 2, 4)
    potential = learn_values(np.arange(4), values, gym.spaces.Discrete(4), threshold=0.0, steps=30)
    assert len(set(potential.lookup(np.arange(4)).tolist())) > 1
    assert changed_states(mdp, PotentialShaping(MdpEnv(mdp), potential, 0.9), 0.9) == 0


# Files, and what does not fit


def test_a_path_is_enough(tmp_path):
    path = maze_potential().save(tmp_path / "learned.safetensors")
    env = PotentialShaping(TriggersEnv(**MAZE), str(path), 0.99)
    assert isinstance(env.potential, LearnedPotential)
    table = TablePotential({0: 1.0}).save(tmp_path / "table.json")
    changing = ChangingPotential(table)
    changing.swap(path)
    assert isinstance(changing.present, LearnedPotential)
    for content in (b"", b"\0" * 8, b"hello, world", path.read_bytes()[:400]):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(FileFormatError):
            PotentialShaping(TriggersEnv(**MAZE), tmp_path / "other", 0.99)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        LearnedPotential.load(tmp_path / "nothing")


BIAS = "head.0.bias"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda about, _: about.update(format="another"), "says format 'another'"),
        (lambda about, _: about.pop("low"), "low"),
        (lambda about, _: about.update(high="much"), "'much' is not a finite number"),
        (lambda about, _: about.update(low=1.0), "range"),
        (lambda about, _: about.update(threshold=1.5), "range"),
        (lambda about, _: about.update(units=10**9), "(size mismatch|shape)"),
        (lambda about, _: about.update(units=-3), "-3 is not a whole number from 0 to"),
        (lambda about, _: about.update(report={"visits": 1}), "distinct"),
        (lambda about, _: about["report"].update(other=1), "LearningReport"),
        (lambda about, _: about["observation_space"].update(shape=[10**6] * 2), "1 parts and 8,000,000,000,000 bytes"),
        (lambda about, _: about["observation_space"].update(type="Nonsense"), "unknown space type"),
        (lambda about, _: about.update(observation_space={"type": "MultiBinary", "n": 10**12}), "is not a whole numb"),
        (lambda _, weights: weights.update({BIAS: weights[BIAS] * np.nan}), f"{BIAS} holds NaN or infinite numbers"),
        (lambda _, weights: weights.update({BIAS: weights[BIAS].astype("i4")}), f"{BIAS} are torch.int32, expected"),
        (lambda _, weights: weights.update({BIAS: weights[BIAS].astype("f4")}), "are torch.float32, expected"),
        (lambda _, weights: weights.update({BIAS: weights[BIAS][:3]}), "size mismatch"),
        (lambda _, weights: weights.pop(BIAS), "Missing key"),
        (lambda _, weights: weights.update(extra=weights[BIAS]), "Unexpected key"),
    ],
)
def test_files_that_were_tampered_with_are_refused(tmp_path, change, said):
    """Also where the checksum is made to match."""
    path = maze_potential().save(tmp_path / "p.safetensors")
    assert_tampering_is_refused(LearnedPotential.load, path, change, f"'secret-rl learned potential': (?s:.*){said}")


def test_other_observations_are_refused():
    with pytest.raises(ValueError, match=r"learned on observations of Box.*\(4, 4, 3\).*there are Box"):
        PotentialShaping(TriggersEnv(**{**MAZE, "size": 5}), maze_potential(), 0.99)
    with pytest.raises(ValueError, match="there are Dict"):
        PotentialShaping(EveryEnding(), maze_potential(), 0.99)
    wider = gym.spaces.Box(0, 2, (4, 4, 3), TriggersEnv(**MAZE).observation_space.dtype)
    maze_potential().check_spaces(wider, gym.spaces.Discrete(4))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "paper"}, "kind must be one of .*'cumulative', 'mixed', 'pending', 'value'.*got 'paper'"),
        ({"rewards": "some"}, '"positive" or "all"'),
        ({"delay_discount": 0.0}, "delay_discount must lie"),
        ({"threshold": 1.0}, "threshold must lie"),
        ({"validation": 1.0}, "validation must lie"),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"units": 2.5}, "units must be"),
        ({"batch_size": True}, "batch_size must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"kind": "pending"}, "needs attributions"),
    ],
)
def test_bad_options_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        learn_potential(maze_data(), **{"kind": "value", **options})


def test_trajectories_without_reward_or_ends():
    with pytest.raises(ValueError, match="none of the 300 trajectories holds a positive reward"):
        learn_potential(replace(maze_data(), rewards=-np.ones(maze_data().steps)), kind="value")
    without = replace(maze_data(), final_observations=None)
    assert learn_potential(without, kind="value", **QUICK).report.visits == without.steps
    assert learn_potential(maze_data(), kind="value", **QUICK).report.visits == without.steps + 300


def test_shaping_pulls_no_torch():
    code = "import sys, secret_rl.shaping; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
