"""Types of the options and positional words that commands share: how they are shown, and what completes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Choices:
    """Marks a type, in ``Annotated``, whose values are listed when completion asks for them."""

    list: Callable[[], Iterable[str]]


def environment_ids() -> list[str]:
    """Every id that Gymnasium knows."""
    import gymnasium

    return list(gymnasium.registry)


def one_of(names: Iterable[str]) -> Any:
    """The type of an option whose choices are known at run time."""
    return Literal[tuple(names)]


EnvId = Annotated[str, arg(metavar="ENV"), Choices(environment_ids)]
Env = Positional[EnvId]
Data = Positional[Annotated[Path, arg(metavar="DATA")]]
Model = Positional[Annotated[Path, arg(metavar="MODEL")]]
EnvOptions = Annotated[tuple[str, ...], arg(metavar="KEY=VALUE")]
