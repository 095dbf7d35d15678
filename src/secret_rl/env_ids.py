"""Environment ids that nobody registered: which package has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

_PACKAGES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "MiniWorld-": "miniworld", "ALE/": "ale_py",
             "popgym-": "popgym", "Vizdoom": "vizdoom.gymnasium_wrapper"}  # fmt: skip


def spec_of(env: str) -> "EnvSpec":
    """The spec of an id; of one that names a module, ``module:Id``, that is imported first."""
    import gymnasium

    module, _, name = env.rpartition(":")
    if module:
        import_module(module)
    with known_id(env):
        return gymnasium.spec(name)


@contextmanager
def known_id(env: object) -> Iterator[None]:
    """An id that is unknown to Gymnasium in the block is an error that says how ids of other packages are written."""
    from gymnasium.envs.registration import registry
    from gymnasium.error import UnregisteredEnv

    try:
        yield
    except UnregisteredEnv as unknown:
        if not isinstance(env, str) or ":" in env:
            raise
        ours = f"secret_rl/{env}"
        package = next((package for start, package in _PACKAGES.items() if env.startswith(start)), None)
        if ours in registry:
            hint = f"write {ours}"
        elif package is None:
            hint = "an id of another package is written module:Id, as in minigrid:MiniGrid-Unlock-v0"
        else:
            missing = "" if find_spec(package.partition(".")[0]) else f", once {package.partition('.')[0]} is installed"
            hint = f"write {package}:{env}{missing}"
        raise type(unknown)(f"{str(unknown).rstrip('.')}: {hint}") from None
