"""A deep Q-network that explores with shaped rewards and learns what it is judged by from the true ones."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.utils import get_parameters_by_name, polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from secret_rl.sb3.replay import ShapedDictReplayBuffer, ShapedReplayBuffer


class ExploringDQN(DQN):
    """DQN with two networks: one acts and learns from shaped rewards, the other is judged and learns from true ones.

    Both learn from the same batches of the same replay. Acting in ``learn`` follows ``acting_policy``. Everything else,
    ``predict``, evaluations and ``save_weights``, uses ``policy``, which no bonus ever reaches, so it need not fade::

        train(ExploringDQN, "secret_rl/Triggers-v0", steps, shaping=bonus_with(credit, scale=3), **dqn(steps))

    The bonus decides what is tried, and so what the judged network can know: keep some epsilon. Arguments are those of
    ``DQN``; ``n_steps`` must be 1, and a ``replay_buffer_class`` a ``ShapedReplayBuffer``, which is the default.
    """

    acting_policy: DQNPolicy
    """Acts in ``learn``; begins as a copy of ``policy``."""

    def _setup_model(self) -> None:
        if self.n_steps != 1:
            raise ValueError(f"ExploringDQN learns from single steps, got n_steps={self.n_steps}: leave it out")
        if self.replay_buffer_class is None:
            of_dicts = isinstance(self.observation_space, gym.spaces.Dict)
            self.replay_buffer_class = ShapedDictReplayBuffer if of_dicts else ShapedReplayBuffer
        if not issubclass(self.replay_buffer_class, ShapedReplayBuffer):
            raise TypeError(
                f"replay_buffer_class is {self.replay_buffer_class.__name__}, which does not keep shaped and unshaped "
                "rewards apart: use ShapedReplayBuffer, or leave it out"
            )
        super()._setup_model()
        self.acting_policy = deepcopy(self.policy)

    def _sample_action(self, *args: Any, **options: Any) -> Any:
        judged, self.policy = self.policy, self.acting_policy
        try:
            return super()._sample_action(*args, **options)
        finally:
            self.policy = judged

    def _on_step(self) -> None:
        super()._on_step()  # updates the target of the judged network
        if self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            network, target = self.acting_policy.q_net, self.acting_policy.q_net_target
            polyak_update(network.parameters(), target.parameters(), self.tau)
            running = [get_parameters_by_name(one, ["running_"]) for one in (network, target)]  # of batch norm
            polyak_update(running[0], running[1], 1.0)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update both networks, each as ``DQN`` does its one."""
        buffer: Any = self.replay_buffer
        policies = self.acting_policy, self.policy
        for policy in policies:
            policy.set_training_mode(True)
        self._update_learning_rate([policy.optimizer for policy in policies])
        losses = []
        for _ in range(gradient_steps):
            batches = buffer.sample_both(batch_size, self._vec_normalize_env)
            losses.append([self._update(policy, batch) for policy, batch in zip(policies, batches, strict=True)])
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, loss in zip(("train/acting_loss", "train/loss"), np.mean(losses, axis=0), strict=True):
            self.logger.record(name, loss)

    def _update(self, policy: DQNPolicy, batch: Any) -> float:
        """One step of gradient descent on a batch; returns the loss."""
        with torch.no_grad():
            following = policy.q_net_target(batch.next_observations).max(dim=1).values.reshape(-1, 1)
            targets = batch.rewards + (1 - batch.dones) * self.gamma * following
        values = policy.q_net(batch.observations).gather(1, batch.actions.long())
        loss = nn.functional.smooth_l1_loss(values, targets)
        policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), self.max_grad_norm)
        policy.optimizer.step()
        return loss.item()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "acting_policy"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, tensors = super()._get_torch_save_params()
        return [*names, "acting_policy", "acting_policy.optimizer"], tensors
