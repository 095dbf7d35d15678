"""The compiled rules are the paper's rules: they agree with the plain Python reference on everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.envs.triggers.triggers_reference import ReferenceTriggers

from secret_rl.envs.triggers import TriggersEnv, TriggersOptions
from secret_rl.testing.strategies import triggers_options


def reference_of(env: TriggersEnv) -> ReferenceTriggers:
    maze, options = env.contents, env.options
    objects = list(maze.triggers), list(maze.prizes)
    return ReferenceTriggers(
        maze.size, maze.agent, *objects, options.window, options.inverted, max_steps=options.time_limit
    )


@given(triggers_options(), st.integers(0, 2**70), st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_every_step_agrees_with_the_reference(options, seed, actions):
    env = TriggersEnv(**vars(options))
    observation, info = env.reset(seed=seed)
    reference = reference_of(env)
    np.testing.assert_array_equal(observation, reference.observe())
    assert info == {"state": reference.state(), "trigger_activated": False}
    for action in actions:
        observation, *outcome, info = env.step(action)
        reward, activated, terminated, truncated = reference.step(action)
        assert outcome == [reward, terminated, truncated]
        assert info == {"state": reference.state(), "trigger_activated": activated}
        np.testing.assert_array_equal(observation, reference.observe())
        if terminated or truncated:
            break
    assert env.contents.agent == reference.agent


def test_mazes_are_uniform_over_cells_and_independent_between_objects():
    env = TriggersEnv(size=4, triggers=1, prizes=1)
    env.reset(seed=0)
    mazes = []
    for _ in range(16_000):
        maze = env.contents
        mazes.append([4 * row + column for row, column in (maze.agent, *maze.triggers, *maze.prizes)])
        env.reset()
    cells = np.array(mazes)
    for i in range(3):
        counts = np.bincount(cells[:, i], minlength=16)
        assert ((counts - 1000) ** 2 / 1000).sum() < 37.7  # chi-square, 15 degrees of freedom, p = 0.001
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pairs = np.bincount(cells[:, i] * 16 + cells[:, j], minlength=256).reshape(16, 16)
        assert (np.diag(pairs) == 0).all()
        expected = 16_000 / 240
        assert ((pairs[~np.eye(16, dtype=bool)] - expected) ** 2 / expected).sum() < 313  # 239 degrees, p = 0.001


def test_a_layout_seed_fixes_the_maze_start_cell_included():
    fixed, other, free = TriggersEnv(layout_seed=7), TriggersEnv(layout_seed=8), TriggersEnv()
    first = fixed.reset(seed=0)[1]
    maze = fixed.contents
    for seed in (1, 2, None):
        assert fixed.reset(seed=seed)[1] == first
        assert fixed.contents == maze
    other.reset()
    free.reset(seed=7)
    assert other.contents != maze
    assert free.contents != maze, "a layout seed names other mazes than an episode seed"


def test_time_limits_are_the_papers():
    assert [TriggersOptions(size=size).time_limit for size in (4, 8, 9, 12)] == [50, 50, 100, 100]
    assert TriggersOptions(max_steps=17).time_limit == 17


def test_the_reference_plays_a_hand_worked_episode():
    """A 3x3 maze in which every rule shows: boundary, switch, both signs, disappearance, termination."""
    reference = ReferenceTriggers(size=3, agent=(0, 0), triggers=[(0, 1)], prizes=[(1, 0), (2, 2)])
    nothing = (0.0, False, False, False)
    assert reference.step(0) == nothing  # into the boundary: stays, counts
    assert (reference.agent, reference.steps) == ((0, 0), 1)
    assert reference.step(1) == (-1.0, False, False, False)  # a prize before the switch
    assert reference.step(0) == nothing
    assert reference.step(3) == (0.0, True, False, False)  # the switch
    assert [reference.step(action) for action in (2, 1, 1, 3)] == [nothing] * 4  # that prize is gone
    assert reference.step(3) == (1.0, False, True, False)  # the last prize, after the switch


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 2, "triggers": 3, "prizes": 1}, ValueError, "need 5 cells, but a 2x2 grid has 4"),
        ({"window": 4}, ValueError, "window must be odd.*got 4: use 3 or 5"),
        ({"size": 0}, ValueError, "size must be an integer from 1 to 256, got 0"),
        ({"max_steps": 0}, ValueError, "max_steps must be an integer of at least 1, got 0"),
        ({"layout_seed": -1}, ValueError, "layout_seed must be an integer from 0"),
        ({"size": 16, "triggers": 50}, ValueError, "51 objects, but at most 40"),
        ({"render_mode": "film"}, ValueError, "render_mode must be one of .* got 'film'"),
        ({"inverted": 1}, TypeError, "inverted"),
    ],
)
def test_invalid_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        TriggersEnv(**options)


def test_the_largest_maze_has_distinct_states_for_every_combination():
    env = TriggersEnv(size=256, triggers=39, prizes=1, max_steps=5)
    _, info = env.reset(seed=0)
    assert info["state"] == reference_of(env).state() < env.options.num_states < 2**63
