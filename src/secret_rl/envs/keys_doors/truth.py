"""What truly earned a reward in keys and doors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def door_causes(data: Any) -> NDArray[np.int64]:
    """(steps,) for each step that opened a door, the step of its episode that took the key; -1 for all others.

    ``data`` are ``Trajectories`` of this environment, with the annotations that ``collect`` keeps.
    """
    missing = {"key_picked", "door_opened"} - data.annotations.keys()
    if missing:
        raise ValueError(
            f"these trajectories hold no annotation {' and no '.join(sorted(missing))}, only "
            f"{sorted(data.annotations)}: collect them from secret_rl/KeysDoors-v0"
        )
    picked, opened = (np.asarray(data.annotations[name]) for name in ("key_picked", "door_opened"))
    offsets = np.asarray(data.offsets) - data.offsets[0]
    starts = np.repeat(offsets[:-1], np.diff(offsets))
    flat = np.arange(len(picked))
    causes = np.full(len(picked), -1, np.int64)
    for colour in np.unique(opened[opened > 0]):
        latest = np.maximum.accumulate(np.where(picked == colour, flat, -1))
        found = (opened == colour) & (latest >= starts) & (latest < flat)
        causes[found] = (latest - starts)[found]
    return causes
