"""SECRET as printed (Ferret et al., 2019): weights by the sign of the reward, no hidden steps, no price on attention.

Deviations: those of the architecture, in ``paper/DEVIATIONS.md``; without them it does not learn.
"""

from inspect import signature
from typing import Any

from secret_rl.credit.base import register_method
from secret_rl.credit.secret.method import Secret


@register_method("secret-paper")
class SecretPaper(Secret):
    """SECRET with the loss of the paper; takes the options of ``Secret``."""

    __signature__ = signature(Secret)  # for those who ask which options there are

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"weights": "paper", "dropout_steps": 0.0, "attention_penalty": 0.0, **options})
