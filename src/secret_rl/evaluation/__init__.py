"""How good credit is, and how much faster agents learn with it."""

from secret_rl.evaluation.comparison import ComparedCondition, Comparison, compare
from secret_rl.evaluation.credit_quality import CreditQuality, attention_by_place, credit_quality
from secret_rl.evaluation.curves import (
    LearningCurves,
    area_under_curve,
    episodes_to_threshold,
    final_performance,
    median_time,
    share_reached,
    smooth,
)
from secret_rl.evaluation.statistics import (
    AggregatedCurve,
    Bootstrap,
    Estimate,
    aggregate,
    difference,
    interquartile_mean,
    mean,
    probability_of_improvement,
    ratio,
)

__all__ = [
    "AggregatedCurve",
    "Bootstrap",
    "ComparedCondition",
    "Comparison",
    "CreditQuality",
    "Estimate",
    "LearningCurves",
    "aggregate",
    "area_under_curve",
    "attention_by_place",
    "compare",
    "credit_quality",
    "difference",
    "episodes_to_threshold",
    "final_performance",
    "interquartile_mean",
    "mean",
    "median_time",
    "probability_of_improvement",
    "ratio",
    "share_reached",
    "smooth",
]
