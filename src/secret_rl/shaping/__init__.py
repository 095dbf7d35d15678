"""From credit to faster learning: potentials, and the wrappers that add them to the reward (paper, section 2.2)."""

from secret_rl.shaping.changing import ChangingPotential
from secret_rl.shaping.estimation import estimate_potential
from secret_rl.shaping.events import EventCredit
from secret_rl.shaping.learned import LearnedPotential
from secret_rl.shaping.learning import learn_potential
from secret_rl.shaping.online import OnlineCredit
from secret_rl.shaping.potentials import (
    CoverageWarning,
    NoCreditPaidWarning,
    NoPotential,
    NotCreditWarning,
    Potential,
    PotentialRangeWarning,
    VectorPotential,
)
from secret_rl.shaping.replayed import ReplayShaping
from secret_rl.shaping.states import Cells, Observed
from secret_rl.shaping.table import TablePotential
from secret_rl.shaping.vector import VectorPotentialShaping
from secret_rl.shaping.wrappers import PotentialShaping

__all__ = [
    "Cells", "ChangingPotential", "CoverageWarning", "EventCredit", "LearnedPotential", "NoCreditPaidWarning",
    "NoPotential", "NotCreditWarning", "Observed", "OnlineCredit", "Potential", "PotentialRangeWarning",
    "PotentialShaping", "ReplayShaping", "TablePotential", "VectorPotential", "VectorPotentialShaping",
    "estimate_potential", "learn_potential",
]  # fmt: skip
