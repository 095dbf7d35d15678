"""Replay buffers that keep rewards and shaping apart: what they hold, how they are relabelled, what they draw."""

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tests.sb3.deep_tasks import MAZE, SMALL, Hallway

from secret_rl.envs.triggers import TriggersEnv
from secret_rl.sb3 import ShapedDictReplayBuffer, ShapedReplayBuffer, from_replay_buffer, train
from secret_rl.sb3.shaping import PotentialShapingVecEnv, shape_with
from secret_rl.shaping import ObservationKey, ReplayShaping, TablePotential
from secret_rl.shaping.core import last_seen
from secret_rl.testing.shaping import EveryEnding, Everything

HISTORY = Everything(())  # every action, observation and reward since the beginning of the episode leaves its mark
WORLDS = {"maze": (lambda: TriggersEnv(**MAZE), ShapedReplayBuffer), "dict": (EveryEnding, ShapedDictReplayBuffer)}


class Filled:
    """A buffer and shaped environments that feed it, as an algorithm would."""

    def __init__(self, world, rows, n=3, *, shaped=HISTORY, **options):
        make, kind = WORLDS[world]
        envs = DummyVecEnv([make] * n)
        self.envs = PotentialShapingVecEnv(envs, shaped, 0.9) if shaped is not None else envs
        self.envs.seed(1)
        self.rng = np.random.default_rng(1)
        self.buffer = kind(rows * n, envs.observation_space, envs.action_space, device="cpu", n_envs=n, **options)
        self.seen = self.envs.reset()
        self.paid = []

    def step(self, number=1):
        for _ in range(number):
            actions = self.rng.integers(0, 3, self.envs.num_envs)
            observations, rewards, ended, infos = self.envs.step(actions)
            final = {i: infos[i]["terminal_observation"] for i in np.flatnonzero(ended)}
            following = last_seen(observations, final, self.envs.observation_space)
            self.buffer.add(self.seen, following, actions, rewards, ended, infos)
            self.seen = observations
            self.paid.append((rewards, [i.get("env_reward") for i in infos], [i.get("shaping_reward") for i in infos]))
        return self

    def reset(self):
        """In the middle of an episode, as by a second call of ``learn``."""
        self.seen = self.envs.reset()
        return self

    def newest(self, part):
        """(rows, n) of what the environments paid, in the order of the buffer's rows."""
        placed = np.zeros((self.buffer.buffer_size, self.envs.num_envs), np.float32)
        for time, paid in enumerate(self.paid):
            placed[time % len(placed)] = paid[part]
        return placed[: self.buffer.size()]


def sampled(buffer, number, normaliser=None):
    """A batch, drawn from always the same random numbers."""
    np.random.seed(0)  # noqa: NPY002
    return buffer.sample(number, normaliser)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rows", [100, 37])
@pytest.mark.parametrize("own", [False, True])
def test_rewards_and_terms_are_kept_apart_and_sampled_together(world, rows, own):
    """With a shaping of its own the buffer pays what the environments pay, to the bit; also where it goes round."""
    filled = Filled(world, rows, shaping=ReplayShaping(HISTORY, 0.9) if own else None).step(80)
    buffer, held = filled.buffer, filled.buffer.size()
    assert buffer.full == (rows == 37)
    np.testing.assert_array_equal(buffer.rewards[:held], filled.newest(1))
    np.testing.assert_array_equal(buffer.terms[:held], filled.newest(2))
    if not buffer.full:
        data = from_replay_buffer(buffer)  # credit is learned from unshaped rewards
        np.testing.assert_array_equal(np.sort(data.rewards), np.sort(filled.newest(1).ravel()))
    # What is drawn is what a buffer of Stable-Baselines3 draws that holds the shaped rewards.
    batch, buffer.rewards = sampled(buffer, 400), filled.newest(0)
    expected = sampled(super(ShapedReplayBuffer, buffer), 400)
    torch.testing.assert_close(batch[:5], expected[:5], rtol=0, atol=0)


def linear(seen, _):
    """A potential without history."""
    numbers = np.concatenate([np.ravel(part) for part in (seen.values() if isinstance(seen, dict) else [seen])])
    return float(numbers @ np.sin(np.arange(len(numbers)) + 1))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("rows", "phi", "moment"), [*((100, HISTORY, moment) for moment in (0, 1, 30, 41, 63)), (37, linear, 100)]
)
def test_a_relabelled_buffer_is_one_that_never_knew_another_shaping(world, before, rows, phi, moment):
    """Running episodes included, whose later steps are paid by the new shaping as if it had seen all of them.

    In a buffer that has gone round, episodes that lost their beginning are paid too: right where Phi needs no history.
    """
    old = TablePotential({0: 1.0}, state=lambda observation, _: 0)
    changed = Filled(world, rows, shaped=old, shaping=ReplayShaping(old, 0.9) if before else None).step(moment)
    changed.buffer.relabel(ReplayShaping(phi, 0.9))
    never = Filled(world, rows, shaping=ReplayShaping(phi, 0.9)).step(moment)
    for more in (0, 1, 30):
        changed.step(more)
        never.step(more)
        for name in ("rewards", "terms", "_shaped_rewards"):
            np.testing.assert_array_equal(getattr(changed.buffer, name), getattr(never.buffer, name), err_msg=name)
    assert never.buffer.full == (rows == 37) and never.buffer.terms[: never.buffer.size()].any()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rows", [100, 37])
def test_a_reset_in_the_middle_of_an_episode_begins_another(world, rows):
    """The buffer pays what the environments pay, which know of the reset; also once it is relabelled, and after."""
    filled = Filled(world, rows, shaping=ReplayShaping(HISTORY, 0.9))
    for steps in (9, 2, 14, 3, 20):
        filled.reset().step(steps)
    before = filled.buffer.terms.copy()
    np.testing.assert_array_equal(before[: filled.buffer.size()], filled.newest(2))
    if rows == 100:  # else episodes have lost their beginning, on which this potential depends
        filled.buffer.relabel(ReplayShaping(HISTORY, 0.9))
        np.testing.assert_array_equal(filled.buffer.terms, before)
        filled.step(5).reset().step(7)
        np.testing.assert_array_equal(filled.buffer.terms[: filled.buffer.size()], filled.newest(2))


def test_credited_transitions_are_drawn_whole_and_as_often_as_asked():
    filled = Filled("maze", 37, priority=0.6)
    buffer = filled.buffer
    filled.step(120)
    credited = ((buffer.terms > 0) | (buffer.rewards > 0)).ravel()

    def steps(arrays, number):
        """Each as the bytes of what it is made of."""
        parts = [np.asarray(array).reshape(number, -1) for array in arrays]
        return [tuple(part[i].tobytes() for part in parts) for i in range(number)]

    over = buffer.dones * (1 - buffer.timeouts)
    columns = (buffer.observations, buffer.actions, buffer.next_observations, over, buffer._shaped_rewards)
    known = dict(zip(steps(columns, 37 * 3), credited.tolist(), strict=True))
    drawn = [known[step] for step in steps(sampled(buffer, 4000)[:5], 4000)]
    assert 0.2 < credited.mean() < 0.8 and np.mean(drawn) == pytest.approx(0.6 + 0.4 * credited.mean(), abs=0.04)
    buffer.relabel(ReplayShaping(TablePotential({0: 0.5}, state=lambda *_: 0), 0.9))  # 0.9 * 0.5 - 0.5 is negative
    buffer.priority = 1.0
    assert (buffer.sample_both(100)[1].rewards > 0).all(), "the rewarded ones alone"


def test_normalised_rewards_are_the_sums():
    filled = Filled("maze", 60, priority=0.5).step(60)
    normaliser = VecNormalize(DummyVecEnv([WORLDS["maze"][0]]), norm_obs=False)
    normaliser.ret_rms.var = np.array(16.0)
    scaled, plain = sampled(filled.buffer, 50, normaliser), sampled(filled.buffer, 50)
    torch.testing.assert_close(scaled.rewards, plain.rewards / 4)


OPTIONS = {
    "n_envs": 3, "evaluate_every": 0, "learning_starts": 20, "buffer_size": 300, "train_freq": 1, "batch_size": 8,
    "gamma": 0.9, "exploration_fraction": 0.9, **SMALL,
}  # fmt: skip


def test_an_agent_learns_the_same_from_shaped_environments_and_from_a_buffer_that_shapes():
    """To the bit, where rewards are whole numbers."""
    potential = TablePotential({tuple(np.eye(4)[i]): i / 4 for i in range(4)}, state=ObservationKey())
    inside = train(sb3.DQN, Hallway, 300, shaping=shape_with(potential), **OPTIONS).model
    shaping = {"shaping": ReplayShaping(potential, 0.9)}
    buffer = {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": shaping}
    outside = train(sb3.DQN, Hallway, 300, **buffer, **OPTIONS).model
    for mine, theirs in zip(inside.policy.parameters(), outside.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert set(outside.replay_buffer.rewards.ravel()) == {0.0, 1.0} and outside.replay_buffer.terms.any()
    with pytest.raises(ValueError, match="replay buffer shapes for discount 0.9, but the agent discounts by 0.8"):
        train(sb3.DQN, Hallway, 30, **buffer, **OPTIONS | {"gamma": 0.8})


def test_bad_input_is_named():
    spaces = (TriggersEnv(**MAZE).observation_space, TriggersEnv(**MAZE).action_space)
    for wrong in ({"optimize_memory_usage": True}, {"handle_timeout_termination": False}):
        with pytest.raises(ValueError, match="leave optimize_memory_usage False"):
            ShapedReplayBuffer(10, *spaces, **wrong)
    with pytest.raises(ValueError, match=r"priority must be a probability, in \[0, 1\], got 1.5"):
        ShapedReplayBuffer(10, *spaces, priority=1.5)
