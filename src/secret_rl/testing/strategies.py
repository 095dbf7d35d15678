"""Hypothesis strategies for options, spaces and trajectories."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from secret_rl.envs.triggers import TriggersOptions
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import stack


@st.composite
def triggers_options(draw: st.DrawFn, fixed: bool | None = None) -> TriggersOptions:
    """Mazes small enough that a few dozen steps meet everything in them."""
    size = draw(st.integers(2, 9))
    triggers = draw(st.integers(0, min(4, size**2 - 2)))
    prizes = draw(st.integers(1, min(3, size**2 - 1 - triggers)))
    with_layout = draw(st.booleans()) if fixed is None else fixed
    return TriggersOptions(
        size=size,
        triggers=triggers,
        prizes=prizes,
        window=draw(st.sampled_from([None, 1, 3, 5, 7])),
        inverted=draw(st.booleans()),
        layout_seed=draw(st.integers(0, 2**64 - 1)) if with_layout else None,
        max_steps=draw(st.integers(1, 60)),
    )


_leaves = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.builds(
        lambda shape, dtype: spaces.Box(-10, 10, shape, dtype),
        st.lists(st.integers(1, 4), max_size=2).map(tuple),
        st.sampled_from([np.float32, np.float64]),
    ),
    st.builds(lambda n: spaces.Box(0, 255, (n, n, 3), np.uint8), st.integers(1, 4)),
    st.builds(lambda n: spaces.MultiDiscrete(n), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)


def any_space() -> st.SearchStrategy[gym.Space[Any]]:
    """Every kind of space that trajectories support, nested ones included."""
    keys = st.text("abcdef_.% ", min_size=1, max_size=4)
    return st.recursive(
        _leaves,
        lambda inner: st.one_of(
            st.dictionaries(keys, inner, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        ),
        max_leaves=4,
    )


@st.composite
def trajectories(
    draw: st.DrawFn,
    observation_space: st.SearchStrategy[gym.Space[Any]] | None = None,
    action_space: st.SearchStrategy[gym.Space[Any]] | None = None,
    max_episodes: int = 5,
    max_length: int = 6,
) -> Trajectories:
    """Random trajectories over any spaces, with and without the optional fields."""
    seen = draw(observation_space or any_space())
    done = draw(action_space or any_space())
    lengths = draw(st.lists(st.integers(1, max_length), min_size=1, max_size=max_episodes))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    seen.seed(int(rng.integers(2**32)))  # streams of their own: actions must not follow observations
    done.seed(int(rng.integers(2**32)))
    with_states, with_annotations, with_finals = (draw(st.booleans()) for _ in range(3))
    episodes = []
    for length in lengths:
        end = int(rng.integers(3))
        rows = length + with_finals
        episodes.append(
            {
                "observations": stack(seen, [seen.sample() for _ in range(rows)]),
                "actions": stack(done, [done.sample() for _ in range(length)]),
                "rewards": rng.normal(size=length).round(1),
                "terminated": end == 0,
                "truncated": end == 1,
                "states": rng.integers(0, 99, rows) if with_states else None,
                "annotations": {"event": rng.random(length) < 0.5} if with_annotations else {},
                "episode_annotations": {"seed": rng.integers(2**32)} if with_annotations else {},
            }
        )
    return Trajectories.from_episodes(episodes, observation_space=seen, action_space=done, meta={"seed": seed})
