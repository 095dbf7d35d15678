"""Values that start from a potential: what shaping amounts to (Wiewiora 2003), without touching the rewards."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn
from torch.nn import functional

from secret_rl.trajectories.nested import map_arrays, row_count


@dataclass(frozen=True, eq=False)
class ValuesFrom:
    """``initial`` of ``train`` for DQN and its kin: all values of an observation are first fitted to its potential.

    The agent then learns from unshaped rewards; as with shaping, what is optimal stays as it was.

    >>> import numpy as np
    >>> ValuesFrom(np.zeros((3, 8, 8, 3), np.uint8), np.array([0.0, 0.5, 1.0])).steps
    3000
    """

    observations: Any
    """(rows, ...) as the agent sees them: those of target trajectories, for one."""
    potential: NDArray[np.float64]
    """(rows,) Phi of each: ``learned.lookup(observations)``, ``table.lookup(states)``."""
    steps: int = 3_000
    batch_size: int = 64
    learning_rate: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        rows = row_count(self.observations)
        if np.shape(self.potential) != (rows,) or not rows:
            raise ValueError(f"{rows} observations but potentials of shape {np.shape(self.potential)}: one for each")
        if not np.isfinite(self.potential).all():
            raise ValueError("the potential holds NaN or infinite values: expected finite numbers")
        if self.steps < 1 or self.batch_size < 1 or not self.learning_rate > 0:
            raise ValueError(f"steps, batch_size and learning_rate must be positive, got {self.steps}, "
                             f"{self.batch_size} and {self.learning_rate}")  # fmt: skip

    def prepare(self, model: BaseAlgorithm) -> float:
        """Fit the values of a new agent; gives the mean absolute error that is left."""
        network, target = getattr(model, "q_net", None), getattr(model, "q_net_target", None)
        if not (isinstance(network, nn.Module) and isinstance(target, nn.Module)):
            raise TypeError(
                f"{type(model).__name__} has no q_net whose values could start from a potential: expected DQN or its "
                "kin; shape the rewards of other agents"
            )
        rng = np.random.default_rng(self.seed)
        wanted = torch.as_tensor(np.asarray(self.potential, np.float32), device=model.device)
        optimiser = torch.optim.Adam(network.parameters(), self.learning_rate)
        for _ in range(self.steps):
            rows = rng.integers(len(wanted), size=self.batch_size)
            values = self._values(model, rows)
            loss = functional.mse_loss(values, wanted[rows][:, None].expand_as(values))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        target.load_state_dict(network.state_dict())
        with torch.no_grad():
            every = np.arange(len(wanted))
            return float((self._values(model, every) - wanted[:, None]).abs().mean())

    def _values(self, model: BaseAlgorithm, rows: NDArray[np.int64]) -> Any:
        seen, _ = model.policy.obs_to_tensor(map_arrays(lambda part: np.asarray(part)[rows], self.observations))
        return model.q_net(seen)  # type: ignore[attr-defined]
