"""Infos of vector environments, taken apart: one dict for each environment."""

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AS_PYTHON = "?lqdO"  # what Gymnasium stores bool, int, float and objects as; other numbers stay NumPy's


def listed_infos(
    infos: Mapping[str, Any], n: int, common: Mapping[str, Any] | None = None, *, rows: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """The infos of ``n`` environments, in the layout of Gymnasium, as a list; ``common`` entries go to all of them.

    ``rows`` (n,) are the environments that are asked for; None: all there are.

    >>> infos = {"state": np.array([3, 5]), "luck": np.array([0.5, 0.0]), "_luck": np.array([True, False])}
    >>> listed_infos(infos, 2), listed_infos(infos, 1, {"new": True}, rows=np.array([1]))
    ([{'state': 3, 'luck': 0.5}, {'state': 5}], [{'state': 5, 'new': True}])
    """
    names: list[str] = []
    columns: list[Any] = []
    missing: list[tuple[str, NDArray[np.int64]]] = []
    for name, values in infos.items():
        there = infos.get("_" + name)
        if there is None:
            if name[:1] == "_" and name[1:] in infos:
                continue  # it tells which values of another entry are there
        else:
            there = there if rows is None else there[rows]
            count = np.count_nonzero(there)
            if count == 0:
                continue
            if count < n:
                missing.append((name, (~there).nonzero()[0]))
        names.append(name)
        columns.append(_column(values, n, rows))
    for name, value in (common or {}).items():
        names.append(name)
        columns.append(repeat(value, n))
    listed = _dicts(names, columns, n)
    for name, gaps in missing:
        for i in gaps.tolist():
            del listed[i][name]
    return listed


def _column(values: Any, n: int, rows: NDArray[np.int64] | None) -> Any:
    """One entry of all environments."""
    if isinstance(values, Mapping):
        return listed_infos(values, n, rows=rows)
    chosen = values if rows is None else values[rows]
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.char in _AS_PYTHON:
        return chosen.tolist()
    return list(chosen)


def _dicts(names: list[str], columns: list[Any], n: int) -> list[dict[str, Any]]:
    """One dict for each row of the columns. Written out for few: a step makes one for every environment."""
    rows = zip(*columns, strict=True)
    match names:
        case []:
            return [{} for _ in range(n)]
        case [a]:
            return [{a: x} for (x,) in rows]
        case [a, b]:
            return [{a: x, b: y} for x, y in rows]
        case [a, b, c]:
            return [{a: x, b: y, c: z} for x, y, z in rows]
        case [a, b, c, d]:
            return [{a: x, b: y, c: z, d: w} for x, y, z, w in rows]
        case [a, b, c, d, e]:
            return [{a: x, b: y, c: z, d: w, e: v} for x, y, z, w, v in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]
