"""Q-learning: it finds the best values, compiled and stepped are the same, and bad input is refused."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformAction
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.tasks import ModelEnv, Shaping, optimal_values, random_model, reachable

import secret_rl  # noqa: F401  registers the environments
from secret_rl.agents import QLearning, learn_many
from secret_rl.agents import tabular as compiled
from secret_rl.agents.q_learning import PlainRun
from secret_rl.agents.rule import act, fresh_row, options, stream_key
from secret_rl.agents.tabular import CompiledRun
from secret_rl.envs.tabular import TabularModel, best_return
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.envs.triggers.rules import WEYL, episode_key
from secret_rl.testing.strategies import triggers_options

ID = "secret_rl/Triggers-v0"


def in_info(observation, info):
    """The state that Triggers names; passing it makes the learner step the environment."""
    return info["state"]


def assert_same(one, other):
    np.testing.assert_array_equal(one.returns, other.returns)
    np.testing.assert_array_equal(one.lengths, other.lengths)


learners = st.builds(
    QLearning,
    learning_rate=st.floats(0.01, 1),
    epsilon=st.floats(0, 1),
    discount=st.floats(0.5, 1),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=25)
@given(triggers_options(fixed=True), learners)
def test_compiled_is_stepped(options, learner):
    env = TriggersEnv(**vars(options))
    assert_same(learner.learn(env, 12), learner.learn(env, 12, state=in_info))


@settings(max_examples=25)
@given(triggers_options(fixed=True), learners, st.floats(0, 2), st.booleans(), st.integers(0, 2**32), st.data())
def test_compiled_is_stepped_when_shaped(options, learner, cap, keep, seed, data):
    rng = np.random.default_rng(seed)
    potentials = rng.normal(size=options.num_states) * data.draw(st.sampled_from([0, 1]))
    earned = np.maximum(0, rng.normal(size=(options.num_states, 4, 3)) - 1) * data.draw(st.sampled_from([0, 1]))
    shaped = Shaping(
        TriggersEnv(**vars(options)),
        potential=lambda state: float(potentials[state]),
        earns=lambda state, action, time: float(earned[state, action, time % 3]),
        cap=cap,
        discount=learner.discount,
        keep=keep,
        scale=data.draw(st.sampled_from([1.0, 0.3])),
    )
    assert_same(learner.learn(shaped, 12), learner.learn(shaped, 12, state=in_info))


def test_a_real_run_is_the_same_and_learns():
    env = gym.make(ID, size=6, triggers=2, layout_seed=3)
    one, other = (QLearning(seed=4).learn(env, 800, state=state) for state in (None, in_info))
    assert_same(one, other)
    best = best_return(env.unwrapped.tabular(), 0.99)
    assert 0.9 * best < one.returns[-50:].mean() <= one.returns.max() == pytest.approx(best)
    assert one.returns[:50].mean() < 0.1
    assert (one.seed, one.learning_rate, one.epsilon, one.discount) == (4, 0.1, 0.1, 0.99)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 2**32))
def test_compiled_is_stepped_with_any_number_of_actions(task, actions, seed):
    model = random_model(task, actions=actions)
    numbers = seed, 0.3, 0.2, 0.9
    one, other = CompiledRun(model, *numbers), PlainRun(ModelEnv(model), None, *numbers)
    curves = [(np.empty(40), np.empty(40, np.int64)) for _ in range(2)]
    one.play(*curves[0])
    other.play(*curves[1])
    for mine, theirs in zip(*curves, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for state, values in other.values.items():
        np.testing.assert_array_equal(one.values[state], values)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(0, 2**32))
def test_values_converge_to_the_best_ones(task, actions, seed):
    """A time limit of a few steps does not show in them: the learner looks beyond it."""
    model = random_model(task, actions=actions, max_steps=7)
    run = CompiledRun(model, seed, 0.5, 1.0, 0.8)
    run.play(np.empty(20_000), np.empty(20_000, np.int64))
    met = within(model, 7)
    np.testing.assert_allclose(run.values[met], optimal_values(closed(model, met), 0.8)[met], atol=1e-6)


def within(model, steps):
    """States met before the time limit, from which the learner takes steps."""
    met = {model.start}
    for _ in range(steps - 1):
        met |= {int(s) for state in met for s in model.next_states[state][~model.terminated[state]]}
    return np.array(sorted(met))


def closed(model, met):
    """What is met at the time limit only is never left, so nothing is learned of it: its values stay 0."""
    beyond = ~np.isin(model.next_states, met)
    return model._replace(terminated=model.terminated | beyond)


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_shaping_moves_values_by_the_potential(task):
    model = random_model(task, max_steps=40)
    potential = np.random.default_rng(task).normal(size=len(model.next_states))
    run = CompiledRun(model._replace(potential=potential), 0, 0.5, 1.0, 0.8)
    run.play(np.empty(5000), np.empty(5000, np.int64))
    met = reachable(model)
    expected = optimal_values(model, 0.8) - potential[:, None]
    np.testing.assert_allclose(run.values[met], expected[met], atol=1e-6)


class Recording(gym.Wrapper):
    """Keeps the rewards of the environment inside it."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes = []

    def reset(self, **kwargs):
        self.episodes.append([])
        return self.env.reset(**kwargs)

    def step(self, action):
        outcome = self.env.step(action)
        self.episodes[-1].append(outcome[1])
        return outcome


def test_returns_are_unshaped_and_discounted():
    inner = Recording(TriggersEnv(size=3, triggers=1, prizes=2, layout_seed=1))
    shaped = Shaping(inner, lambda s: s % 7.0, lambda s, a, t: 0.5, 2.0, 0.9, True)
    curve = QLearning(discount=0.9, epsilon=0.5).learn(shaped, 60)
    assert len(inner.episodes) == 60
    expected = [sum(r * 0.9**t for t, r in enumerate(rewards)) for rewards in inner.episodes]
    np.testing.assert_allclose(curve.returns, expected, rtol=1e-12)
    np.testing.assert_array_equal(curve.lengths, [len(rewards) for rewards in inner.episodes])
    assert len(set(expected)) > 5


def test_same_seed_same_curve_other_seed_other_curve():
    for env in (gym.make(ID, layout_seed=0), gym.make("FrozenLake-v1")):
        one, again, other = (QLearning(seed=seed).learn(env, 30) for seed in (1, 1, 2))
        assert_same(one, again)
        assert not np.array_equal(one.lengths, other.lengths)


@pytest.mark.parametrize(
    ("name", "episodes", "before", "after"),
    [("FrozenLake-v1", 300, 0.1, 0.5), ("CliffWalking-v1", 200, -40, -20), ("Taxi-v4", 800, -60, -5)],
)
def test_learns_gymnasiums_own_tasks(name, episodes, before, after):
    env = gym.make(name, **({"is_slippery": False} if name == "FrozenLake-v1" else {}))
    curve = QLearning(learning_rate=0.5, seed=3).learn(env, episodes)
    # medians: on the cliff, exploring costs 100 now and then for ever
    assert np.median(curve.returns[:20]) < before < after < np.median(curve.returns[-50:])


def test_wrappers_that_change_the_task_are_heeded():
    env = gym.make(ID, layout_seed=0)
    assert QLearning().learn(TimeLimit(env, 7), 40).lengths.max() == 7
    mirrored = TransformAction(env, lambda action: action ^ 1, env.action_space)
    inverted = gym.make(ID, layout_seed=0, inverted=True)
    assert_same(QLearning().learn(mirrored, 40), QLearning().learn(inverted, 40))


def test_actions_need_not_start_at_zero():
    model = random_model(3)
    numbers = 5, 0.1, 0.1, 0.99
    curves = [(np.empty(50), np.empty(50, np.int64)) for _ in range(2)]
    PlainRun(ModelEnv(model, start_action=4), None, *numbers).play(*curves[0])
    CompiledRun(model, *numbers).play(*curves[1])
    np.testing.assert_array_equal(curves[0], curves[1])


def test_a_state_function_makes_states_of_anything():
    env = gym.make("CartPole-v1")
    curve = QLearning(seed=0).learn(env, 30, state=lambda observation, info: tuple(np.round(observation, 1).tolist()))
    assert (curve.lengths >= 1).all() and np.isfinite(curve.returns).all()


def test_what_was_learned_in_parts_is_what_is_learned_at_once(monkeypatch):
    env = gym.make(ID, size=5, triggers=1, layout_seed=3)
    whole = QLearning(seed=4).learn(env, 130)
    monkeypatch.setattr(compiled, "_STEPS_AT_A_TIME", 50 * 7)
    assert_same(QLearning(seed=4).learn(env, 130), whole)


def test_progress_is_shown_when_asked_for(capsys):
    env = gym.make(ID, size=3, triggers=0, layout_seed=3)
    QLearning().learn(env, 20)
    assert capsys.readouterr().err == ""
    for state in (None, in_info):
        QLearning().learn(env, 20, progress=True, state=state)
        assert "20/20 episodes" in capsys.readouterr().err


def test_very_long_episodes_need_no_memory():
    env = TriggersEnv(size=3, triggers=0, layout_seed=1, max_steps=10**9)
    assert (QLearning(discount=1).learn(env, 5).returns == 1).all()
    assert_same(QLearning().learn(env, 5), QLearning().learn(env, 5, state=in_info))


@pytest.mark.parametrize(("discount", "states"), [(0.99, 300), (0.5, 1200), (1, 50)])
def test_a_reward_is_discounted_however_late_it_comes(discount, states):
    """Even where the powers of the discount are too small for a number."""
    following = np.minimum(np.arange(1, states + 1), states - 1)[:, None]
    last = np.arange(states)[:, None] == states - 1
    model = TabularModel.of(following, last, last, start=0, max_steps=2000)
    curves = [(np.empty(3), np.empty(3, np.int64)) for _ in range(2)]
    CompiledRun(model, 0, 0.1, 0.1, discount).play(*curves[0])
    PlainRun(ModelEnv(model), None, 0, 0.1, 0.1, discount).play(*curves[1])
    np.testing.assert_array_equal(curves[0], curves[1])
    assert curves[0][0] == pytest.approx([discount ** (states - 1)] * 3)


@pytest.mark.parametrize("actions", [2, 3, 4, 7])
def test_choices_are_even_among_equal_values_and_when_exploring(actions):
    q = np.tile(fresh_row(actions), 3)
    width = len(q) // 3
    best = list(range(actions))[1:] if actions > 2 else [0, 1]
    q[width + np.array(best)] = 0.5
    steps = 20_000

    def shares(epsilon, row):
        told = options(actions, 0.1, epsilon, 0.9)
        chosen = [act(q, row, told, np.uint64(77), step) for step in range(steps)]
        return np.bincount(chosen, minlength=actions) / steps

    slack = 4 * np.sqrt(0.25 / steps)
    np.testing.assert_allclose(shares(0.0, 0), 1 / actions, atol=slack)
    np.testing.assert_allclose(shares(1.0, width), 1 / actions, atol=slack)
    greedy = np.isin(np.arange(actions), best) / len(best)
    np.testing.assert_allclose(shares(0.0, width), greedy, atol=slack * (greedy > 0).max())
    assert not shares(0.0, width)[greedy == 0].any()
    np.testing.assert_allclose(shares(0.3, width), 0.3 / actions + 0.7 * greedy, atol=slack)


def test_the_numbers_of_an_agent_are_not_those_of_the_mazes_of_the_same_seed():
    for seed in (0, 1, 2**64 - 1):
        maze = np.uint64(episode_key(np.uint64(seed), 0))
        assert stream_key(seed) not in [maze, *(maze + np.arange(1, 100, dtype=np.uint64) * np.uint64(WEYL))]
    assert len({int(stream_key(seed)) for seed in range(1000)}) == 1000


class Odd(gym.Env):
    """An environment with something missing."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, observation_space=None, infos=({},), reward=0.0, observation=0):
        self.observation_space = observation_space or gym.spaces.Box(0, 1, (2,))
        self.infos, self.reward, self.observation = infos, reward, observation

    def reset(self, *, seed=None, options=None):
        return self.observation, self.infos[0]

    def step(self, action):
        return self.observation, self.reward, False, False, self.infos[-1]


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (lambda: gym.make("Pendulum-v1"), TypeError, r"needs Discrete actions, but env has Box\(-2"),
        (lambda: "FrozenLake-v1", TypeError, r"one Gymnasium environment, got 'FrozenLake-v1': make it first"),
        (lambda: gym.make_vec(ID, 2), TypeError, "one Gymnasium environment"),
        (lambda: gym.make(ID), ValueError, "set layout_seed"),
        (lambda: Odd(infos=({"time": 1},)), ValueError, r"nothing tells states apart.* Box.* \['time'\].* pass state="),
        (lambda: Odd(infos=({"state": 1}, {"x": 2})), ValueError, r"at first, but now has \['x'\]"),
        (lambda: Odd(infos=({"state": np.zeros(2)},)), TypeError, "must be hashable, got ndarray: pass e.g. state="),
        (lambda: Odd(gym.spaces.Discrete(3), reward=float("nan")), ValueError, "reward nan at step 1"),
        (
            lambda: Shaping(TriggersEnv(layout_seed=0), lambda s: 0.0, lambda s, a, t: 0.0, 1, 0.9, True),
            ValueError,
            r"shaped with discount 0.9, but the agent's is 0.99: .* QLearning\(discount=0.9\)",
        ),
    ],
)
def test_environments_that_do_not_fit_are_refused(env, error, message):
    with pytest.raises(error, match=message):
        QLearning().learn(env(), 5)


def test_a_shaping_deeper_down_is_checked_too():
    shaped = Shaping(TriggersEnv(layout_seed=0), lambda s: 0.0, lambda s, a, t: 0.0, 1, 0.9, True)
    with pytest.raises(ValueError, match="shaped with discount 0.9"):
        QLearning().learn(TimeLimit(shaped, 5), 5)
    with pytest.raises(ValueError, match="model 1: the rewards are shaped with discount 0.9"):
        learn_many([TriggersEnv(layout_seed=0).tabular(), shaped.tabular()], [0], 5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"learning_rate": 0}, ValueError, r"learning_rate must lie in \(0, 1\], got 0"),
        ({"learning_rate": 1.5}, ValueError, r"learning_rate must lie in \(0, 1\], got 1.5"),
        ({"epsilon": -0.1}, ValueError, r"epsilon must lie in \[0, 1\], got -0.1"),
        ({"epsilon": 1.1}, ValueError, "epsilon"),
        ({"epsilon": "0.1"}, TypeError, "epsilon must be a number"),
        ({"discount": 0}, ValueError, r"discount must lie in \(0, 1\], got 0"),
        ({"discount": float("nan")}, ValueError, "discount"),
        ({"discount": True}, TypeError, "discount must be a number"),
        ({"seed": -1}, ValueError, "seed must be an integer from 0"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed must be an integer"),
    ],
)
def test_options_out_of_range_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        QLearning(**changes)
    numbers = {"learning_rate": 0.1, "epsilon": 0.1, "discount": 0.99, **changes}
    with pytest.raises(error, match=message):
        learn_many([random_model(0)], [numbers.pop("seed", 0)], 5, **numbers)


@pytest.mark.parametrize(
    ("episodes", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_numbers_of_episodes_that_make_no_sense_are_refused(episodes, error):
    with pytest.raises(error, match=f"episodes must be an integer of at least 1, got {episodes}"):
        QLearning().learn(gym.make(ID, layout_seed=0), episodes)
    with pytest.raises(error, match="episodes"):
        learn_many([random_model(0)], [0], episodes)
