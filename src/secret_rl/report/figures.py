"""Pictures written to files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replacing

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing


def save_frames(frames: "list[NDArray[Any]]", path: str | Path, gap: int = 16) -> Path:
    """Write RGB frames of one height side by side as a PNG, on a white ground."""
    path = Path(path)
    height = max(frame.shape[0] for frame in frames)
    width = sum(frame.shape[1] for frame in frames) + gap * (len(frames) - 1)
    sheet = np.full((height, width, 3), 255, np.uint8)
    left = 0
    for frame in frames:
        sheet[: frame.shape[0], left : left + frame.shape[1]] = frame
        left += frame.shape[1] + gap
    with replacing(path) as temporary:
        Image.fromarray(sheet).save(temporary, format="PNG")
    return path
