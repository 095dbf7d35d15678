"""The deep Q-network of the paper (appendix A, "Transfer in Triggers"), as options of ``train``."""

from math import gcd
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from secret_rl.agents.dqn.options import FILTERS, STRIDES, UNITS, DqnOptions

_PAPER = DqnOptions()


class SmallConvolutions(BaseFeaturesExtractor):
    """Three 3x3 convolutions of 8, 16, 16 filters, strides 2, 1, 1, for small images (rows, columns, channels).

    Padding keeps the edge: without it nothing would be left of a 3x3 image.
    """

    def __init__(self, observation_space: gym.spaces.Box) -> None:
        if not isinstance(observation_space, gym.spaces.Box) or len(observation_space.shape) != 3:
            raise ValueError(f"the convolutions read images (rows, columns, channels), got {observation_space}")
        # What Stable-Baselines3 takes for an image arrives with its channels first.
        self_transposed = is_image_space(observation_space)
        channels = observation_space.shape[0 if self_transposed else 2]
        layers: list[nn.Module] = []
        for inputs, outputs, stride in zip((channels, *FILTERS), FILTERS, STRIDES, strict=False):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU()]
        convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            image = torch.zeros(1, *observation_space.shape)
            features = convolutions(image if self_transposed else image.permute(0, 3, 1, 2)).shape[1]
        super().__init__(observation_space, features)
        self.convolutions = convolutions
        self._transposed = self_transposed

    def forward(self, images: Tensor) -> Tensor:
        """(batch, rows, columns, channels) to (batch, features)."""
        features: Tensor = self.convolutions(images if self._transposed else images.permute(0, 3, 1, 2))
        return features


def paper_dqn(steps: int, n_envs: int = 8, *, dqn: DqnOptions = _PAPER, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(DQN, env, steps, ...)`` as the paper has them; ``overrides`` replace any.

    The numbers are those of ``DqnOptions``, which says which of them the paper leaves open. Epsilon falls over
    ``epsilon_steps`` whatever ``steps`` is: a shorter run stops on the way.

    >>> options = paper_dqn(500_000, n_envs=8)
    >>> options["exploration_fraction"], options["train_freq"], options["gradient_steps"], options["discount"]
    (0.5, 1, 2, 0.9)
    """
    if steps < 1 or n_envs < 1:
        raise ValueError(f"steps and n_envs must be at least 1, got {steps} and {n_envs}")
    # An update is due every few transitions, and a step of the environments brings n_envs of them.
    common = gcd(dqn.train_every, n_envs)
    return {
        "policy": "CnnPolicy",
        "policy_kwargs": {
            "features_extractor_class": SmallConvolutions,
            "net_arch": [UNITS],
            "optimizer_class": torch.optim.RMSprop,
            "optimizer_kwargs": {"alpha": dqn.decay, "eps": dqn.stabiliser},
        },
        "n_envs": n_envs,
        "discount": dqn.discount,
        "learning_rate": dqn.learning_rate,
        "buffer_size": min(dqn.replay, steps),
        "learning_starts": dqn.random_steps,
        "batch_size": dqn.batch_size,
        "train_freq": dqn.train_every // common,
        "gradient_steps": n_envs // common,
        "target_update_interval": dqn.target_every,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": dqn.epsilon_final,
        "exploration_fraction": dqn.epsilon_steps / steps,
        "max_grad_norm": dqn.clip,
        "evaluation_epsilon": dqn.epsilon_test,
        **overrides,
    }
