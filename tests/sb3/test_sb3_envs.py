"""Vector environments as a VecEnv: what DummyVecEnv over the same single environments gives, to the bit."""

import warnings
from copy import deepcopy
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor
from tests.sb3.deep_tasks import TRIGGERS, assert_same_nest
from tests.shaping.playing import PLACES

from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.sb3 import GymnasiumVecEnv, PotentialShapingVecEnv, sb3_envs
from secret_rl.shaping import OnlineCredit, PotentialShaping, TablePotential, VectorPotentialShaping
from secret_rl.testing.shaping import EveryEnding, Everything
from secret_rl.testing.strategies import triggers_options

MAZE = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9}
SAME = AutoresetMode.SAME_STEP
TABLE = TablePotential(dict(enumerate(np.random.default_rng(0).normal(size=36).tolist())))


class Varied(gym.Env):
    """Infos of every kind, some of them now and then: numbers of NumPy's, arrays, texts, dicts."""

    observation_space = gym.spaces.Tuple((gym.spaces.Discrete(5), gym.spaces.Box(-9, 9, (2,), np.float32)))
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._options = options
        return self._seen()

    def step(self, action):
        terminated, truncated = (self.np_random.random(2) < 0.2).tolist()
        observation, info = self._seen()
        return observation, float(action.sum()), terminated, truncated, info

    def _seen(self):
        draw = self.np_random.random
        info = {"word": "a" if draw() < 0.5 else "b", "always": True}
        options = {
            "single": np.float32(draw()),
            "array": self.np_random.normal(size=3),
            "dict": {"inner": float(draw()), **({"rare": 3} if draw() < 0.5 else {})},
            "count": int(self.np_random.integers(9)),
        }
        info |= {name: value for name, value in options.items() if draw() < 0.6}
        return (int(self.np_random.integers(5)), self.np_random.normal(size=2).astype(np.float32)), info


WORLDS = {
    "maze": lambda: TriggersEnv(**MAZE),
    "whole maze": lambda: TriggersEnv(**{**MAZE, "window": None, "layout_seed": None, "inverted": True}),
    "dict": EveryEnding,
    "varied": Varied,
}


def some_actions(envs):
    return np.array([envs.action_space.sample() for _ in range(envs.num_envs)])


def play(ours, theirs, steps, seed=7, **tolerance):
    """Both side by side; how many episodes ended, and how many of them were cut short."""
    for env in (ours, theirs):
        assert env.seed(seed) == [seed + i for i in range(env.num_envs)]
    assert_same_nest(ours.reset(), theirs.reset(), "reset")
    assert_same_nest(ours.reset_infos, theirs.reset_infos, "reset infos")
    ours.action_space.seed(0)
    ended = truncated = 0
    for step in range(steps):
        actions = some_actions(ours)
        mine, other = ours.step(actions), theirs.step(actions)
        for info in mine[3] + other[3]:
            info.pop("episode", None)  # of a monitor
        assert_same_nest(mine, other, f"step {step}", **tolerance)
        assert_same_nest(ours.unwrapped.reset_infos, theirs.unwrapped.reset_infos, f"reset infos {step}")
        ended += int(mine[2].sum())
        truncated += sum(info["TimeLimit.truncated"] for info in mine[3])
    return ended, truncated


@settings(max_examples=20)
@given(options=triggers_options(), n=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_compiled_mazes_are_single_ones_side_by_side(options, n, seed):
    ours = GymnasiumVecEnv(TriggersVectorEnv(n, **vars(options), autoreset_mode=SAME))
    play(ours, DummyVecEnv([lambda: TriggersEnv(**vars(options))] * n), 30, seed)


VECTORS = {
    "copied": lambda make: SyncVectorEnv([make] * 5, copy=True, autoreset_mode=SAME),
    "not copied": lambda make: SyncVectorEnv([make] * 5, copy=False, autoreset_mode=SAME),
}


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("world", WORLDS)
def test_any_vector_environment_goes_through(world, vector):
    ours, theirs = GymnasiumVecEnv(VECTORS[vector](WORLDS[world])), DummyVecEnv([WORLDS[world]] * 5)
    ended, truncated = play(ours, theirs, 200)
    assert ended - truncated > 20 and truncated > 20
    before = ours.step(some_actions(ours))[0]
    kept = deepcopy(before)
    ours.step(some_actions(ours))
    assert_same_nest(before, kept, "an observation stays as it was given")
    play(ours, theirs, 20, seed=8)


def test_environments_in_other_processes():
    ours = GymnasiumVecEnv(AsyncVectorEnv([WORLDS["maze"]] * 2, autoreset_mode=SAME))
    try:
        assert play(ours, DummyVecEnv([WORLDS["maze"]] * 2), 30)[0] > 0
        assert [options.size for options in ours.get_attr("options")] == [3, 3]
        ours.set_attr("render_mode", "rgb_array")
        assert ours.get_attr("render_mode", 1) == ["rgb_array"]
        assert [picture.ndim for picture in ours.env_method("render", indices=[1])] == [3]
        assert ours.env_is_wrapped(Monitor) == [False, False]
    finally:
        ours.close()


def test_seeds_and_options_count_once():
    envs = SyncVectorEnv([Varied] * 2, autoreset_mode=SAME)
    ours, seen = GymnasiumVecEnv(envs), []
    for options in ({"level": 2}, None, {"level": 2}):
        if options:
            ours.seed(3)
            ours.set_options(options)
        seen.append(ours.reset())
        assert [env._options for env in envs.envs] == [options] * 2
    assert_same_nest(seen[0], seen[2])
    assert not np.array_equal(seen[0][1], seen[1][1])
    ours.set_options([{"level": 2}, {"level": 3}])
    with pytest.raises(ValueError, match="the same options for all, got .*'level': 3"):
        ours.reset()


def compiled(n):
    return TriggersVectorEnv(n, **MAZE, autoreset_mode=SAME)


SHAPED = {
    "inside": lambda terms: GymnasiumVecEnv(VectorPotentialShaping(compiled(4), **terms)),
    "outside": lambda terms: PotentialShapingVecEnv(GymnasiumVecEnv(compiled(4)), **terms),
    "outside, monitored": lambda terms: PotentialShapingVecEnv(VecMonitor(GymnasiumVecEnv(compiled(4))), **terms),
}


def step_credit(observations, actions):
    """Credit of any pair, in sixteenths."""
    return (observations.reshape(len(observations), -1).sum(1) + actions) % 16 / 16


POTENTIALS = {
    "table": lambda: TABLE,
    "credit": lambda: OnlineCredit(SimpleNamespace(step_credit=step_credit)),
    "history": lambda: Everything(("state", "trigger_activated")),
}


@pytest.mark.parametrize("truncation", ["keep", "zero"])
@pytest.mark.parametrize("potential", POTENTIALS)
@pytest.mark.parametrize("composition", SHAPED)
def test_shaped_inside_or_outside_as_single_ones_are(composition, potential, truncation):
    terms = {"potential": POTENTIALS[potential](), "discount": 0.9, "scale": 0.5, "truncation": truncation}
    ours = SHAPED[composition](terms)
    # Mazes pay -1, 0 and 1, which 32 bits hold: what is added to them is the same to the bit.
    assert play(ours, DummyVecEnv([lambda: PotentialShaping(TriggersEnv(**MAZE), **terms)] * 4), 150)[0] > 30
    assert VecMonitor(ours).get_attr("shaping_discount") == [0.9] * 4
    assert ours.has_attr("shaping_discount") and not ours.has_attr("shaping_nonsense")


def test_shapings_stack_in_any_order():
    """Up to the 32 bits through which rewards go before they are shaped, or after."""

    def inner():
        return PotentialShaping(EveryEnding(), PLACES, 0.9)

    history = Everything(("state", "luck"))
    ours = PotentialShapingVecEnv(DummyVecEnv([inner] * 3), history, 0.9)
    theirs = DummyVecEnv([lambda: PotentialShaping(inner(), history, 0.9)] * 3)
    ended, truncated = play(ours, theirs, 80, rtol=1e-5, atol=1e-6)
    assert ended > truncated > 0


def test_stacked_frames_are_seen_whole_at_the_end():
    """The last observation of an episode is the one the wrapper inside gives, not the bare environment's."""

    class Shapes(Everything):
        def step(self, carry, batch):
            shapes.add(batch.observations.shape)
            return super().step(carry, batch)

    shapes = set()
    env = PotentialShapingVecEnv(VecFrameStack(DummyVecEnv([WORLDS["maze"]]), 2), Shapes(), 0.9)
    env.reset()
    for _ in range(20):
        env.step(np.array([0]))
    assert shapes == {(1, 3, 3, 6)}


class Noted(VectorWrapper):
    level = 3

    def levels(self):
        return [7, 8, 9]


def test_attributes_are_those_of_each_environment_or_of_what_is_around_all():
    one = GymnasiumVecEnv(TriggersVectorEnv(3, **MAZE, autoreset_mode=SAME, render_mode="rgb_array"))
    envs = Noted(
        SyncVectorEnv([lambda: Monitor(TriggersEnv(**MAZE, render_mode="rgb_array"))] * 3, autoreset_mode=SAME)
    )
    each = GymnasiumVecEnv(envs)
    for env, monitored in ((one, False), (each, True)):
        assert [found.size for found in env.get_attr("options", [0, 2])] == [3, 3]
        assert env.get_attr("action_space", 1) == [gym.spaces.Discrete(4)] and env.render_mode == "rgb_array"
        assert env.env_is_wrapped(Monitor, [1]) == [monitored] and not env.has_attr("nonsense")
        env.set_attr("note", 5)
        assert env.get_attr("note", [0, 2]) == [5, 5]
        with pytest.raises(ValueError, match="note can be set for all 3 environments only"):
            env.set_attr("note", 6, indices=1)
        env.seed(0)
        env.reset()
    assert len({id(rng) for rng in each.get_attr("np_random")}) == 3, "each has its own"
    assert each.env_method("has_wrapper_attr", "options") == [True] * 3
    assert each.get_attr("level") == [3, 3, 3] and each.env_method("levels", indices=[2]) == [9]
    each.set_attr("level", 4)
    assert envs.level == 4
    np.testing.assert_array_equal(one.render(), each.render())
    one.close()
    assert one.envs.closed


def test_what_does_not_reset_within_the_step_is_refused():
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        for envs in (TriggersVectorEnv(2, autoreset_mode=mode), SyncVectorEnv([TriggersEnv], autoreset_mode=mode)):
            with pytest.raises(ValueError, match=rf'autoreset_mode {mode.name}.*autoreset_mode="SameStep"'):
                GymnasiumVecEnv(envs)
    with pytest.raises(TypeError, match="expected a gymnasium.vector.VectorEnv, got TriggersEnv"):
        GymnasiumVecEnv(TriggersEnv())


def test_the_vector_form_is_used_where_there_is_one():
    ours = sb3_envs(TRIGGERS, 3, seed=5, env_options=MAZE)
    theirs = sb3_envs(lambda: TriggersEnv(**MAZE), 3, seed=5)
    assert isinstance(ours.envs.unwrapped, TriggersVectorEnv) and isinstance(theirs, DummyVecEnv)
    assert_same_nest(ours.reset(), theirs.reset())
    assert ours.action_space.sample() == theirs.action_space.sample()
    for env, options in [
        ("CartPole-v1", {}),  # its vector form resets with the next step only
        (TRIGGERS, {"render_mode": "ansi"}),  # what the vector form cannot do
        (TRIGGERS, {"max_episode_steps": 5}),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = sb3_envs(env, 2, seed=0, env_options=options)
        assert isinstance(made, DummyVecEnv), (env, options)
    made.reset()
    assert [made.step(np.zeros(2, np.int64))[2].all() for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("env", "n", "options", "error", "message"),
    [
        (TRIGGERS, 0, {}, ValueError, "n must be an integer of at least 1, got 0"),
        (TriggersEnv, 2, {"size": 3}, ValueError, "env_options {'size': 3} need an environment id"),
        (5, 2, {}, TypeError, "env must be an id, a function that makes an environment, or environments, got 5"),
        (TRIGGERS, 2, {"size": 0}, ValueError, "size"),
        ("Nonsense-v0", 2, {}, gym.error.Error, "Nonsense"),
    ],
)
def test_bad_input_is_named(env, n, options, error, message):
    with pytest.raises(error, match=message):
        sb3_envs(env, n, env_options=options)
