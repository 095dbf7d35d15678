"""Ways to hide part of an observation, for environments and for stored trajectories alike."""

from secret_rl.views.kinds import CropView, DropView, MaskView, View, view_from_json, view_to_json
from secret_rl.views.transform import apply_view
from secret_rl.views.wrappers import VectorViewObservation, ViewObservation

__all__ = [
    "CropView", "DropView", "MaskView", "VectorViewObservation", "View", "ViewObservation",
    "apply_view", "view_from_json", "view_to_json",
]  # fmt: skip
