"""Credit learned from an agent's own episodes: when, from what, and what is not accepted."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from tests.experimental.lever import LAST, SMALL_FIT, Lever
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.envs.tabular import best_return
from secret_rl.experimental import OnlineSecret, learn_online
from secret_rl.shaping import LearnedPotential, OnlineCredit, TablePotential

RANDOM = srl.QLearning(epsilon=1.0)


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Tiny models run faster on one core; the memoryless baseline is learned at once here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch, updates=300, batch=512)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def pulled():
    """Credit learned along 150 random episodes, once, for all tests that look at it."""
    online = OnlineSecret("pending", first=150, growth=10, secret_options=SMALL_FIT)
    return learn_online(Lever(), 151, agent=RANDOM, online=online), online


def test_credit_is_learned_from_scratch_and_the_potential_points_at_what_earned_the_reward(pulled):
    learned, online = pulled
    [refit] = learned.history
    assert refit.accepted and refit.episodes == 150 and refit.history_gain > 0.2 and refit.seconds > 0
    assert isinstance(learned.potential, TablePotential) and learned.potential is online.present
    for clock in range(2, LAST + 1):
        with_lever, without = (learned.potential.lookup([2 * clock + flag])[0] for flag in (1, 0))
        assert with_lever > 3 * without + 0.05
    assert len(learned.curve) == 151 and learned.curve.epsilon == 1.0


@pytest.mark.parametrize(
    ("env", "options", "fit", "reason"),
    [
        (Lever(pays=False), {"min_successes": 0}, {}, "0 successful episodes"),
        (Lever(visible=True), {"min_successes": 0}, {}, "past not needed|not learned"),
        (Lever(), {"first": 60}, {"steps": 1}, "not learned"),
        (Lever(), {"first": 150, "min_gain": 1.1}, {}, "the past removes "),
    ],
)
def test_nothing_is_accepted_where_nothing_is_or_was_learned(env, options, fit, reason):
    online = OnlineSecret(**{"first": 100, "growth": 3} | options, secret_options=SMALL_FIT | fit)
    learned = learn_online(env, online.first + 10, agent=RANDOM, online=online)
    [refit] = learned.history
    assert not refit.accepted and re.match(reason, refit.reason)
    assert isinstance(learned.potential, srl.shaping.NoPotential) and online.present is None and online.secret is None
    np.testing.assert_array_equal(learned.curve.returns, RANDOM.learn(env, online.first + 10).curve.returns)


def test_the_schedule_grows_and_waits_for_successes():
    made = []
    online = OnlineSecret(lambda data: made.append(len(data)), first=10, growth=1.5, min_successes=3, keep=20)
    online.watch(gym.spaces.Discrete(2), gym.spaces.Discrete(2))

    def play(number, reward):
        for _ in range(number):
            online.add({"observations": [0, 1], "actions": [0], "rewards": [reward], "terminated": True})
            assert online.update() is None  # the function gives no potential

    play(13, 0.0)
    assert [(r.episodes, r.reason) for r in online.history] == [(10, "0 successful episodes, 3 are needed")]
    play(2, 1.0)
    assert len(online.history) == 1 and not made
    play(30, 1.0)
    assert [r.episodes for r in online.history] == [10, 16, 24, 36]
    assert made == [16, 20, 20], "the newest are kept"
    assert online.history[-1].successes == 20 and online.history[-1].reason == "no potential could be made"
    assert online.seen == 45


@pytest.mark.parametrize(
    ("kind", "expected", "options"),
    [
        ("cumulative", TablePotential, {}),
        ("value", TablePotential, {}),
        ("learned value", LearnedPotential, {"steps": 5}),
        ("learned", LearnedPotential, {"steps": 5}),
        ("online", OnlineCredit, {"scale": 0.7}),
    ],
)
def test_each_kind_is_the_library_call_on_the_episodes_that_were_kept(pulled, kind, expected, options):
    data = pulled[1].trajectories
    online = OnlineSecret(kind, secret_options=SMALL_FIT, potential_options=options)
    online.watch(data.observation_space, data.action_space)
    for episode in data:
        online.add(vars(episode))
    potential = online.update()
    assert isinstance(potential, expected), online.history
    assert ("value" not in kind) == (online.history[0].history_gain is not None)
    credit = None if "value" in kind else online.secret.attribute(data, rewards="positive")
    if expected is TablePotential:
        assert potential.values == srl.estimate_potential(data, credit, kind).values
    elif expected is LearnedPotential:
        other = srl.learn_potential(data, credit, "value" if "value" in kind else "pending", steps=5)
        np.testing.assert_array_equal(potential.lookup(np.arange(10)), other.lookup(np.arange(10)))
    else:
        assert potential.options == OnlineCredit(online.secret, scale=0.7).options


def test_only_what_the_view_shows_is_read():
    env = Lever(visible=True, vector=True)
    hidden = srl.views.MaskView(((LAST + 2, LAST + 3),))
    gains = []
    for view in (None, hidden):
        online = OnlineSecret(first=150, view=view, secret_options=SMALL_FIT)
        [refit] = learn_online(env, 150, agent=RANDOM, online=online).history
        gains.append(refit.history_gain)
        assert online.trajectories.observations[:, -1].any(), "episodes are kept as the agent saw them"
    assert gains[0] < 0.03 < 0.2 < gains[1]


@pytest.mark.slow
def test_however_bad_the_potentials_were_the_best_policy_is_found():
    env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=3)
    model = env.unwrapped.tabular()
    rng = np.random.default_rng(0)
    tables = []

    def bad(data):
        """High wherever the prize is far, low on the way to it; another one each time."""
        worst = {state: float(5 * rng.normal()) for state in np.unique(data.states).tolist()}
        tables.append(TablePotential(worst))
        return tables[-1]

    online = OnlineSecret(bad, first=10, growth=1.2, min_successes=0)
    agent = srl.QLearning(learning_rate=0.5, epsilon=0.5, discount=0.9)
    learned = learn_online(env, 2500, agent=agent, online=online)
    assert len(tables) >= 20 and learned.potential is tables[-1]
    state, gained, power, names = model.start, 0.0, 1.0, np.asarray(model.states).tolist()
    for _ in range(model.max_steps):
        action = int(np.argmax(learned.values[names[state]]))
        gained += power * model.rewards[state, action]
        power *= 0.9
        if model.terminated[state, action]:
            break
        state = model.next_states[state, action]
    assert gained == pytest.approx(best_return(model, 0.9))


def test_the_same_seeds_give_the_same_and_without_refits_it_is_plain_q_learning(pulled):
    env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=3)
    one, other = (
        learn_online(env, 80, agent=srl.QLearning(seed=3), online=OnlineSecret("value", first=20)) for _ in range(2)
    )
    np.testing.assert_array_equal(one.curve.returns, other.curve.returns)
    plain = srl.QLearning(seed=3).learn(env, 80).curve
    assert not np.array_equal(one.curve.returns, plain.returns)
    never = learn_online(env, 80, agent=srl.QLearning(seed=3), online=OnlineSecret(first=1000))
    np.testing.assert_array_equal(never.curve.returns, plain.returns)
    assert never.history == ()
    again = learn_online(Lever(), 5, online=pulled[1])
    assert again.potential is pulled[1].present, "it goes on from what it holds"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"potential": "paper"}, "one of pending"),
        ({"first": 3}, "first must be an integer of at least 10"),
        ({"growth": float("nan")}, "growth"),
        ({"min_successes": -1}, "min_successes"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        OnlineSecret(**options)


def test_environments_that_do_not_fit_are_refused(pulled):
    with pytest.raises(ValueError, match="make another OnlineSecret"):
        learn_online(Lever(vector=True), 5, online=pulled[1])
    with pytest.raises(TypeError, match="Discrete actions"):
        learn_online(gym.make("Pendulum-v1"), 5)
    with pytest.raises(ValueError, match="no episodes"):
        OnlineSecret().trajectories  # noqa: B018
    shaped = srl.PotentialShaping(Lever(), srl.shaping.NoPotential(), 0.5)
    with pytest.raises(ValueError, match="discount"):
        learn_online(shaped, 5)
