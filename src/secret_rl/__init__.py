"""secret-rl: find out which past actions earned a reward, and learn new tasks faster with it."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from secret_rl.files import VERSION

if TYPE_CHECKING:
    from secret_rl.agents import LearningCurve as LearningCurve
    from secret_rl.agents import QLearning as QLearning
    from secret_rl.credit import Attributions as Attributions
    from secret_rl.credit import Secret as Secret
    from secret_rl.credit import adapt as adapt
    from secret_rl.evaluation import compare as compare
    from secret_rl.evaluation import credit_quality as credit_quality
    from secret_rl.experimental import OnlineSecret as OnlineSecret
    from secret_rl.experimental import learn_online as learn_online
    from secret_rl.files import FileFormatError as FileFormatError
    from secret_rl.files import ResumeError as ResumeError
    from secret_rl.minari import from_minari as from_minari
    from secret_rl.minari import to_minari as to_minari
    from secret_rl.sb3 import DeepCurve as DeepCurve
    from secret_rl.sb3 import GymnasiumVecEnv as GymnasiumVecEnv
    from secret_rl.sb3 import OnlineSecretCallback as OnlineSecretCallback
    from secret_rl.sb3 import PotentialShapingVecEnv as PotentialShapingVecEnv
    from secret_rl.sb3 import ShapedReplayBuffer as ShapedReplayBuffer
    from secret_rl.sb3 import from_replay_buffer as from_replay_buffer
    from secret_rl.sb3 import from_rollout_buffer as from_rollout_buffer
    from secret_rl.sb3 import paper_dqn as paper_dqn
    from secret_rl.sb3 import paper_ppo as paper_ppo
    from secret_rl.sb3 import sb3_envs as sb3_envs
    from secret_rl.sb3 import shape_with as shape_with
    from secret_rl.sb3 import train as train
    from secret_rl.shaping import Cells as Cells
    from secret_rl.shaping import ChangingPotential as ChangingPotential
    from secret_rl.shaping import EventCredit as EventCredit
    from secret_rl.shaping import LearnedPotential as LearnedPotential
    from secret_rl.shaping import NoPotential as NoPotential
    from secret_rl.shaping import Observed as Observed
    from secret_rl.shaping import OnlineCredit as OnlineCredit
    from secret_rl.shaping import PotentialShaping as PotentialShaping
    from secret_rl.shaping import ReplayShaping as ReplayShaping
    from secret_rl.shaping import TablePotential as TablePotential
    from secret_rl.shaping import VectorPotentialShaping as VectorPotentialShaping
    from secret_rl.shaping import estimate_potential as estimate_potential
    from secret_rl.shaping import learn_potential as learn_potential
    from secret_rl.trajectories import Episode as Episode
    from secret_rl.trajectories import Recorder as Recorder
    from secret_rl.trajectories import Trajectories as Trajectories
    from secret_rl.trajectories import collect as collect
    from secret_rl.views import CenteredView as CenteredView
    from secret_rl.views import CropView as CropView
    from secret_rl.views import DropView as DropView
    from secret_rl.views import MaskView as MaskView
    from secret_rl.views import VectorViewObservation as VectorViewObservation
    from secret_rl.views import ViewObservation as ViewObservation
    from secret_rl.views import apply_view as apply_view

__version__ = VERSION

# Public names and where they live. They are imported on first use: `import secret_rl` stays quick and pulls
# neither PyTorch nor Numba.
_HOMES = {
    "FileFormatError": "secret_rl.files",
    "ResumeError": "secret_rl.files",
    "LearningCurve": "secret_rl.agents",
    "QLearning": "secret_rl.agents",
    "DeepCurve": "secret_rl.sb3",
    "ShapedReplayBuffer": "secret_rl.sb3",
    "paper_dqn": "secret_rl.sb3",
    "paper_ppo": "secret_rl.sb3",
    "train": "secret_rl.sb3",
    "Attributions": "secret_rl.credit",
    "Secret": "secret_rl.credit",
    "adapt": "secret_rl.credit",
    "GymnasiumVecEnv": "secret_rl.sb3",
    "sb3_envs": "secret_rl.sb3",
    "compare": "secret_rl.evaluation",
    "credit_quality": "secret_rl.evaluation",
    "OnlineSecret": "secret_rl.experimental",
    "learn_online": "secret_rl.experimental",
    "OnlineSecretCallback": "secret_rl.sb3",
    "Cells": "secret_rl.shaping",
    "ChangingPotential": "secret_rl.shaping",
    "EventCredit": "secret_rl.shaping",
    "LearnedPotential": "secret_rl.shaping",
    "NoPotential": "secret_rl.shaping",
    "Observed": "secret_rl.shaping",
    "OnlineCredit": "secret_rl.shaping",
    "PotentialShaping": "secret_rl.shaping",
    "ReplayShaping": "secret_rl.shaping",
    "TablePotential": "secret_rl.shaping",
    "VectorPotentialShaping": "secret_rl.shaping",
    "estimate_potential": "secret_rl.shaping",
    "learn_potential": "secret_rl.shaping",
    "PotentialShapingVecEnv": "secret_rl.sb3",
    "shape_with": "secret_rl.sb3",
    "CenteredView": "secret_rl.views",
    "CropView": "secret_rl.views",
    "DropView": "secret_rl.views",
    "MaskView": "secret_rl.views",
    "VectorViewObservation": "secret_rl.views",
    "ViewObservation": "secret_rl.views",
    "apply_view": "secret_rl.views",
    "Episode": "secret_rl.trajectories",
    "Recorder": "secret_rl.trajectories",
    "Trajectories": "secret_rl.trajectories",
    "collect": "secret_rl.trajectories",
    "from_minari": "secret_rl.minari",
    "to_minari": "secret_rl.minari",
    "from_replay_buffer": "secret_rl.sb3",
    "from_rollout_buffer": "secret_rl.sb3",
}

__all__ = ["__version__", *_HOMES]

if find_spec("gymnasium"):  # credit itself runs where only PyTorch and NumPy are
    import_module("secret_rl.envs").register()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'secret_rl' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
