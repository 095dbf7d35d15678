"""A start for fits that come to nothing: learn by name first, then teach the encoder what the names came to mean.

Views that differ in one cell are almost the same to a new encoder, and attention cannot tell them apart well enough to
begin. Where data hold few distinct steps, an embedding of each one can. Once such a model predicts the rewards, the
encoder is fitted to its embeddings, and training goes on from there without names, which new data would not have.
"""

from typing import cast

import torch
from torch import Tensor, nn

from secret_rl.credit.secret.model import Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Rows, Tokens
from secret_rl.encoders import Spec

_SPREAD = 0.05  # of new embeddings: small, so that only those that matter leave what the encoder says
_UPDATES, _BATCH, _RATE = 400, 512, 2e-3
_FALLING = 0.3  # share of the updates in which the learning rate falls


class NamedPredictor(RewardPredictor):
    """A reward predictor that adds an embedding of its own to each distinct step."""

    def __init__(self, model: RewardPredictor, specs: tuple[Spec, Spec], names: int) -> None:
        super().__init__(*specs, model.head.out_features, model.options)
        self.load_state_dict(model.state_dict())
        self.names = nn.Embedding(names, model.options.units)
        nn.init.normal_(self.names.weight, std=_SPREAD)

    def embed(self, rows: Rows, dropout: Dropout) -> tuple[Tensor, Tensor]:
        """(tokens, units) of each step, and of what it observes."""
        return cast(tuple[Tensor, Tensor], self.encoder(rows, dropout, self.names(rows.names)))


def teach_encoder(model: RewardPredictor, teacher: NamedPredictor, tokens: Tokens, seed: int) -> None:
    """Give ``model`` the weights of ``teacher``, and its encoder what the names mean."""
    weights = {name: value for name, value in teacher.state_dict().items() if not name.startswith("names.")}
    model.load_state_dict(weights)
    device = teacher.head.weight.device
    assert tokens.names is not None
    generator = torch.Generator().manual_seed(seed % 2**63)
    optimiser = torch.optim.AdamW(model.encoder.parameters(), lr=_RATE)
    model.train()
    teacher.eval()
    for update in range(_UPDATES):
        optimiser.param_groups[0]["lr"] = _RATE * min(1.0, (1 - update / _UPDATES) / _FALLING)
        some = torch.randperm(len(tokens.names), generator=generator)[:_BATCH]
        rows = tokens.table(device, some.numpy())
        with torch.no_grad():
            target = teacher.encode(rows, Dropout(None))
        loss = nn.functional.mse_loss(model.encode(rows, Dropout(None)), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
