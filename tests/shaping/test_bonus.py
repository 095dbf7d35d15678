"""A bonus pays every rise of Phi at once and for good, alike in all wrappers, and fades to nothing."""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv
from tests.shaping.playing import MODES, compare

import secret_rl as srl
from secret_rl.sb3 import CreditBonusVecEnv, bonus_with
from secret_rl.shaping import (
    CreditBonus,
    NoPotential,
    OnlineCredit,
    PotentialShaping,
    VectorCreditBonus,
    VisitCounts,
)
from secret_rl.testing.shaping import EveryEnding, Everything, OneEnvironment


class Pair:
    """A step earns what its numbers say."""

    def step_credit(self, observations, actions):
        return (observations["cue"] + actions) % 4 / 4


def credit(**options):
    return OnlineCredit(Pair(), threshold=0, scale=0.05, **options)


def played(env, seed, steps=60):
    """(reward, info, ended) of random steps, and Phi of the bonus's potential before and after each."""
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    phi = OneEnvironment(env.unwrapped_potential)
    before = phi.start(observation, info)
    for _ in range(steps):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        after = phi.step(action, observation, info["env_reward"], info)
        yield reward, info, before, after
        before = after
        if terminated or truncated:
            observation, info = env.reset()
            before = phi.start(observation, info)


@pytest.mark.parametrize("potential", [credit, lambda: credit(repeat=True, reset_on_reward=True), Everything])
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.0, 1.0, 2.5]))
@settings(max_examples=10, deadline=None)
def test_every_rise_is_paid_at_once_and_nothing_is_taken_back(potential, seed, scale):
    env = CreditBonus(EveryEnding(), potential(), scale=scale)
    env.unwrapped_potential = potential()
    paid = 0.0
    for reward, info, before, after in played(env, seed):
        assert info["shaping_reward"] == scale * max(after - before, 0.0)
        assert reward == info["env_reward"] + info["shaping_reward"]
        paid += info["shaping_reward"]
    assert (paid > 0) == (scale > 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("potential", [credit, lambda: credit(repeat=True, reset_on_reward=True)])
@given(seed=st.integers(0, 2**31), n=st.integers(1, 4), masks=st.sets(st.integers(0, 30), max_size=2))
@settings(max_examples=10, deadline=None)
def test_wrap_then_vectorise_is_vectorise_then_wrap(mode, potential, seed, n, masks):
    ours = VectorCreditBonus(SyncVectorEnv([EveryEnding] * n, autoreset_mode=mode), potential(), scale=2.0)
    theirs = SyncVectorEnv([lambda: CreditBonus(EveryEnding(), potential(), scale=2.0)] * n, autoreset_mode=mode)
    ended, paid = compare(ours, theirs, seed, 40, mode, masks)
    assert ended and paid


class Button(gym.Env):
    """Press (0) or go (1), which pays 1 and ends the episode."""

    observation_space, action_space = gym.spaces.Discrete(1), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {"state": 0, "pressed": False}

    def step(self, action):
        return 0, float(action == 1), action == 1, False, {"state": 0, "pressed": action == 0}


class Presses:
    """What every press earns, for as long as there are presses."""

    def init(self, n):
        return np.zeros(n)

    def step(self, carry, batch):
        carry = np.where(batch.starts, 0.0, carry + [0.5 * bool(batch.info(i)["pressed"]) for i in range(len(carry))])
        return carry, carry


def button(**fade):
    return CreditBonus(gym.wrappers.TimeLimit(Button(), 20), Presses(), **fade)


@pytest.mark.parametrize(
    ("fade", "goes"), [({}, False), ({"fade_steps": 1_000}, True), ({"fade_at_return": 0.5}, True)], ids=str
)
def test_a_bonus_that_stays_is_exploited_and_one_that_fades_is_not(fade, goes):
    env = button(**fade)
    agent = srl.QLearning(seed=0, discount=0.9, epsilon=0.2, learning_rate=0.3).learn(env, episodes=1_500)
    assert bool(agent.q[0][1] > agent.q[0][0]) is goes
    assert (env.left == 1) is not bool(fade)


def test_it_falls_in_a_straight_line_over_the_steps_of_all_environments():
    single, several = button(fade_steps=8), VectorCreditBonus(SyncVectorEnv([Button] * 4), Presses(), fade_steps=8)
    single.reset(seed=0)
    assert [single.step(0)[1] for _ in range(10)] == [0.5 * left / 8 for left in (8, 7, 6, 5, 4, 3, 2, 1, 0, 0)]
    several.reset(seed=0)
    assert [several.step(np.zeros(4, int))[1].tolist() for _ in range(3)] == [[0.5] * 4, [0.25] * 4, [0.0] * 4]
    assert single.left == several.left == 0


def test_it_is_paid_in_the_share_of_episodes_that_failed():
    env = button(fade_at_return=1.0)

    def play(action, episodes):
        for _ in range(episodes):
            env.reset()
            ended = False
            while not ended:
                _, _, terminated, truncated, _ = env.step(action)
                ended = terminated or truncated

    play(1, 30)
    assert env.left == pytest.approx(0.7), "of the last hundred, those that are not there yet failed"
    play(1, 100)
    assert env.left == 0
    play(0, 25)
    assert env.left == pytest.approx(0.25), "an agent that forgets is paid again"


def visited(env, seed, steps, counts):
    """(what the n-th visit of a state pays, info) of random steps; ``counts`` goes on."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        counts[info["state"]] += 1
        yield 1 / np.sqrt(counts[info["state"]]), reward, info
        if terminated or truncated:
            env.reset()


def test_counts_are_shared_by_environments_and_go_on_from_a_state():
    """Whoever comes first: what a state has paid to all of them says how often it was visited."""
    paid, counts, state = Counter(), Counter(), None
    for seed in range(2):
        envs = CreditBonusVecEnv(DummyVecEnv([EveryEnding] * 3), VisitCounts())
        if state is not None:
            envs.bonus.restore(state)
        envs.seed(seed)
        envs.reset()
        for _ in range(50):
            for info in envs.step(np.zeros(3, int))[3]:
                paid[info["state"]] += info["shaping_reward"]
                counts[info["state"]] += 1
        state = envs.bonus.state()
    for visited_state, count in counts.items():
        assert paid[visited_state] == pytest.approx(sum(1 / np.sqrt(np.arange(1, count + 1))))
    assert max(counts.values()) > 10 and state["taken"] == state["visits"].sum() == 300


def test_bonuses_and_potentials_stack():
    alone, both = (CreditBonus(EveryEnding(), credit()) for _ in range(2))
    both = PotentialShaping(CreditBonus(both, VisitCounts(), scale=0.1), NoPotential(), 0.9)
    steps = [list(visited(env, 3, 80, Counter())) for env in (alone, both)]
    for (_, _, one), (new, reward, info) in zip(*steps, strict=True):
        assert info["shaping_reward"] == pytest.approx(one["shaping_reward"] + 0.1 * new)
        assert info["env_reward"] == one["env_reward"]
        assert reward == pytest.approx(info["env_reward"] + info["shaping_reward"])
    assert both.shaping_discount == 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1}, "scale must be a number of at least 0, got -1"),
        ({"scale": "fit"}, "scale must be a number of at least 0, got 'fit'"),
        ({"fade_steps": 0}, "fade_steps must be an integer of at least 1, got 0"),
        ({"fade_at_return": float("inf")}, "fade_at_return must be a finite number, got inf"),
    ],
)
def test_wrong_options_are_refused(options, message):
    for wrap in (lambda: button(**options), lambda: bonus_with(Presses(), **options)(DummyVecEnv([Button]), 0.9)):
        with pytest.raises(ValueError, match=message):
            wrap()
