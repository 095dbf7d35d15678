"""Ways to hide part of an observation, for environments and for stored trajectories alike."""

from secret_rl.views.centered import CenteredView
from secret_rl.views.described import view_from_json, view_to_json
from secret_rl.views.kinds import CropView, DropView, MaskView, View
from secret_rl.views.transform import apply_view
from secret_rl.views.wrappers import VectorViewObservation, ViewObservation

__all__ = [
    "CenteredView", "CropView", "DropView", "MaskView", "VectorViewObservation", "View", "ViewObservation",
    "apply_view", "view_from_json", "view_to_json",
]  # fmt: skip
