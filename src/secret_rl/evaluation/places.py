"""Where attention falls: over the places that trajectories pass (the paper's attention heat map)."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secret_rl.credit import Attributions


def attention_by_place(
    attributions: "Attributions",
    places: NDArray[np.int64],
    shape: tuple[int, int],
    *,
    rows: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """``shape``: the mean attention of a step in each place; NaN where no step was.

    ``places`` (steps, 2) are whole numbers from 0, one pair for each step of the trajectories that were attributed,
    laid end to end. ``rows`` chooses among the rewards attributed, those of one door for example; every step up to
    such a reward counts, with the attention that reward pays to it.
    """
    places = np.asarray(places)
    starts = np.concatenate([[0], np.cumsum(attributions.lengths)])
    if places.shape != (starts[-1], 2):
        raise ValueError(f"places of shape {places.shape}, but the attributions are of {starts[-1]} steps: expected "
                         f"({starts[-1]}, 2)")  # fmt: skip
    if len(places) and (places.min() < 0 or (places.max(0) >= shape).any()):
        raise ValueError(f"places from {places.min(0)} to {places.max(0)} do not lie in a grid of shape {shape}")
    chosen = np.ones(len(attributions), np.bool_) if rows is None else np.asarray(rows, np.bool_)
    if chosen.shape != (len(attributions),):
        raise ValueError(f"rows of shape {chosen.shape} for {len(attributions)} rewards")
    sizes = np.diff(attributions.offsets)
    of_row = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(of_row)) - np.repeat(attributions.offsets[:-1], sizes)
    kept = chosen[of_row]
    passed = places[(starts[attributions.episode[of_row]] + step)[kept]]
    flat = passed[:, 0] * shape[1] + passed[:, 1]
    cells = shape[0] * shape[1]
    visits = np.bincount(flat, minlength=cells)
    total = np.bincount(flat, weights=attributions.weights[kept].astype(np.float64), minlength=cells)
    with np.errstate(invalid="ignore"):
        return np.asarray((total / np.where(visits, visits, np.nan)).reshape(shape))
