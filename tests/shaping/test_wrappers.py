"""The wrapper of single environments: what it adds, what it leaves alone, and what it refuses."""

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.playing import STATES, learn_compiled, phi_along

import secret_rl  # noqa: F401
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import (
    GridKey,
    ObservationKey,
    PotentialRangeWarning,
    PotentialShaping,
    TablePotential,
)
from secret_rl.testing.shaping import EveryEnding, Everything
from secret_rl.testing.strategies import triggers_options

ID = "secret_rl/Triggers-v0"
TRIGGERS = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9}
SHAPED = {"env_reward", "shaping_reward"}


def triggers_table(seed=0, states=36):
    return TablePotential(dict(enumerate(np.random.default_rng(seed).normal(size=states).tolist())))


def play(env, seed, actions):
    """One episode: (observation, info) of the reset, then what each step gave, up to the end or the last action."""
    steps = [env.reset(seed=seed)]
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


WORLDS = {
    "triggers": (lambda: TriggersEnv(**TRIGGERS), triggers_table()),
    "slippery lake": (
        lambda: gym.make("FrozenLake-v1"),
        TablePotential({state: state / 3 for state in range(16)}, state=ObservationKey()),
    ),
    "lake with a time limit": (
        lambda: gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=4),
        TablePotential({state: -state for state in range(16)}, state=ObservationKey()),
    ),
    "every ending": (EveryEnding, TablePotential(STATES)),
}
every_world = pytest.mark.parametrize(("make", "table"), WORLDS.values(), ids=list(WORLDS))


@every_world
@given(
    data=st.data(),
    seed=st.integers(0, 2**31),
    discount=st.floats(0.01, 1.0),
    scale=st.floats(0, 3),
    truncation=st.sampled_from(["keep", "zero"]),
    history=st.booleans(),
)
def test_discounted_shaping_telescopes(make, table, data, seed, discount, scale, truncation, history):
    """The discounted sum of shaping is discount^T Phi(last) - Phi(first), whatever happened in between."""
    env, potential = make(), Everything(()) if history else table
    actions = data.draw(st.lists(st.integers(0, env.action_space.n - 1), min_size=1, max_size=25))
    start, *steps = play(env, seed, actions)
    observations, rewards = [start[0], *(step[0] for step in steps)], [step[1] for step in steps]
    phi = phi_along(potential, observations, actions[: len(steps)], rewards, [start[1], *(step[4] for step in steps)])
    terminated, truncated = steps[-1][2:4]
    last = 0.0 if terminated or (truncated and truncation == "zero") else phi[-1]
    shaped = PotentialShaping(make(), potential, discount, scale=scale, truncation=truncation)
    _, *lived = play(shaped, seed, actions)
    paid = sum(discount**t * step[4]["shaping_reward"] for t, step in enumerate(lived))
    assert paid == pytest.approx(scale * (discount ** len(steps) * last - phi[0]), abs=1e-9)


@every_world
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_nothing_but_the_reward_changes(make, table, data, seed):
    env, shaped = make(), PotentialShaping(make(), table, 0.9)
    assert shaped.observation_space == env.observation_space and shaped.action_space == env.action_space
    for _ in range(2):  # episodes
        actions = data.draw(st.lists(st.integers(0, env.action_space.n - 1), min_size=1, max_size=12))
        plain, lived = play(env, seed, actions), play(shaped, seed, actions)
        assert len(plain) == len(lived)
        assert repr(plain[0]) == repr(lived[0])
        for (observation, reward, *ends, info), (seen, paid, *ended, more) in zip(plain[1:], lived[1:], strict=True):
            assert repr(observation) == repr(seen)
            assert ends == ended
            assert {key: value for key, value in more.items() if key not in SHAPED} == info
            assert more["env_reward"] == reward and paid == more["env_reward"] + more["shaping_reward"]
            assert all(type(number) is float for number in (paid, more["env_reward"], more["shaping_reward"]))


def test_an_info_that_the_environment_keeps_is_left_alone():
    class Keeps(EveryEnding):
        info: dict[str, Any] = {}  # noqa: RUF012  the same one always, on purpose

        def _seen(self):
            observation, info = super()._seen()
            self.info.update(info)
            return observation, self.info

    env = PotentialShaping(Keeps(), Everything(), 0.9)
    env.reset(seed=1)
    for _ in range(5):
        _, reward, _, _, info = env.step(0)
        assert reward == info["env_reward"] + info["shaping_reward"]
    assert not SHAPED & Keeps.info.keys()


@every_world
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_gymnasium_finds_no_fault(make, table, history):
    check_env(PotentialShaping(make(), Everything() if history else table, 0.9), skip_render_check=True)


def test_a_spec_makes_the_same_environment_again(tmp_path):
    def shaped(potential):
        return PotentialShaping(gym.make(ID, **TRIGGERS), potential, discount=0.9, scale=0.5, truncation="zero")

    def rewards(env):
        return [step[1] for step in play(env, 5, [0, 1, 2, 3, 0, 0, 1, 1, 2])[1:]]

    env = shaped(triggers_table())
    assert rewards(gym.make(env.spec)) == rewards(env)
    path = triggers_table().save(tmp_path / "table.json")
    for given_as in (path, str(path)):
        text = shaped(given_as).spec.to_json()
        assert json.loads(text)["additional_wrappers"][-1]["kwargs"]["potential"] == str(path)
        assert rewards(gym.make(EnvSpec.from_json(text))) == rewards(env)


def test_shapings_add_up():
    inner, outer = triggers_table(1), triggers_table(2)
    both = TablePotential({state: inner.values[state] + outer.values[state] for state in range(36)})
    stacked = PotentialShaping(PotentialShaping(TriggersEnv(**TRIGGERS), inner, 0.9), outer, 0.9)
    single = PotentialShaping(TriggersEnv(**TRIGGERS), both, 0.9)
    actions = [0, 3, 1, 2, 0, 0, 1, 1, 2]
    for one, other in zip(play(stacked, 0, actions)[1:], play(single, 0, actions)[1:], strict=True):
        assert one[1] == pytest.approx(other[1])
        assert one[4]["shaping_reward"] == pytest.approx(other[4]["shaping_reward"])
        assert one[4]["env_reward"] == other[4]["env_reward"]
    with pytest.raises(ValueError, match=r"discount 0.9, and discount 0.8"):
        PotentialShaping(PotentialShaping(TriggersEnv(**TRIGGERS), inner, 0.9), outer, 0.8)


@settings(max_examples=20)
@given(triggers_options(fixed=True), st.floats(0, 2), st.sampled_from(["keep", "zero"]), st.integers(0, 2**31))
def test_compiled_and_stepping_learners_are_shaped_alike(options, scale, truncation, seed):
    table = triggers_table(states=options.num_states // 2)
    env = PotentialShaping(TriggersEnv(**vars(options)), table, 0.9, scale=scale, truncation=truncation)
    learn_compiled(env, 10, seed=seed, discount=0.9)


@given(st.floats(1e-6, 1e6), st.floats(0, 1e6))
def test_a_fitting_scale_keeps_the_potential_under_the_reward(value, reward_bound):
    potential = TablePotential({0: value, 1: -value / 2}, reward_bound=reward_bound)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PotentialRangeWarning)
        env = PotentialShaping(TriggersEnv(**TRIGGERS), potential, 0.9, scale="fit")
        assert env.shaping_scale * value <= reward_bound
        assert env.shaping_scale == pytest.approx(min(1.0, reward_bound / value))
        PotentialShaping(TriggersEnv(**TRIGGERS), potential, 0.9, scale=env.shaping_scale)


def test_a_potential_above_the_reward_warns():
    potential = TablePotential({0: -1.5, 1: 0.3}, reward_bound=1.0)
    with pytest.warns(PotentialRangeWarning, match=r'reaches 1.5, above the 1 .*scale="fit"') as caught:
        PotentialShaping(TriggersEnv(**TRIGGERS), potential, 0.9)
    assert Path(caught[0].filename) == Path(__file__), "it points at the line that wraps"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PotentialShaping(TriggersEnv(**TRIGGERS), potential, 0.9, scale=0.6)
        PotentialShaping(TriggersEnv(**TRIGGERS), TablePotential({0: 9.0}), 0.9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"discount": 0}, ValueError, r"discount must be the agent's own, in \(0, 1\], got 0"),
        ({"discount": "0.9"}, ValueError, r"got '0.9'"),
        ({"scale": -1}, ValueError, r"scale must be a number of at least 0"),
        ({"scale": "auto"}, ValueError, r"scale must be a number of at least 0, or \"fit\", got 'auto'"),
        ({"scale": "fit"}, ValueError, r"reward_bound="),
        ({"scale": "fit", "potential": lambda observation, info: 1.0}, ValueError, r"give scale a number"),
        ({"truncation": True}, ValueError, r'truncation must be "keep" .* got True'),
        ({"potential": {3: 0.5}}, TypeError, r"\{3: 0.5\} is not a potential: expected an object with init and step"),
        ({"potential": "no/such/table.json"}, FileNotFoundError, r"no/such/table.json is not a file"),
        ({"potential": TablePotential({(0,): 1}, state=GridKey((1, 2)))}, ValueError, r"2 cell sizes for 27 numbers"),
        (
            {"potential": TablePotential({(0,): 1}, state=GridKey(1, ("a",)))},
            ValueError,
            r"keys= are the entries to take of a Dict",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    given_arguments = {"potential": TablePotential({0: 1.0}), "discount": 0.9, **arguments}
    with pytest.raises(error, match=message):
        PotentialShaping(TriggersEnv(**TRIGGERS), **given_arguments)
