"""What the views share: the entry of a ``Dict`` that they look at, and checks of what they are given."""

from collections.abc import Callable, Collection, Iterable
from operator import index
from typing import Any

import gymnasium as gym


def space_at(
    view: object, key: str | None, space: gym.Space[Any], change: Callable[[gym.Space[Any]], gym.Space[Any]]
) -> gym.Space[Any]:
    """The space with ``change`` applied to it, or to its entry ``key``."""
    if key is None:
        return change(space)
    parts = as_dict(view, space).spaces
    check_names(view, (key,), parts)
    return gym.spaces.Dict([(name, change(part) if name == key else part) for name, part in parts.items()])


def value_at(view: object, key: str | None, value: Any, change: Callable[[Any], Any]) -> Any:
    """Observations with ``change`` applied to them, or to their entry ``key``."""
    if key is None:
        return change(value)
    check_names(view, (key,), value)
    return {**value, key: change(value[key])}


def as_box(view: object, space: gym.Space[Any]) -> gym.spaces.Box:
    """The space, which must be a ``Box``."""
    if isinstance(space, gym.spaces.Box):
        return space
    if isinstance(space, gym.spaces.Dict):
        raise TypeError(f"{view} does not fit {space}: expected a Box; choose an entry with key=, one of {list(space)}")
    raise TypeError(
        f"{view} does not fit {space}: expected a Box; an entry of another kind can be left out by DropView"
    )


def as_dict(view: object, space: gym.Space[Any]) -> gym.spaces.Dict:
    """The space, which must be a ``Dict``."""
    if isinstance(space, gym.spaces.Dict):
        return space
    raise TypeError(
        f"{view} does not fit {space}: expected a Dict with named entries; "
        "hide part of a Box with CropView or MaskView, without key="
    )


def check_names(view: object, names: Iterable[str], parts: Collection[str]) -> None:
    """An error where an observation has no such entries."""
    for name in names:
        if name not in parts:
            raise ValueError(f"{view} names the entry {name!r}, but the observation has {list(parts)}: use one of them")


def keep(view: object, **fields: Any) -> None:
    """Store fields in their plain form, so that equal views compare equal and go to JSON."""
    for name, value in fields.items():
        object.__setattr__(view, name, value)


def integer(name: str, value: Any) -> int:
    """A field that is a whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return index(value)


def name_of(field: str, value: Any, optional: bool = True) -> str | None:
    """A field that names an entry of a ``Dict``."""
    if isinstance(value, str) or (optional and value is None):
        return value
    raise TypeError(f"{field} must name entries of a Dict observation with strings, got {value!r}")
