"""Replay buffers that keep the rewards of the environment and what shaping adds apart."""

from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from secret_rl.sb3.buffers import as_episodes, segments, unflattened
from secret_rl.shaping import ReplayShaping
from secret_rl.trajectories.nested import map_arrays, rows_differ


class ShapedReplayBuffer(ReplayBuffer):
    """A replay buffer whose ``rewards`` are unshaped; ``terms`` holds what shaping adds, and samples give the sum.

    Given to an algorithm by ``replay_buffer_class`` and ``replay_buffer_kwargs``. ``relabel`` exchanges the shaping of
    everything that is stored, so that a potential may change while an agent learns and the buffer never holds two.

    Args:
        shaping: Shapes each transition as it arrives; its discount must be the agent's. Without it the terms are those
            of shaped environments, or 0.
        priority: Probability that a draw is from the credited transitions, whose term or whose unshaped reward is
            positive, instead of from all. Without any shaping that is a replay of rewards. This is a *bias*: values
            are then fitted to credited transitions more often than they happen; nothing corrects for it.
    """

    def __init__(
        self, *given: Any, shaping: ReplayShaping | None = None, priority: float = 0.0, **options: Any
    ) -> None:
        if options.get("optimize_memory_usage") or not options.get("handle_timeout_termination", True):
            raise ValueError(
                f"{type(self).__name__} needs what each step led to, and time limits apart from terminations: leave "
                "optimize_memory_usage False and handle_timeout_termination True"
            )
        if not 0 <= priority <= 1:
            raise ValueError(f"priority must be a probability, in [0, 1], got {priority!r}")
        super().__init__(*given, **options)
        self.shaping = shaping
        self.priority = float(priority)
        self.terms = np.zeros((self.buffer_size, self.n_envs), np.float32)
        self._shaped_rewards = np.zeros((self.buffer_size, self.n_envs), np.float32)  # the sum, rounded once
        self._credited = np.zeros((self.buffer_size, self.n_envs), np.bool_)

    @property
    def shaping_discount(self) -> float | None:
        """The discount of the shaping given, if any."""
        return None if self.shaping is None else self.shaping.discount

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        """Store one step of every environment."""
        row = self.pos
        rewards = np.array([info.get("env_reward", r) for info, r in zip(infos, reward.tolist(), strict=True)])
        if self.shaping is None:
            terms = np.array([info.get("shaping_reward", 0.0) for info in infos], np.float64)
        else:
            timeouts = [info.get("TimeLimit.truncated", False) for info in infos]
            step = obs, action.reshape(self.n_envs, -1), next_obs, rewards, done, timeouts
            terms = self._shape(self._started(obs), step, infos)
        super().add(obs, next_obs, action, rewards, done, infos)
        self.terms[row] = terms
        self._shaped_rewards[row] = reward if self.shaping is None else self.rewards[row].astype(np.float64) + terms
        self._credited[row] = (self.terms[row] > 0) | (self.rewards[row] > 0)

    def relabel(self, shaping: ReplayShaping) -> None:
        """Shape everything that is stored anew, and what is to come; running episodes included.

        Of an episode whose beginning was overwritten, the rest counts as an episode. Infos are not stored: the
        potential must do with observations, actions and rewards.
        """
        self.shaping = shaping
        if not self.size():
            return
        parts = list(segments(self))
        terms_of_all = shaping.over(as_episodes(self, parts))
        first = 0
        begins = np.zeros((self.buffer_size, self.n_envs), np.bool_)
        for env, rows, *_ in parts:
            begins[rows[0], env] = True
            terms = terms_of_all[first : first + len(rows)]
            self.terms[rows, env] = terms
            self._shaped_rewards[rows, env] = self.rewards[rows, env].astype(np.float64) + terms
            first += len(rows)
        self._credited[...] = (self.terms > 0) | (self.rewards > 0)
        # The shaping is shown the newest steps, so that it knows the episodes that go on.
        newest = (self.pos - 1) % self.buffer_size
        running = [len(rows) for env, rows, *_ in parts if rows[-1] == newest and not self.dones[newest, env]]
        first_row = self.pos - max(running, default=0)
        for row in range(first_row, self.pos):  # below 0: from the end
            started = begins[row] | (row == first_row)  # what of an episode came before is not needed, or not there
            seen, following = (
                map_arrays(itemgetter(row), rows) for rows in (self.observations, self.next_observations)
            )
            step = seen, self.actions[row], following, self.rewards[row], self.dones[row], self.timeouts[row]
            self._shape(started, step)

    def _shape(self, started: NDArray[np.bool_], step: tuple[Any, ...], infos: Any = ()) -> NDArray[np.float64]:
        """(n_envs,) what the shaping adds to one step, which it then has seen."""
        assert self.shaping is not None
        seen, actions, following, rewards, done, timeouts = step
        seen, following = (unflattened(self.observation_space, rows) for rows in (seen, following))
        ended, timeouts = np.asarray(done, np.bool_), np.asarray(timeouts, np.bool_)
        actions = unflattened(self.action_space, actions)
        return self.shaping.step(started, seen, actions, following, rewards, ended & ~timeouts, ended & timeouts, infos)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """A batch of transitions with shaped rewards."""
        return self.sample_both(batch_size, env)[0]

    def sample_both(self, batch_size: int, env: VecNormalize | None = None) -> tuple[Any, Any]:
        """A batch of transitions with shaped rewards, and the same batch with unshaped ones."""
        # The generator is that of all buffers of Stable-Baselines3: its seed is the agent's. Draws are in their order.
        draw, number, credited = np.random.randint, 0, np.zeros(0, np.int64)
        if self.priority:
            credited = np.flatnonzero(self._credited)  # row * n_envs + env
            number = np.random.binomial(batch_size, self.priority) if len(credited) else 0  # noqa: NPY002
            credited = credited[draw(0, len(credited), number)] if number else credited[:0]
        rows = np.append(draw(0, self.size(), batch_size - number), credited // self.n_envs)
        envs = np.append(draw(0, self.n_envs, batch_size - number), credited % self.n_envs)

        def seen(arrays: Any) -> Any:
            picked = map_arrays(lambda array: array[rows, envs], arrays)
            return map_arrays(self.to_torch, self._normalize_obs(picked, env))

        def paid(rewards: NDArray[np.float32]) -> torch.Tensor:
            return self.to_torch(self._normalize_reward(rewards[rows, envs].reshape(-1, 1), env))

        over = self.dones[rows, envs] * (1 - self.timeouts[rows, envs])
        kind = DictReplayBufferSamples if isinstance(self.observations, dict) else ReplayBufferSamples
        shaped = kind(
            observations=seen(self.observations),
            actions=self.to_torch(self.actions[rows, envs]),
            next_observations=seen(self.next_observations),
            dones=self.to_torch(over.reshape(-1, 1)),
            rewards=paid(self._shaped_rewards),
        )
        return shaped, shaped._replace(rewards=paid(self.rewards))

    def _started(self, observations: Any) -> NDArray[np.bool_]:
        """Where a step from these observations is the first of an episode: the last one ended, or was cut off."""
        if not self.size():
            return np.ones(self.n_envs, np.bool_)
        newest = (self.pos - 1) % self.buffer_size
        led_to = map_arrays(lambda array: array[newest], self.next_observations)
        now = map_arrays(lambda kept, new: np.asarray(new, kept.dtype).reshape(kept.shape), led_to, observations)
        return np.asarray((self.dones[newest] > 0) | rows_differ(led_to, now))


class ShapedDictReplayBuffer(ShapedReplayBuffer, DictReplayBuffer):
    """``ShapedReplayBuffer`` for observations that are dicts."""
