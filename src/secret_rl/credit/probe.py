"""Whether the past could tell at all: a predictor that pools the past instead of choosing from it.

Attention may stay on a plateau that a pooled past does not have. Where neither gains anything, the past most likely
decides nothing; where only the pooled one does, attention has not learned yet.
"""

import torch
from torch import Tensor, nn

from secret_rl.credit.encoders import Spec
from secret_rl.credit.model import Dropout, Prediction, RewardPredictor
from secret_rl.credit.options import ModelOptions


class PooledPredictor(RewardPredictor):
    """Sees the mean and the maximum over all earlier steps, the first step and the one before."""

    def __init__(self, observation: Spec, action: Spec, classes: int, options: ModelOptions) -> None:
        super().__init__(observation, action, classes, options)
        self.pooling = nn.Linear(4 * options.units, options.units)

    def forward(self, tokens: Tensor, index: Tensor, dropout: "Dropout | None" = None) -> Prediction:
        """Predict every step of a batch; there is no attention."""
        dropout = dropout or Dropout(None)
        x, _, _, value = self.steps(tokens, index)
        seen = torch.relu(value)
        before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
        count = torch.arange(seen.shape[1], device=seen.device).clamp(min=1)[:, None]
        # of a transition, the first step itself would show what is observed after it
        first = torch.cat([before[:, :1], seen[:, :1].expand(-1, seen.shape[1] - 1, -1)], 1)
        pooled = [before.cumsum(1) / count, before.cummax(1).values, first, before]
        nothing = torch.zeros(*index.shape, 1, device=x.device)
        return Prediction(self.classify(x, self.pooling(torch.cat(pooled, -1)), dropout), nothing, nothing)
