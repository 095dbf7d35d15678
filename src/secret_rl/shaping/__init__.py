"""From credit to faster learning: potentials, and the wrappers that add them to the reward (paper, section 2.2)."""

from secret_rl.plugins import load_plugins
from secret_rl.shaping.core import Batch, CoverageWarning, NotCreditWarning, Potential, PotentialRangeWarning
from secret_rl.shaping.estimate import KINDS, estimate_potential, register_kind
from secret_rl.shaping.learned import LearnedPotential, learn_potential
from secret_rl.shaping.online import OnlineCredit
from secret_rl.shaping.potentials import ChangingPotential, EventCredit, NoPotential, VisitCounts
from secret_rl.shaping.replay import ReplayShaping
from secret_rl.shaping.table import GridKey, ObservationKey, TablePotential
from secret_rl.shaping.wrappers import CreditBonus, PotentialShaping, VectorCreditBonus, VectorPotentialShaping

__all__ = [
    "KINDS", "Batch", "ChangingPotential", "CoverageWarning", "CreditBonus", "EventCredit", "GridKey",
    "LearnedPotential", "NoPotential", "NotCreditWarning", "ObservationKey", "OnlineCredit", "Potential",
    "PotentialRangeWarning", "PotentialShaping", "ReplayShaping", "TablePotential", "VectorCreditBonus",
    "VectorPotentialShaping", "VisitCounts", "estimate_potential", "learn_potential", "register_kind",
]  # fmt: skip

load_plugins("secret_rl.potentials")
