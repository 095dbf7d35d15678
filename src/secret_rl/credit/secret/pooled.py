"""A predictor that sees a pooled past: what attention is judged against."""

import torch
from torch import Tensor, nn

from secret_rl.credit.secret.model import PAIRS_AT_A_TIME, Dropout, Outcome, Prediction, RewardPredictor
from secret_rl.credit.secret.options import ModelOptions
from secret_rl.encoders import Spec


class PooledPredictor(RewardPredictor):
    """Sees the mean and maximum over earlier steps, the first one, the one before, and how often its own came before.

    Attention may stay on a plateau that a pooled past does not have. Where neither gains anything, the past most likely
    decides nothing; where only the pooled one does, attention has not learned yet.
    """

    def __init__(self, observation: Spec, action: Spec, classes: int, options: ModelOptions) -> None:
        super().__init__(observation, action, classes, options)
        self.pooling = nn.Linear(4 * options.units + 1, options.units)

    def forward(
        self, tokens: Tensor, index: Tensor, dropout: "Dropout | None" = None, past: Tensor | None = None
    ) -> Prediction:
        """Predict every step of a batch."""
        dropout = dropout or Dropout(None)
        x, _, _, value = self.steps(tokens, index, past)
        past = index if past is None else past
        often = _times_before(index, past)[..., None].float().log1p()
        seen = torch.relu(value)
        before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
        count = torch.arange(seen.shape[1], device=seen.device).clamp(min=1)[:, None]
        # of a transition, the first step itself would show what is observed after it
        first = torch.cat([before[:, :1], seen[:, :1].expand(-1, seen.shape[1] - 1, -1)], 1)
        pooled = torch.cat([before.cumsum(1) / count, before.cummax(1).values, first, before, often], -1)
        nothing = torch.zeros(*index.shape, 1, device=x.device)
        return Prediction(self.classify(x, self.pooling(pooled), dropout), nothing, nothing)

    def predict(
        self, tokens: Tensor, index: Tensor, dropout: "Dropout | None" = None, past: Tensor | None = None
    ) -> Outcome:
        """The same, for the loss."""
        whole = self(tokens, index, dropout, past)
        return Outcome(whole.logits, whole.on_sink)


def _times_before(index: Tensor, past: Tensor) -> Tensor:
    """(batch, time) how often each step's own token is among the steps of ``past`` before it."""
    parts, rows = [], max(1, PAIRS_AT_A_TIME // index.numel())
    for first in range(0, index.shape[1], rows):
        own, before = index[:, first : first + rows, None], past[:, None, : first + rows]
        parts.append((own == before).tril(first - 1).sum(-1))
    return torch.cat(parts, 1)
