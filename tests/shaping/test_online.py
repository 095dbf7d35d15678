"""Potentials of the history: credit added up step by step, in one environment or many, stepped or compiled."""

import warnings
import zlib
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.quick import quick_fits
from tests.shaping.playing import MODES, Arrays, compare_wrappers, learn_compiled

import secret_rl as srl
from secret_rl.agents import QLearning
from secret_rl.credit import NotFittedError, Secret
from secret_rl.envs.tabular import tabular_of
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.shaping import (
    CoverageWarning,
    NotCreditWarning,
    OnlineCredit,
    PotentialShaping,
    VectorPotentialShaping,
    learned,
)
from secret_rl.shaping.table import canonical
from secret_rl.testing.shaping import EveryEnding, OneEnvironment
from secret_rl.testing.strategies import triggers_options
from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import CenteredView, DropView


def plain(nest):
    """An element of a space as a key, whatever its dtypes and the order of its entries."""
    if isinstance(nest, dict):
        return tuple((name, plain(nest[name])) for name in sorted(nest))
    return tuple(map(plain, nest)) if isinstance(nest, tuple) else canonical(nest)


class HashedCredit:
    """Credit that any pair has, in sixteenths from 0 to 15/16, and how often it was asked for."""

    def __init__(self):
        self.asked = []  # rows of each call

    def of(self, observation, action):
        return zlib.crc32(repr((plain(observation), plain(action))).encode()) % 16 / 16

    def step_credit(self, observations, actions):
        self.asked.append(len(actions))
        pairs = [map_arrays(lambda array, i=i: array[i], (observations, actions)) for i in range(len(actions))]
        return np.array([self.of(*pair) for pair in pairs])


def maze(**options):
    return TriggersEnv(**{"size": 4, "triggers": 2, "layout_seed": 3, "max_steps": 25, **options})


NEXT_STEP = AutoresetMode.NEXT_STEP
WORLDS = {"dict": EveryEnding, "arrays": Arrays, "maze": maze}
OPTIONS = {
    "threshold": st.sampled_from([0.0, 0.1, 0.5]),
    "scale": st.sampled_from([0.3, 0.07, 1.0]),
    "reward": st.sampled_from([1.0, 2.5, 0.1]),
    "cap": st.sampled_from([0.95, 0.4, 1.0]),
    "reset_on_reward": st.booleans(),
    "repeat": st.booleans(),
}


def expected(credit, steps, threshold, scale, reward, cap=0.95, reset_on_reward=False, repeat=False):
    """Phi after each of some (observation, action, reward) steps, written out."""
    total, answers, earned = 0.0, [], set()
    for observation, action, paid in steps:
        share = credit(observation, action)
        if share > threshold and (repeat or (observation, action) not in earned):
            total += scale * reward * share
            earned.add((observation, action))
        if reset_on_reward and paid > 0:
            total = 0.0
            earned.clear()
        answers.append(min(total, cap * reward))
    return answers


def play(env, potential, seed, length):
    """The steps of one episode, and what the potential answered; the first is what it answered at the start."""
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    phi, over = OneEnvironment(potential), False
    steps, answers = [], [phi.start(observation, info)]
    while not over and len(steps) < length:
        before, action = plain(observation), env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((before, plain(action), float(reward)))
        answers.append(phi.step(action, observation, float(reward), info))
        over = terminated or truncated
    return steps, answers


@pytest.fixture(scope="module")
def secret():
    """A real model of a real maze, small and quickly trained; it finds switches more often than not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    maze = {"triggers": 1, "size": 5}
    data = srl.collect("secret_rl/Triggers-v0", 600, env_options=maze, success_share=0.5, seed=0)
    options = {"units": 32, "steps": 250, "batch_size": 64, "evaluate_every": 125, "learning_rate": 3e-3}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        quick_fits(patch)
        fitted = Secret(**options, device="cpu").fit(data)
    torch.set_num_threads(threads)
    return fitted


@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=60)
@given(options=st.fixed_dictionaries(OPTIONS), seed=st.integers(0, 2**31))
def test_phi_is_the_credit_so_far_scaled_and_capped(world, options, seed):
    credit = HashedCredit()
    potential = OnlineCredit(credit, **options)
    for episode in range(2):  # nothing is left of the first in the second
        steps, (first, *answers) = play(WORLDS[world](), potential, seed + episode, 30)
        assert first == 0
        assert answers == expected(credit.of, steps, **options), "bit for bit"
        assert max(answers) <= options["cap"] * options["reward"] == potential.bound
    assert potential.reward_bound == options["reward"]


class Says:
    """Always the same credit."""

    def __init__(self, value):
        self.value = value

    def step_credit(self, observations, actions):
        return np.full(len(actions), self.value)


def begun(potential, observation=0):
    phi = OneEnvironment(potential)
    phi.start(observation, {})
    return phi


def test_what_never_repeats_is_paid_each_time_unless_a_view_drops_it():
    """A clock makes every pair a new one; without it, they repeat."""
    for view, answers in ((None, [0.25, 0.5, 0.75]), (DropView(("clock",), squeeze=True), [0.25] * 3)):
        phi = begun(OnlineCredit(Says(0.5), scale=0.5, observation=view), {"place": 3, "clock": 0})
        assert [phi.step(0, {"place": 3, "clock": t}, 0.0, {}) for t in (1, 2, 3)] == answers


shaping = {
    "seed": st.integers(0, 2**31),
    "n": st.integers(1, 4),
    "truncation": st.sampled_from(["keep", "zero"]),
    "masks": st.sets(st.integers(0, 40), max_size=2),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=8)
@given(options=st.fixed_dictionaries(OPTIONS), **shaping)
def test_side_by_side_is_one_by_one(world, mode, options, **terms):
    compare_wrappers(WORLDS[world], lambda: OnlineCredit(HashedCredit(), **options), mode, **terms)


@settings(max_examples=15)
@given(
    triggers_options(fixed=True),
    st.fixed_dictionaries({**OPTIONS, "reset_on_reward": st.just(False)}),
    st.sampled_from([1.0, 0.3, 0.77]),
    st.sampled_from(["keep", "zero"]),
    st.integers(0, 2**32),
)
def test_a_compiled_learner_learns_what_a_stepping_one_does(options, credit, scale, truncation, seed):
    potential = OnlineCredit(HashedCredit(), **credit)
    shaped = PotentialShaping(TriggersEnv(**vars(options)), potential, 0.97, scale=scale, truncation=truncation)
    learn_compiled(shaped, 10, seed=seed, discount=0.97, learning_rate=0.3)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_real_model_teaches_a_compiled_learner_what_it_teaches_a_stepping_one(secret, repeat):
    env = TriggersEnv(size=5, triggers=1, layout_seed=4)
    unshaped = QLearning(seed=1).learn(env, 60).curve
    for scale in (1.0, 0.3):
        shaped = PotentialShaping(env, OnlineCredit(secret, threshold=0.02, repeat=repeat), 0.99, scale=scale)
        assert not np.array_equal(learn_compiled(shaped, 60, seed=1).returns, unshaped.returns), "the shaping matters"


def test_other_spaces_are_refused_when_an_environment_is_wrapped(secret):
    potential = OnlineCredit(secret)
    PotentialShaping(TriggersEnv(size=9), potential, 0.99)  # another maze, the same view
    with pytest.raises(ValueError, match=r"fitted on observations of .*\[3, 3, 3\].* there are .*\[5, 5, 3\]"):
        PotentialShaping(TriggersEnv(window=5), potential, 0.99)
    with pytest.raises(ValueError, match="fitted on observations"):
        VectorPotentialShaping(TriggersVectorEnv(2, window=5), potential, 0.99)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PotentialShaping(TriggersEnv(), OnlineCredit(Secret(device="cpu")), 0.99)


def test_a_step_needs_an_episode():
    with pytest.raises(RuntimeError, match="a step came before any episode started"):
        OneEnvironment(OnlineCredit(Says(0.5))).step(0, 0, 0.0, {})


def test_new_pairs_are_scored_once_and_together(monkeypatch):
    """No step makes the model look at earlier ones; equal pairs are scored once, as long as there is room."""
    credit, envs = HashedCredit(), TriggersVectorEnv(50, size=4, triggers=2, layout_seed=3)
    envs = VectorPotentialShaping(envs, OnlineCredit(credit), 0.99)
    envs.reset(seed=0)
    for step in range(30):
        envs.step(np.full(50, step % 4))
        assert len(credit.asked) <= step + 1
    assert credit.asked[0] == 1, "all start alike in a fixed maze"
    monkeypatch.setattr(learned, "_REMEMBERED", 7)
    potential = OnlineCredit(credit, threshold=0, scale=0.01)
    steps, (_, *answers) = play(maze(), potential, 11, 40)
    assert answers == expected(credit.of, steps, 0.0, 0.01, 1.0) and len(potential._known._answers) <= 7


def unpaid(potential, steps):
    """Warnings that so many steps give."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        phi = begun(potential)
        for _ in range(steps):
            phi.step(0, 0, 0.0, {})
    return [str(w.message) for w in caught if w.category is CoverageWarning]


def test_a_potential_that_pays_nothing_warns_once():
    potential = OnlineCredit(Says(0.0625))
    assert unpaid(potential, 4_999) == []
    [message] = unpaid(potential, 1)
    assert message.startswith(
        "none of the first 5,000 steps earned anything, so nothing is shaped: the largest step credit is 0.0625, and "
        "what is not above the threshold of 0.1 is dropped"
    )
    assert unpaid(potential, 6_000) == unpaid(OnlineCredit(Says(0.5)), 6_000) == []
    shaped = PotentialShaping(maze(), OnlineCredit(Says(0.05)), 0.99)
    with pytest.warns(CoverageWarning, match=r"none of the [\d,]+ pairs of this task earns .* is 0\.05"):
        tabular_of(shaped)


def judged(verdict):
    return SimpleNamespace(step_credit=Says(0.5).step_credit, report=verdict and SimpleNamespace(verdict=verdict))


@pytest.mark.parametrize("verdict", ["not learned", "past not needed"])
def test_a_model_that_did_not_learn_credit_gives_a_warning(verdict):
    with pytest.warns(NotCreditWarning, match=f"verdict on this model is '{verdict}'.* read secret.report, fit again"):
        OnlineCredit(judged(verdict))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (judged("credit"), judged(None), Says(0.5)):
            OnlineCredit(fine)


class HashedTransitions(HashedCredit):
    """Credit that depends on what a step led to as well."""

    transitions = True

    def step_credit(self, observations, actions, next_observations):
        seen = map_arrays(lambda one, then: np.stack([one, then], 1), observations, next_observations)
        return super().step_credit(seen, actions)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_model_of_transitions_is_given_what_steps_led_to(repeat):
    potential = OnlineCredit(HashedTransitions(), threshold=0.3, scale=0.05, repeat=repeat)
    learn_compiled(PotentialShaping(maze(), potential, 0.97), 10, seed=1, discount=0.97, learning_rate=0.3)


# Credit that sees less than the agent: through a view


VIEWED = {"size": 4, "triggers": 2, "layout_seed": 3, "max_steps": 25}
CROP = gym.spaces.Box(0, 1, (3, 3, 3), np.uint8)


class CropCredit:
    """Credit of 3x3 crops, in sixteenths; refuses everything else."""

    def step_credit(self, observations, actions):
        assert observations.shape[1:] == (3, 3, 3) and observations.dtype == np.uint8
        marks = [zlib.crc32(o.tobytes() + bytes([a])) for o, a in zip(observations, actions, strict=True)]
        return np.array(marks) % 16 / 16

    def check_spaces(self, observation_space, action_space):
        if observation_space != CROP:
            raise ValueError(f"fitted on {CROP}, but there are {observation_space}")


def online(view=CenteredView(3), **options):  # noqa: B008  frozen
    return OnlineCredit(CropCredit(), observation=view, threshold=0, scale=0.05, **options)


def test_the_spaces_checked_are_those_of_the_view():
    PotentialShaping(TriggersEnv(window=None), online(), 0.9)
    with pytest.raises(ValueError, match=r"fitted on .*\(3, 3, 3\).* there are .*\(5, 5, 3\)"):
        PotentialShaping(TriggersEnv(window=None), online(CenteredView(5)), 0.9)


def test_a_compiled_learner_sees_through_a_view():
    wide = learn_compiled(PotentialShaping(TriggersEnv(**VIEWED, window=None), online(), 0.99), 40, seed=1)
    narrow = learn_compiled(PotentialShaping(TriggersEnv(**VIEWED), online(None), 0.99), 40, seed=1)
    np.testing.assert_array_equal(wide.lengths, narrow.lengths)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"threshold": 1}, ValueError, r"threshold must be in \[0, 1\), got 1"),
        ({"scale": 0}, ValueError, "scale must be a positive number, got 0"),
        ({"reward": -1}, ValueError, "reward must be a positive number, got -1"),
        ({"cap": 0}, ValueError, r"cap must be a share of the reward, in \(0, 1\], got 0"),
        ({"secret": "model.safetensors"}, TypeError, "expected a fitted Secret, or an object with step_credit"),
        ({"observation": CenteredView}, TypeError, "observation must be a view"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        OnlineCredit(**{"secret": Says(1.0), **options})
