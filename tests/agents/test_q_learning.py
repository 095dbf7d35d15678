"""Q-learning: it finds the best values, compiled and stepped are the same, and bad input is refused."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformAction
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.tasks import ModelEnv, met_within, optimal_values, random_model

import secret_rl  # noqa: F401  registers the environments
from secret_rl.agents import QLearning, q_learning
from secret_rl.envs.tabular import TabularModel, best_return, tabular_of
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import NoPotential, PotentialShaping, TablePotential
from secret_rl.testing.strategies import triggers_options

ID = "secret_rl/Triggers-v0"


def in_info(observation, info):
    """The state that Triggers names; passing it makes the learner step the environment."""
    return info["state"]


def assert_same(one, other):
    """Curves, and values of every state that both met, to the bit."""
    np.testing.assert_array_equal(one.curve.returns, other.curve.returns)
    np.testing.assert_array_equal(one.curve.lengths, other.curve.lengths)
    for state, values in other.q.items():
        np.testing.assert_array_equal(one.q[state], values)


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
    """Shaped, too: tests/shaping."""
    env = TriggersEnv(**vars(options))
    assert tabular_of(env) is not None
    assert_same(learner.learn(env, 12), learner.learn(env, 12, state=in_info))


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 2**32), st.integers(0, 5))
def test_compiled_is_stepped_with_any_number_of_actions(task, actions, seed, start_action):
    model = random_model(task, actions=actions)
    learner = QLearning(seed=seed, learning_rate=0.3, epsilon=0.2, discount=0.9)
    compiled, stepped = (learner.learn(ModelEnv(model, start_action, arrays), 40) for arrays in (True, False))
    assert len(compiled.q) == len(model.states)
    assert_same(compiled, stepped)
    assert start_action <= compiled.act(0, {"state": 0}) < start_action + actions


def test_a_real_run_is_the_same_learns_and_acts():
    env = gym.make(ID, size=6, triggers=2, layout_seed=3)
    one, other = (QLearning(seed=4).learn(env, 800, state=state) for state in (None, in_info))
    assert_same(one, other)
    best = best_return(env.unwrapped.tabular(), 0.99)
    assert 0.9 * best < one.curve.returns[-50:].mean() <= one.curve.returns.max() == pytest.approx(best)
    assert one.curve.returns[:50].mean() < 0.1
    assert (one.curve.seed, one.curve.learning_rate, one.curve.epsilon, one.curve.discount) == (4, 0.1, 0.1, 0.99)
    for agent in (one, other):
        observation, info = env.reset()
        total, steps, over = 0.0, 0, False
        while not over:
            observation, reward, terminated, truncated, info = env.step(agent.act(observation, info))
            total += 0.99**steps * reward
            steps, over = steps + 1, terminated or truncated
        assert total == pytest.approx(best)


def test_agents_draw_among_equal_values_and_need_the_info_that_holds_the_state():
    agent = QLearning().learn(gym.make(ID, layout_seed=0), 1)
    agent.q["tied"] = np.array([0.0, 2.0, 1.0, 2.0])
    assert {agent.act(None, {"state": "tied"}) for _ in range(50)} == {1, 3}
    assert {agent.act(None, {"state": "never met"}) for _ in range(100)} == {0, 1, 2, 3}
    with pytest.raises(ValueError, match=r'info\["state"\], but info has \[\]'):
        agent.act(None)
    lake = QLearning(learning_rate=0.5, seed=3).learn(gym.make("FrozenLake-v1", is_slippery=False), 300)
    assert lake.act(14) == 2  # beside the goal; Discrete observations need no info


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(0, 2**32))
def test_values_converge_to_the_best_ones(task, actions, seed):
    """A time limit of a few steps does not show in them: the learner looks beyond it."""
    model = random_model(task, actions=actions, max_steps=7)
    learner = QLearning(seed=seed, learning_rate=0.5, epsilon=1.0, discount=0.8)
    agent = learner.learn(ModelEnv(model, arrays=True), 20_000)
    met = met_within(model, 7)
    # Nothing is learned of states that are met at the time limit only: their values stay 0.
    closed = model._replace(terminated=model.terminated | ~np.isin(model.next_states, met))
    learned = np.array([agent.q[state] for state in met.tolist()])
    np.testing.assert_allclose(learned, optimal_values(closed, 0.8)[met], atol=1e-6)


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_shaping_moves_values_by_the_potential(task):
    model = random_model(task, max_steps=40)
    potential = np.random.default_rng(task).normal(size=len(model.next_states))
    shaped = PotentialShaping(ModelEnv(model, arrays=True), TablePotential(dict(enumerate(potential.tolist()))), 0.8)
    agent = QLearning(learning_rate=0.5, epsilon=1.0, discount=0.8).learn(shaped, 5000)
    met = met_within(model, 40)
    expected = optimal_values(model, 0.8) - potential[:, None]
    np.testing.assert_allclose([agent.q[state] for state in met.tolist()], expected[met], atol=1e-6)


def test_returns_are_unshaped():
    inner = RecordEpisodeStatistics(TriggersEnv(size=3, triggers=1, prizes=2, layout_seed=1), buffer_length=60)
    shaped = PotentialShaping(inner, TablePotential({state: state % 7.0 for state in range(99)}), 1.0)
    curve = QLearning(discount=1.0, epsilon=0.5).learn(shaped, 60).curve
    assert curve.returns.tolist() == list(inner.return_queue) and len(set(inner.return_queue)) > 2
    assert curve.lengths.tolist() == list(inner.length_queue) and len(curve) == 60


def test_same_seed_same_curve_other_seed_other_curve_and_a_bar_where_asked_for(capsys):
    for env in (gym.make(ID, layout_seed=0), gym.make("FrozenLake-v1")):
        one, again, other = (QLearning(seed=seed).learn(env, 30) for seed in (1, 1, 2))
        assert_same(one, again)
        assert not np.array_equal(one.curve.lengths, other.curve.lengths)
        assert capsys.readouterr().err == ""
        QLearning().learn(env, 20, progress=True)
        assert "20/20 episodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "episodes", "before", "after"), [("CliffWalking-v1", 200, -40, -20), ("Taxi-v4", 800, -60, -5)]
)
def test_learns_gymnasiums_own_tasks(name, episodes, before, after):
    curve = QLearning(learning_rate=0.5, seed=3).learn(gym.make(name), episodes).curve
    # medians: on the cliff, exploring costs 100 now and then for ever
    assert np.median(curve.returns[:20]) < before < after < np.median(curve.returns[-50:])


def test_wrappers_that_change_the_task_are_heeded():
    env = gym.make(ID, layout_seed=0)
    assert QLearning().learn(TimeLimit(env, 7), 40).curve.lengths.max() == 7
    mirrored = TransformAction(env, lambda action: action ^ 1, env.action_space)
    inverted = gym.make(ID, layout_seed=0, inverted=True)
    assert_same(QLearning().learn(inverted, 40), QLearning().learn(mirrored, 40))


def test_a_state_function_makes_states_of_anything():
    env = gym.make("CartPole-v1")
    agent = QLearning(seed=0).learn(env, 30, state=lambda observation, info: tuple(np.round(observation, 1).tolist()))
    assert (agent.curve.lengths >= 1).all() and np.isfinite(agent.curve.returns).all()
    assert agent.act(np.zeros(4)) in (0, 1)


@pytest.mark.parametrize(("discount", "states"), [(0.99, 300), (0.5, 1200), (1, 50)])
def test_a_reward_is_discounted_however_late_it_comes(discount, states):
    """Even where the powers of the discount are too small for a number."""
    following = np.minimum(np.arange(1, states + 1), states - 1)[:, None]
    last = np.arange(states)[:, None] == states - 1
    model = TabularModel.of(following, last, last, start=0, max_steps=2000)
    compiled, stepped = (QLearning(discount=discount).learn(ModelEnv(model, 0, a), 3) for a in (True, False))
    assert_same(compiled, stepped)
    assert compiled.curve.returns == pytest.approx([discount ** (states - 1)] * 3)


@pytest.mark.parametrize("actions", [2, 3, 4, 7])
def test_choices_are_even_among_equal_values_and_when_exploring(actions):
    q = np.zeros((2, actions))
    best = list(range(actions))[1:] if actions > 2 else [0, 1]
    q[1, best] = 0.5
    steps = 20_000

    def shares(epsilon, state):
        numbers = q_learning._numbers(QLearning(epsilon=epsilon, seed=77), actions)
        chosen = [q_learning._choose(actions, q, state, step, numbers) for step in range(steps)]
        return np.bincount(chosen, minlength=actions) / steps

    slack = 4 * np.sqrt(0.25 / steps)
    np.testing.assert_allclose(shares(0.0, 0), 1 / actions, atol=slack)
    np.testing.assert_allclose(shares(1.0, 1), 1 / actions, atol=slack)
    greedy = np.isin(np.arange(actions), best) / len(best)
    np.testing.assert_allclose(shares(0.0, 1), greedy, atol=slack)
    assert not shares(0.0, 1)[greedy == 0].any()
    np.testing.assert_allclose(shares(0.3, 1), 0.3 / actions + 0.7 * greedy, atol=slack)


class Odd(gym.Env):
    """An environment with something missing."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, observation_space=None, infos=({},), reward=0.0):
        self.observation_space = observation_space or gym.spaces.Box(0, 1, (2,))
        self.infos, self.reward = infos, reward

    def reset(self, *, seed=None, options=None):
        return 0, self.infos[0]

    def step(self, action):
        return 0, self.reward, False, False, self.infos[-1]


def wrongly_shaped():
    return PotentialShaping(TriggersEnv(layout_seed=0), NoPotential(), 0.9)


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (lambda: gym.make("Pendulum-v1"), TypeError, r"needs Discrete actions, but env has Box\(-2"),
        (lambda: "FrozenLake-v1", TypeError, r"one Gymnasium environment, got 'FrozenLake-v1': make it first"),
        (lambda: gym.make_vec(ID, 2), TypeError, "one Gymnasium environment"),
        (lambda: gym.make(ID), ValueError, "set layout_seed"),
        (lambda: Odd(infos=({"time": 1},)), ValueError, r"nothing tells states apart.* Box.* \['time'\].* pass state="),
        (lambda: Odd(infos=({"state": 1}, {"x": 2})), ValueError, r"info has \['x'\]: the environment must give it"),
        (lambda: Odd(infos=({"state": np.zeros(2)},)), TypeError, "must be hashable, got ndarray: pass e.g. state="),
        (lambda: Odd(gym.spaces.Discrete(3), reward=float("nan")), ValueError, "reward nan at step 1"),
        (wrongly_shaped, ValueError, r"discount 0.9, but the agent's is 0.99: .* QLearning\(discount=0.9\)"),
        (lambda: TimeLimit(wrongly_shaped(), 5), ValueError, "shaped with discount 0.9"),
    ],
)
def test_environments_that_do_not_fit_are_refused(env, error, message):
    with pytest.raises(error, match=message):
        QLearning().learn(env(), 5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"learning_rate": 0}, ValueError, r"learning_rate must lie in \(0, 1\], got 0"),
        ({"epsilon": -0.1}, ValueError, r"epsilon must lie in \[0, 1\], got -0.1"),
        ({"epsilon": "0.1"}, TypeError, "epsilon must be a number"),
        ({"discount": float("nan")}, ValueError, "discount"),
        ({"seed": -1}, ValueError, "seed must be an integer from 0"),
        ({"episodes": 0}, ValueError, "episodes must be an integer of at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(changes, error, message):
    numbers = {"episodes": 5, "seed": 0, **changes}
    episodes = numbers.pop("episodes")
    with pytest.raises(error, match=message):
        QLearning(**numbers).learn(gym.make(ID, layout_seed=0), episodes)
