"""Plug-ins: what other packages add, found by their entry points, and what we add to others."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType


def load_plugins(group: str) -> None:
    """Import the modules of a group of entry points, which register what they add; a warning for each that fails."""
    for plugin in entry_points(group=group):
        try:
            plugin.load()
        except Exception as error:  # someone else's code must not take everything else away
            warnings.warn(f"{group}: {plugin.name!r} cannot be loaded from {plugin.value}: {error}", stacklevel=2)


def with_module(name: str, module: str) -> None:
    """Import ``module`` as soon as ``name`` is there: now, or right after someone imports it."""
    if sys.modules.get(name) is not None:  # None: not to be imported
        import_module(module)
    else:
        sys.meta_path.insert(0, _After(name, module))


class _After:
    """Finds a module as ever, once, and has another one imported right after it."""

    def __init__(self, name: str, module: str) -> None:
        self._name, self._module = name, module

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then(module: ModuleType) -> None:
                execute(module)
                import_module(self._module)

            spec.loader.exec_module = then  # type: ignore[method-assign]
        return spec
