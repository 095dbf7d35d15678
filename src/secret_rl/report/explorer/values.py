"""Observations that are no pictures, as rows of numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.report.explorer.describing import short
from secret_rl.trajectories import Episode
from secret_rl.trajectories.nested import map_arrays, named_arrays

_MOST_NUMBERS = 4_000
"""Of an episode: long ones show fewer rows."""
_MOST_ROWS = 12


def plain_values(episode: Episode) -> dict[str, Any]:
    """The first numbers of each observation by name, before the first step and after each."""
    columns: list[tuple[str, NDArray[Any]]] = []
    for path, rows in named_arrays("observation", _with_final(episode)):
        flat = np.asarray(rows).reshape(len(rows), -1)
        name = path.removeprefix("observation/")
        columns += [(name if flat.shape[1] == 1 else f"{name}[{i}]", flat[:, i]) for i in range(flat.shape[1])]
    most = max(1, min(_MOST_ROWS, _MOST_NUMBERS // (len(episode) + 1)))
    return {
        "names": [name for name, _ in columns[:most]],
        "rows": [[short(number) for number in column] for _, column in columns[:most]],
        "left_out": max(0, len(columns) - most),
    }


def actions(episode: Episode) -> list[Any]:
    """Discrete actions as numbers, others as short texts."""
    rows = episode.actions
    if isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu":
        return [int(action) for action in rows]
    parts = [np.asarray(array).reshape(len(episode), -1) for _, array in named_arrays("", rows)]
    flat = np.concatenate(parts, axis=1)
    return [" ".join(f"{number:.3g}" for number in row[:6]) + (" …" if len(row) > 6 else "") for row in flat]


def _with_final(episode: Episode) -> Any:
    """One row more than there are steps; the last again where it is not known what the last step led to."""

    def joined(rows: NDArray[Any], last: Any) -> NDArray[Any]:
        return np.concatenate([rows, np.asarray(last, rows.dtype)[None]])

    if episode.final_observation is None:
        return map_arrays(lambda rows: np.concatenate([rows, rows[-1:]]), episode.observations)
    return map_arrays(joined, episode.observations, episode.final_observation)
