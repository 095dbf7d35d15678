"""Deep agents as options of ``train``: those that learn from credit, and those of the paper (appendix A)."""

from collections.abc import Sequence
from math import gcd
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

_STEPS_PER_UPDATE = 4


class SmallConvolutions(BaseFeaturesExtractor):
    """3x3 convolutions for small images (rows, columns, channels); by default those of the paper's DQN.

    Padding keeps the edge: without it nothing would be left of a 3x3 image.

    Args:
        observation_space: Of the images.
        filters: Of each convolution.
        strides: Of each convolution.
        units: Of a dense layer behind them; 0: none.
    """

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        filters: Sequence[int] = (8, 16, 16),
        strides: Sequence[int] = (2, 1, 1),
        units: int = 0,
    ) -> None:
        if not isinstance(observation_space, gym.spaces.Box) or len(observation_space.shape) != 3:
            raise ValueError(f"the convolutions read images (rows, columns, channels), got {observation_space}")
        # What Stable-Baselines3 takes for an image arrives with its channels first.
        to_front = (0, 1, 2, 3) if is_image_space(observation_space) else (0, 3, 1, 2)
        image = torch.zeros(1, *observation_space.shape).permute(to_front)
        layers: list[nn.Module] = []
        for inputs, outputs, stride in zip((image.shape[1], *filters[:-1]), filters, strides, strict=True):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU()]
        layers.append(nn.Flatten())
        with torch.no_grad():
            features = nn.Sequential(*layers)(image).shape[1]
        if units:
            layers += [nn.Linear(features, units), nn.ReLU()]
        super().__init__(observation_space, units or features)
        self.convolutions = nn.Sequential(*layers)
        self._to_front = to_front

    def forward(self, images: Tensor) -> Tensor:
        """(batch, rows, columns, channels) to (batch, features)."""
        features: Tensor = self.convolutions(images.permute(self._to_front))
        return features


def dqn(steps: int, n_envs: int = 8, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(DQN, env, steps, ...)`` that leave credit something to do; ``overrides`` replace any.

    ``paper_dqn`` but for exploration, where the numbers are ours: an agent that acts at random for 250,000 steps cannot
    follow credit. Credit goes best with a bonus, and with credited transitions drawn more often::

        train(DQN, env, steps, shaping=bonus_with(OnlineCredit(secret), scale=3, fade_steps=2 * steps // 3),
              replay_buffer_class=ShapedReplayBuffer, replay_buffer_kwargs={"priority": 0.25}, **dqn(steps))
    """
    return paper_dqn(steps, n_envs) | {"exploration_final_eps": 0.05, "exploration_fraction": 0.1} | overrides


def ppo(n_envs: int = 32, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(PPO, env, steps, ...)`` that explore enough to meet credit; ``overrides`` replace any.

    All numbers are ours, from mazes of Triggers that agents see whole. Credit goes best with a bonus, where rewards are
    rare with one for visit counts beside it::

        train(PPO, env, steps, **ppo(), shaping=[
            bonus_with(OnlineCredit(secret), scale=10), bonus_with(VisitCounts(), scale=0.1),
        ])
    """
    return {
        "policy": "MlpPolicy", "policy_kwargs": {"net_arch": [128, 128]}, "n_envs": n_envs, "gamma": 0.99,
        "learning_rate": 0.001, "ent_coef": 0.03, "gae_lambda": 0.95, "n_steps": 128, "batch_size": 32 * n_envs,
        "n_epochs": 4, **overrides,
    }  # fmt: skip


def paper_dqn(steps: int, n_envs: int = 8, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(DQN, env, steps, ...)`` as the paper has them in Triggers; ``overrides`` replace any.

    Epsilon falls over 250,000 steps whatever ``steps`` is. There is one update for every four steps, however many
    environments there are. The paper leaves open the discount, the decay and epsilon of RMSProp, the batch size, the
    four steps between updates and the clipping of gradients.
    """
    if steps < 1 or n_envs < 1:
        raise ValueError(f"steps and n_envs must be at least 1, got {steps} and {n_envs}")
    common = gcd(_STEPS_PER_UPDATE, n_envs)  # a step of the environments brings n_envs transitions
    return {
        "policy": "CnnPolicy",
        "policy_kwargs": {
            "features_extractor_class": SmallConvolutions, "net_arch": [64],
            "optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.95, "eps": 1e-6},
        },
        "n_envs": n_envs, "gamma": 0.9, "learning_rate": 0.00025, "batch_size": 32, "max_grad_norm": 10.0,
        "buffer_size": min(1_000_000, steps), "learning_starts": 5_000, "target_update_interval": 2_000,
        "train_freq": _STEPS_PER_UPDATE // common, "gradient_steps": n_envs // common,
        "exploration_initial_eps": 1.0, "exploration_final_eps": 0.01, "exploration_fraction": 250_000 / steps,
        "evaluation_epsilon": 0.001, **overrides,
    }  # fmt: skip


def paper_ppo(n_envs: int = 12, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(PPO, env, steps, ...)`` as the paper has them in its 3D task; ``overrides`` replace any.

    Learning rate, entropy coefficient, discount, lambda and the 12 actors are the paper's ("In-domain transfer in
    DMLab"). The rest is ours; the network is for pictures of 40x30 to 80x60.
    """
    network = {"filters": (16, 32, 32), "strides": (2, 2, 2), "units": 128}
    return {
        "policy": "CnnPolicy",
        "policy_kwargs": {
            "features_extractor_class": SmallConvolutions, "features_extractor_kwargs": network, "net_arch": [],
        },
        "n_envs": n_envs, "gamma": 0.99, "learning_rate": 0.00019, "ent_coef": 0.0011, "gae_lambda": 0.95,
        "n_steps": 256, "batch_size": 256, "n_epochs": 4, **overrides,
    }  # fmt: skip
