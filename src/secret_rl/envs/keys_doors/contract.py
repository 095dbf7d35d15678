"""What every keys-and-doors world takes, tells and pays, whatever engine it runs on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.options import WorldOptions

METADATA: dict[str, Any] = {
    "render_modes": ["rgb_array"],
    "render_fps": 9,
    "annotations": ("key_picked", "door_opened", "goal_reached", "held_key", "position"),  # info that collect keeps
}
STATE_CELL = 50
"""Side of the cells that positions are counted in for ``info["state"]`` (appendix A)."""
ACTIONS = ("forward", "backward", "rotate left", "rotate right")


def check_render_mode(render_mode: str | None) -> None:
    """Raise unless a world can be rendered so."""
    if render_mode is not None and render_mode not in METADATA["render_modes"]:
        raise ValueError(f"render_mode must be one of {METADATA['render_modes']}, got {render_mode!r}")


def check_action(action: int) -> None:
    """Raise unless ``action`` is the number of one of ``ACTIONS``."""
    if not 0 <= action < len(ACTIONS):
        names = ", ".join(f"{number} ({name})" for number, name in enumerate(ACTIONS))
        raise ValueError(f"action must be one of {names}, got {action!r}")


def state_of(position: tuple[float, float], held: int) -> NDArray[np.int64]:
    """``info["state"]``: the cell of 50 x 50 units one stands in, and the held key."""
    x, y = position
    return np.array([x // STATE_CELL, y // STATE_CELL, held], np.int64)


def reward_of(info: Mapping[str, Any], options: WorldOptions) -> float:
    """What a step pays for the events that ``info`` tells of."""
    paid = (
        (info["key_picked"], options.key_reward),
        (info["door_opened"], options.door_reward),
        (info["goal_reached"], options.goal_reward),
    )
    return float(sum(reward for happened, reward in paid if happened))
