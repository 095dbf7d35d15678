"""Infos of vector environments as a list: one dict for each environment."""

from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AS_PYTHON = "?lqdO"  # what Gymnasium stores bool, int, float and objects as; other numbers stay NumPy's


def listed_infos(
    infos: Mapping[str, Any], n: int, common: Mapping[str, Any] | None = None, *, rows: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """The infos of ``n`` environments, in the layout of Gymnasium, as a list.

    Args:
        infos: Of a vector environment: an array of each entry, and a mask ``_entry`` where some have none.
        n: How many environments are listed.
        common: Entries that all of them get.
        rows: (n,) which environments; None: all there are.

    >>> infos = {"state": np.array([3, 5]), "luck": np.array([0.5, 0.0]), "_luck": np.array([True, False])}
    >>> listed_infos(infos, 2), listed_infos(infos, 1, {"new": True}, rows=np.array([1]))
    ([{'state': 3, 'luck': 0.5}, {'state': 5}], [{'state': 5, 'new': True}])
    """
    listed: list[dict[str, Any]] = [{} for _ in range(n)]
    for name, values in infos.items():
        mask = infos.get("_" + name)
        if mask is None and name[:1] == "_" and name[1:] in infos:
            continue  # the mask of another entry
        if isinstance(values, Mapping):
            column: Any = listed_infos(values, n, rows=rows)
        else:
            column = values if rows is None else values[rows]
            if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.char in _AS_PYTHON:
                column = column.tolist()
        pairs: Iterable[Any] = zip(listed, column, strict=True)
        if mask is not None and not mask.all():
            pairs = compress(pairs, (mask if rows is None else mask[rows]).tolist())
        for info, value in pairs:
            info[name] = value
    for name, value in (common or {}).items():
        for info in listed:
            info[name] = value
    return listed
