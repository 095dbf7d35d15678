"""Views written down and read back."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from secret_rl.views.centered import CenteredView
from secret_rl.views.kinds import CropView, DropView, MaskView, View

_KINDS: dict[str, Callable[..., View]] = {kind.__name__: kind for kind in (CropView, MaskView, DropView, CenteredView)}


def is_own(view: View) -> bool:
    """Whether a view is one of this library: known to fit its space, and read back by name."""
    return type(view) in _KINDS.values()


def view_to_json(view: View) -> dict[str, Any]:
    """A JSON description of a view: ``{"kind": "CropView", "window": 3, "key": null}``."""
    if isinstance(view, type) or not is_dataclass(view):
        raise TypeError(f"{view!r} cannot be written down: expected a view that is a dataclass of JSON values")
    try:
        fields: dict[str, Any] = json.loads(json.dumps(asdict(view)))
    except TypeError as bad:
        raise TypeError(f"{view!r} cannot be written down ({bad}): its fields must be JSON values") from bad
    return {"kind": type(view).__name__, **fields}


def view_from_json(data: Mapping[str, Any]) -> View:
    """The view that ``view_to_json`` described."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of view {kind!r}: expected one of {list(_KINDS)}")
    return _KINDS[kind](**fields)


def as_views(views: Any) -> tuple[View, ...]:
    """One view or several, each given as it is or as its JSON description."""
    several = [views] if isinstance(views, View | Mapping) or not isinstance(views, Iterable) else list(views)
    made = [view_from_json(view) if isinstance(view, Mapping) else view for view in several]
    for view in made:
        if isinstance(view, type) or not isinstance(view, View):
            raise TypeError(
                f"{view!r} is not a view: expected CropView, MaskView, DropView, CenteredView, or an object with "
                "space, rows and one"
            )
    return tuple(made)
