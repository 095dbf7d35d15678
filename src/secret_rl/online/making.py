"""The potentials that online SECRET can make of a credit model and the agent's own episodes."""

from collections.abc import Callable, Mapping
from typing import Any

from secret_rl.credit import Secret
from secret_rl.shaping import OnlineCredit, Potential, estimate_potential, learn_potential
from secret_rl.trajectories import Trajectories
from secret_rl.views import View

Maker = Callable[[Secret | None, Trajectories], Potential | None]
"""(credit model, episodes as the agent saw them) to a potential, or None if there is none to be had."""

TABLES = ("pending", "cumulative", "value")
LEARNED = ("learned", "learned value")
KINDS = (*TABLES, *LEARNED, "online")


def needs_credit(kind: str | Maker) -> bool:
    """Whether a potential cannot be made without a credit model; a function is given one unless told otherwise."""
    return callable(kind) or not kind.endswith("value")


def make(
    kind: str | Maker,
    secret: Secret | None,
    data: Trajectories,
    seen: Trajectories,
    view: View | None,
    options: Mapping[str, Any],
) -> Potential | None:
    """A potential of ``data``, the episodes as the agent saw them; ``seen`` are the same as the credit model does."""
    if callable(kind):
        return kind(secret, data)
    if kind == "online":
        assert secret is not None
        return None if secret.queries is None else OnlineCredit(secret, observation=view, **options)
    credit = None
    if needs_credit(kind):
        assert secret is not None
        credit = secret.attribute(seen, rewards="positive", progress=False)
    if kind in TABLES:
        return estimate_potential(data, credit, kind, **options)
    worth = "value" if kind == "learned value" else "pending"
    return learn_potential(data, credit, worth, **{"progress": False, **options})
