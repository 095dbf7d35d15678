"""What online SECRET knows, in a folder: an interrupted training goes on with it."""

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secret_rl.credit import Secret
from secret_rl.files import replace_text
from secret_rl.online.secret import OnlineSecret, Refit
from secret_rl.shaping import LearnedPotential, OnlineCredit, Potential, TablePotential
from secret_rl.shaping.terms import load_potential
from secret_rl.trajectories import Trajectories

_STATE = "online.json"
_FORMAT = "secret-rl online secret"
_KEPT = 2  # states: should a training be ended between this file and its own, it goes on from the one before


class OnlineFolderError(ValueError):
    """A folder that online SECRET cannot go on from, with what is wrong and what to do."""


def save_state(online: OnlineSecret, folder: Path, step: int) -> Path:
    """Write everything that changes, as it is after so many steps of training: whole or not at all."""
    final, writing = folder / str(step), folder / f".{step}.writing-{os.getpid()}"
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    if online.seen:
        online.trajectories.save(writing / "episodes")
    if online.secret is not None:
        online.secret.save(writing / "secret.safetensors")
    if online.present is not None:
        _save_potential(online.present, writing / "potential")
    state = {
        "format": _FORMAT, "version": 1, "options": _options(online), "seen": online.seen, "next": online.next,
        "fits": online.fits, "kind": None if online.present is None else type(online.present).__name__,
        "secret": online.secret is not None, "history": [asdict(refit) for refit in online.history],
    }  # fmt: skip
    replace_text(writing / _STATE, json.dumps(state, indent=1) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    writing.rename(final)
    for old in sorted(_steps(folder))[:-_KEPT]:
        shutil.rmtree(folder / str(old), ignore_errors=True)
    return final


def load_state(online: OnlineSecret, folder: Path, step: int) -> None:
    """Put a new one, of the same options, where it was after so many steps of training."""
    path = folder / str(step)
    if not (path / _STATE).is_file():
        raise OnlineFolderError(
            f"{folder} knows nothing of {step:,} steps of training, but of {sorted(_steps(folder)) or 'none'}: it "
            "belongs to another training; choose another folder, or train again"
        )
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        if state["format"] != _FORMAT or state["version"] != 1:
            raise ValueError(f"format {state['format']!r}, version {state['version']!r}")
        changed = {key: value for key, value in _options(online).items() if state["options"].get(key) != value}
        if changed:
            told = "; ".join(f"{key} was {state['options'].get(key)}, now {value}" for key, value in changed.items())
            raise ValueError(f"it was written with other options: {told}")
        if state["secret"]:
            online.secret = Secret.load(path / "secret.safetensors")
        if state["kind"] is not None:
            online.present = _load_potential(state["kind"], path / "potential", online.secret)
        if state["seen"]:
            _put_episodes(online, Trajectories.load(path / "episodes"))
        online.seen, online.next, online.fits = state["seen"], state["next"], state["fits"]
        online.history[:] = [Refit(**entry) for entry in state["history"]]
    except (KeyError, TypeError, ValueError, OSError) as broken:
        raise OnlineFolderError(f"{path} cannot be taken up ({broken}): train again, in another folder") from broken


def _options(online: OnlineSecret) -> dict[str, Any]:
    names = ("first", "growth", "last", "keep", "min_successes", "min_gain", "fine_tune", "use_credit", "seed")
    told = {name: getattr(online, name) for name in names}
    kind = online.potential if isinstance(online.potential, str) else "a function"
    return told | {
        "potential": kind,
        "view": repr(online.view),
        **{
            name: repr(sorted(getattr(online, name).items()))
            for name in ("secret_options", "adapt_options", "potential_options")
        },
    }


def _put_episodes(online: OnlineSecret, data: Trajectories) -> None:
    online.watch(data.observation_space, data.action_space)
    for episode in data:
        online.add(vars(episode))


def _save_potential(potential: Potential, path: Path) -> None:
    if not isinstance(potential, TablePotential | LearnedPotential | OnlineCredit):
        raise OnlineFolderError(
            f"{potential!r} cannot be kept in a folder: expected a TablePotential, a LearnedPotential or OnlineCredit; "
            "leave the folder out"
        )
    potential.save(path)


def _load_potential(kind: str, path: Path, secret: Secret | None) -> Potential:
    if kind != OnlineCredit.__name__:
        return load_potential(path)
    if secret is None:
        raise ValueError("online credit without its model")
    return OnlineCredit.load(path, secret)


def _steps(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
