"""How good credit is."""

from secret_rl.evaluation.credit_quality import CreditQuality, credit_quality

__all__ = ["CreditQuality", "credit_quality"]
