"""Plug-ins: what other packages add, found by their entry points."""

import warnings
from importlib.metadata import entry_points


def load_plugins(group: str) -> None:
    """Import the modules of a group of entry points, which register what they add; a warning for each that fails."""
    for plugin in entry_points(group=group):
        try:
            plugin.load()
        except Exception as error:  # someone else's code must not take everything else away
            warnings.warn(f"{group}: {plugin.name!r} cannot be loaded from {plugin.value}: {error}", stacklevel=2)
