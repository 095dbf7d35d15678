"""Credit: which past steps earned each reward. Needs PyTorch and NumPy alone, imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secret_rl.credit.adaptation import adapt as adapt
    from secret_rl.credit.attribution import Attributions as Attributions
    from secret_rl.credit.classes import RewardClasses as RewardClasses
    from secret_rl.credit.diagnosis import FitReport as FitReport
    from secret_rl.credit.diagnosis import NotLearnedWarning as NotLearnedWarning
    from secret_rl.credit.diagnosis import PastNotNeededWarning as PastNotNeededWarning
    from secret_rl.credit.diagnosis import RewardBalanceWarning as RewardBalanceWarning
    from secret_rl.credit.measures import Confusion as Confusion
    from secret_rl.credit.model import RewardPredictor as RewardPredictor
    from secret_rl.credit.options import ModelOptions as ModelOptions
    from secret_rl.credit.options import TrainingOptions as TrainingOptions
    from secret_rl.credit.references import oracle_attributions as oracle_attributions
    from secret_rl.credit.references import uniform_attributions as uniform_attributions
    from secret_rl.credit.secret import NotFittedError as NotFittedError
    from secret_rl.credit.secret import Secret as Secret

_HOMES = {
    "adapt": "adaptation",
    "Attributions": "attribution",
    "RewardClasses": "classes",
    "FitReport": "diagnosis",
    "NotLearnedWarning": "diagnosis",
    "PastNotNeededWarning": "diagnosis",
    "RewardBalanceWarning": "diagnosis",
    "Confusion": "measures",
    "RewardPredictor": "model",
    "ModelOptions": "options",
    "TrainingOptions": "options",
    "oracle_attributions": "references",
    "uniform_attributions": "references",
    "NotFittedError": "secret",
    "Secret": "secret",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'secret_rl.credit' has no attribute {name!r}")
    return getattr(import_module(f"secret_rl.credit.{_HOMES[name]}"), name)
