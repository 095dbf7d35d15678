"""Trajectories at a glance."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from secret_rl.trajectories.types import Trajectories


@dataclass(frozen=True)
class Summary:
    """Numbers that tell whether data can teach credit: how long, how rewarded, how often successful."""

    episodes: int
    steps: int
    mean_length: float
    max_length: int
    mean_return: float
    min_return: float
    max_return: float
    positive_rewards: int
    negative_rewards: int
    successful_episodes: int
    terminated_episodes: int
    truncated_episodes: int
    drawn: int | None
    """Episodes rolled out to get these, where that was recorded."""

    @classmethod
    def of(cls, data: "Trajectories") -> "Summary":
        """Summarise; reads the rewards and flags only."""
        lengths, returns, rewards = data.lengths, data.returns, data.rewards
        empty = not len(data)
        drawn = data.meta.get("drawn")
        return cls(
            episodes=len(data),
            steps=data.steps,
            mean_length=0.0 if empty else float(lengths.mean()),
            max_length=0 if empty else int(lengths.max()),
            mean_return=0.0 if empty else float(returns.mean()),
            min_return=0.0 if empty else float(returns.min()),
            max_return=0.0 if empty else float(returns.max()),
            positive_rewards=int(np.count_nonzero(rewards > 0)),
            negative_rewards=int(np.count_nonzero(rewards < 0)),
            successful_episodes=int(np.count_nonzero(data.successful)),
            terminated_episodes=int(np.count_nonzero(data.terminated)),
            truncated_episodes=int(np.count_nonzero(data.truncated)),
            drawn=drawn if isinstance(drawn, int) else None,
        )

    @property
    def success_share(self) -> float:
        """The share of episodes that hold a positive reward."""
        return self.successful_episodes / max(self.episodes, 1)

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        return {**asdict(self), "success_share": self.success_share}

    def __str__(self) -> str:
        lines = [
            f"episodes    {self.episodes:,} ({self.terminated_episodes:,} terminated, "
            f"{self.truncated_episodes:,} truncated)",
            f"steps       {self.steps:,} (mean {self.mean_length:.1f}, longest {self.max_length:,} per episode)",
            f"returns     mean {self.mean_return:.3f}, from {self.min_return:g} to {self.max_return:g}",
            f"rewards     {self.positive_rewards:,} positive, {self.negative_rewards:,} negative",
            f"successful  {self.successful_episodes:,} episodes hold a positive reward ({self.success_share:.2%})",
        ]
        if self.drawn is not None and self.drawn != self.episodes:
            lines.append(f"drawn       {self.drawn:,} episodes were rolled out to keep these")
        return "\n".join(lines)
