"""Deep agents as options of ``train``: those that learn from credit, and those of the paper (appendix A)."""

from collections.abc import Sequence
from math import gcd
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

FILTERS, STRIDES = (8, 16, 16), (2, 1, 1)  # of the paper's DQN: three 3x3 convolutions
UNITS = 64  # of the dense layer behind them
STEPS_PER_UPDATE = 4


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
        filters: Sequence[int] = FILTERS,
        strides: Sequence[int] = STRIDES,
        units: int = 0,
    ) -> None:
        if not isinstance(observation_space, gym.spaces.Box) or len(observation_space.shape) != 3:
            raise ValueError(f"the convolutions read images (rows, columns, channels), got {observation_space}")
        if not filters or len(filters) != len(strides):
            raise ValueError(f"each convolution needs filters and a stride, got {filters} and {strides}")
        # What Stable-Baselines3 takes for an image arrives with its channels first.
        transposed = is_image_space(observation_space)
        rows, columns, channels = observation_space.shape
        if transposed:
            channels, rows, columns = observation_space.shape
        layers: list[nn.Module] = []
        for inputs, outputs, stride in zip((channels, *filters), filters, strides, strict=False):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU()]
        layers.append(nn.Flatten())
        with torch.no_grad():
            features = nn.Sequential(*layers)(torch.zeros(1, channels, rows, columns)).shape[1]
        if units:
            layers += [nn.Linear(features, units), nn.ReLU()]
        super().__init__(observation_space, units or features)
        self.convolutions = nn.Sequential(*layers)
        self._transposed = transposed

    def forward(self, images: Tensor) -> Tensor:
        """(batch, rows, columns, channels) to (batch, features)."""
        features: Tensor = self.convolutions(images if self._transposed else images.permute(0, 3, 1, 2))
        return features


def dqn(steps: int, n_envs: int = 8, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(DQN, env, steps, ...)`` that leave credit something to do; ``overrides`` replace any.

    All of ``paper_dqn``, its network and discount of 0.9 included, but for exploration, where the numbers are ours:
    epsilon falls to 0.05 over the first tenth of the steps. An agent that acts at random for 250,000 steps, as the
    paper's does, cannot follow credit.

    Credit goes best with a bonus, and with credited transitions drawn more often::

        train(DQN, env, steps, shaping=bonus_with(OnlineCredit(secret), scale=3, fade_steps=2 * steps // 3),
              replay_buffer_class=ShapedReplayBuffer, replay_buffer_kwargs={"priority": 0.25}, **dqn(steps))

    >>> options = dqn(300_000)
    >>> options["exploration_final_eps"], options["exploration_fraction"], options["gamma"]
    (0.05, 0.1, 0.9)

    Args:
        steps: Environment steps of the training.
        n_envs: Environments at a time.
        overrides: Options of ``train`` or ``DQN`` that replace these.
    """
    return paper_dqn(steps, n_envs) | {"exploration_final_eps": 0.05, "exploration_fraction": 0.1} | overrides


def ppo(n_envs: int = 32, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(PPO, env, steps, ...)`` that explore enough to meet credit; ``overrides`` replace any.

    All numbers are ours, from mazes of Triggers that agents see whole: two layers of 128 units, 128 steps of each of 32
    environments between updates, 4 epochs of 4 batches, learning rate 0.001, entropy coefficient 0.03, discount 0.99
    and lambda 0.95. Where rewards are easy to find, 16 environments and an entropy coefficient of 0.01 are enough.

    Credit goes best with a bonus, where rewards are rare with one for visit counts beside it::

        train(PPO, env, steps, **ppo(), shaping=[
            bonus_with(OnlineCredit(secret), scale=10), bonus_with(VisitCounts(), scale=0.1),
        ])

    In big mazes a bonus that fades over half of the steps is gone before many agents have found the prize.

    >>> options = ppo()
    >>> options["n_envs"], options["n_steps"], options["batch_size"], options["ent_coef"], options["learning_rate"]
    (32, 128, 1024, 0.03, 0.001)

    Args:
        n_envs: Environments at a time.
        overrides: Options of ``train`` or ``PPO`` that replace these.
    """
    if n_envs < 1:
        raise ValueError(f"n_envs must be at least 1, got {n_envs}")
    return {
        "policy": "MlpPolicy", "policy_kwargs": {"net_arch": [128, 128]}, "n_envs": n_envs, "gamma": 0.99,
        "learning_rate": 0.001, "ent_coef": 0.03, "gae_lambda": 0.95, "n_steps": 128, "batch_size": 32 * n_envs,
        "n_epochs": 4, **overrides,
    }  # fmt: skip


def paper_dqn(steps: int, n_envs: int = 8, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(DQN, env, steps, ...)`` as the paper has them in Triggers; ``overrides`` replace any.

    Epsilon falls over 250,000 steps whatever ``steps`` is: a shorter run stops on the way. The paper leaves open the
    discount (with 0.99 this small network overestimates values until agents only walk about), the decay and epsilon
    of RMSProp (with the usual 0.01 these small gradients hardly move anything), the batch size, the four steps between
    updates and the clipping of gradients.

    >>> options = paper_dqn(500_000, n_envs=8)
    >>> options["exploration_fraction"], options["train_freq"], options["gradient_steps"], options["gamma"]
    (0.5, 1, 2, 0.9)

    Args:
        steps: Environment steps of the training.
        n_envs: Environments at a time; there is one update for every four steps, however many they are.
        overrides: Options of ``train`` or ``DQN`` that replace those of the paper.
    """
    if steps < 1 or n_envs < 1:
        raise ValueError(f"steps and n_envs must be at least 1, got {steps} and {n_envs}")
    common = gcd(STEPS_PER_UPDATE, n_envs)  # a step of the environments brings n_envs transitions
    return {
        "policy": "CnnPolicy",
        "policy_kwargs": {
            "features_extractor_class": SmallConvolutions, "net_arch": [UNITS],
            "optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.95, "eps": 1e-6},
        },
        "n_envs": n_envs, "gamma": 0.9, "learning_rate": 0.00025, "batch_size": 32, "max_grad_norm": 10.0,
        "buffer_size": min(1_000_000, steps), "learning_starts": 5_000, "target_update_interval": 2_000,
        "train_freq": STEPS_PER_UPDATE // common, "gradient_steps": n_envs // common,
        "exploration_initial_eps": 1.0, "exploration_final_eps": 0.01, "exploration_fraction": 250_000 / steps,
        "evaluation_epsilon": 0.001, **overrides,
    }  # fmt: skip


def paper_ppo(n_envs: int = 12, **overrides: Any) -> dict[str, Any]:
    """Options for ``train(PPO, env, steps, ...)`` as the paper has them in its 3D task; ``overrides`` replace any.

    Learning rate, entropy coefficient, discount, lambda and the 12 actors are the paper's ("In-domain transfer in
    DMLab"). It leaves the rest open: 256 steps of each actor between updates, 4 epochs of batches of 256, and a network
    of three strided convolutions and 128 dense units, for pictures of 40x30 to 80x60, are ours. Actor and critic share
    that network.

    >>> options = paper_ppo()
    >>> options["learning_rate"], options["ent_coef"], options["gamma"], options["gae_lambda"], options["n_envs"]
    (0.00019, 0.0011, 0.99, 0.95, 12)
    """
    if n_envs < 1:
        raise ValueError(f"n_envs must be at least 1, got {n_envs}")
    return {
        "policy": "CnnPolicy",
        "policy_kwargs": {
            "features_extractor_class": SmallConvolutions,
            "features_extractor_kwargs": {"filters": (16, 32, 32), "strides": (2, 2, 2), "units": 128},
            "net_arch": [],
        },
        "n_envs": n_envs, "gamma": 0.99, "learning_rate": 0.00019, "ent_coef": 0.0011, "gae_lambda": 0.95,
        "n_steps": 256, "batch_size": 256, "n_epochs": 4, **overrides,
    }  # fmt: skip
