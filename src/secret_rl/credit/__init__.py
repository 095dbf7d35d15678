"""Credit: which past steps earned each reward. Needs PyTorch and NumPy alone, imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secret_rl.credit.base import Attributions as Attributions
    from secret_rl.credit.base import CreditMethod as CreditMethod
    from secret_rl.credit.base import NotFittedError as NotFittedError
    from secret_rl.credit.base import adapt as adapt
    from secret_rl.credit.base import load_method as load_method
    from secret_rl.credit.base import methods as methods
    from secret_rl.credit.base import register_method as register_method
    from secret_rl.credit.references import oracle_attributions as oracle_attributions
    from secret_rl.credit.references import uniform_attributions as uniform_attributions
    from secret_rl.credit.report import Confusion as Confusion
    from secret_rl.credit.report import FitReport as FitReport
    from secret_rl.credit.report import NotLearnedWarning as NotLearnedWarning
    from secret_rl.credit.report import PastNotNeededWarning as PastNotNeededWarning
    from secret_rl.credit.report import RewardBalanceWarning as RewardBalanceWarning
    from secret_rl.credit.report import RewardClasses as RewardClasses
    from secret_rl.credit.secret.method import Secret as Secret
    from secret_rl.credit.secret.model import RewardPredictor as RewardPredictor
    from secret_rl.credit.secret.options import ModelOptions as ModelOptions
    from secret_rl.credit.secret.options import TrainingOptions as TrainingOptions

_NAMES = {
    "base": ("Attributions", "CreditMethod", "NotFittedError", "adapt", "load_method", "methods", "register_method"),
    "references": ("oracle_attributions", "uniform_attributions"),
    "report": (
        "Confusion", "FitReport", "NotLearnedWarning", "PastNotNeededWarning", "RewardBalanceWarning", "RewardClasses",
    ),
    "secret.method": ("Secret",),
    "secret.model": ("RewardPredictor",),
    "secret.options": ("ModelOptions", "TrainingOptions"),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'secret_rl.credit' has no attribute {name!r}")
    return getattr(import_module(f"secret_rl.credit.{_HOMES[name]}"), name)
