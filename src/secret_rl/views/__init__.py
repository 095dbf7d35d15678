"""Ways to hide part of an observation, for environments and for stored trajectories alike."""

from secret_rl.views.kinds import CenteredView, CropView, DropView, MaskView, View, view_from_json, view_to_json
from secret_rl.views.wrappers import ViewObservation, apply_view

__all__ = [
    "CenteredView", "CropView", "DropView", "MaskView", "View", "ViewObservation",
    "apply_view", "view_from_json", "view_to_json",
]  # fmt: skip
