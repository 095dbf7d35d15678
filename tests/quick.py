"""Fits for tests that are not about fitting: little time goes into what they do not look at."""

from secret_rl.credit.secret import fit, memoryless


def quick_fits(patch, updates=50, batch=256):
    """Few updates for the predictor without memory and for the pooled past; ``patch`` is a MonkeyPatch."""
    patch.setattr(memoryless, "_UPDATES", updates)
    patch.setattr(memoryless, "_BATCH", batch)
    patch.setattr(fit, "_PROBE_UPDATES", updates)
