"""Credit read out of a fitted model in other ways than attention alone."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import secret_rl as srl
from secret_rl.credit.secret.model import Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Tokens

READOUTS = ("attention", "attention x value", "leave-one-out")
_ALL_ATTENTION = 1 - 1e-4


@torch.no_grad()
def read_out(secret: srl.Secret, data: srl.Trajectories, found: srl.Attributions, readout: str) -> srl.Attributions:
    """The rows that ``secret.attribute(data)`` found, with credit of another read-out.

    "attention x value" multiplies attention with the size of what was attended to, "leave-one-out" is how much less
    likely the reward is without the step. A row for which it is 0 everywhere keeps its attention.
    """
    if readout == "attention":
        return found
    model, tokens, weights = secret.fitted_for(data), Tokens.of(data, secret.reward_classes), found.weights.copy()
    for episode in np.unique(found.episode):
        rows = np.flatnonzero(found.episode == episode)
        batch = tokens.batch(np.array([episode]), secret.device)
        times = torch.from_numpy(found.predicted_at[rows]).to(secret.device)
        encoded = model.prepare(model.encode(batch.rows, Dropout(None)))
        prediction, row_x, value = model.predict_rows(encoded, batch.index, times[None])
        if readout == "attention x value":
            credit = prediction.weights[0, :, 1:] * value[0].norm(dim=-1)
        else:
            classes = batch.classes[0, torch.from_numpy(found.step[rows]).to(secret.device)]
            values = value.expand(len(rows), -1, -1)
            credit = leave_one_out(model, row_x[0], prediction.weights[0], values, classes).clamp(min=0)
        for row, part in zip(rows.tolist(), credit.cpu().numpy(), strict=True):
            attention = found.row(row)
            other = part[: len(attention)] * (attention > 0)
            if other.sum() > 0:
                weights[found.offsets[row] : found.offsets[row + 1]] = other / other.sum()
    return replace(found, weights=weights)


def leave_one_out(model: RewardPredictor, row_x: Tensor, weights: Tensor, value: Tensor, classes: Tensor) -> Tensor:
    """(rows, key) how much log-probability of ``classes`` (rows,) each step adds to the prediction of a row.

    ``weights`` (rows, 1 + key), ``value`` (rows, key, units). A step is taken out of what the row gathers, and the
    others take over its attention: exact with one layer. Where it has all of it, the sink takes over.
    """
    share = weights[:, 1:, None]
    mixed = (weights[:, None, 1:] @ value + weights[:, :1, None] * model.sink_value).expand_as(value)
    others = (mixed - share * value) / (1 - share).clamp(min=1 - _ALL_ATTENTION)
    others = torch.where(share > _ALL_ATTENTION, model.sink_value.expand_as(value), others)
    chosen = classes[:, None, None].expand(*value.shape[:2], 1)
    whole, without = (
        model.classify(row_x[:, None].expand_as(value), gathered, Dropout(None)).log_softmax(-1).gather(-1, chosen)
        for gathered in (mixed[:, :1].expand_as(value), others)
    )
    return (whole - without)[..., 0]
