"""What online SECRET knows, in a folder: an interrupted training goes on with it."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secret_rl.atomic import find_folder, new_folder
from secret_rl.credit import Secret
from secret_rl.files import FileFormat, ResumeError, check_same, finite_number, plain, whole_number
from secret_rl.online.secret import OnlineSecret, Refit
from secret_rl.shaping import LearnedPotential, OnlineCredit, Potential, TablePotential
from secret_rl.shaping.terms import load_potential
from secret_rl.text import printable
from secret_rl.trajectories import Trajectories

_STATE = "online.json"
_FORMAT = FileFormat("secret-rl online secret", remedy="choose another folder, or train again")
_KEPT = 2  # states: should a training be ended between this file and its own, it goes on from the one before


def save_state(online: OnlineSecret, folder: Path, step: int) -> Path:
    """Write everything that changes, as it is after so many steps of training: whole or not at all."""
    final = folder / str(step)
    with new_folder(final, overwrite=True) as writing:
        if online.seen:
            online.trajectories.save(writing / "episodes")
        if online.secret is not None:
            online.secret.save(writing / "secret.safetensors")
        if online.present is not None:
            _save_potential(online.present, writing / "potential")
        state = {
            "options": _options(online), "seen": online.seen, "next": online.next, "fits": online.fits,
            "kind": None if online.present is None else type(online.present).__name__,
            "secret": online.secret is not None, "history": [asdict(refit) for refit in online.history],
        }  # fmt: skip
        _FORMAT.write_json(writing / _STATE, plain(state))
    for old in sorted(_steps(folder))[:-_KEPT]:
        shutil.rmtree(folder / str(old), ignore_errors=True)
    return final


def load_state(online: OnlineSecret, folder: Path, step: int) -> None:
    """Put a new one, of the same options, where it was after so many steps of training."""
    path = find_folder(folder / str(step))
    if not (path / _STATE).is_file():
        raise ResumeError(
            f"{folder} knows nothing of {step:,} steps of training, but of {sorted(_steps(folder)) or 'none'}: it "
            "belongs to another training; choose another folder, or train again"
        )
    state = _FORMAT.read_json(path / _STATE)
    with _FORMAT.reading(path / _STATE):
        check_same(path, "an online secret", dict(state["options"]), plain(_options(online)))
        if state["secret"]:
            online.secret = Secret.load(path / "secret.safetensors")
        if state["kind"] is not None:
            online.present = _load_potential(state["kind"], path / "potential", online.secret)
        counts = [whole_number(state[name]) for name in ("seen", "next", "fits")]
        if state["seen"]:
            _put_episodes(online, Trajectories.load(path / "episodes"))
        online.seen, online.next, online.fits = counts
        online.history[:] = [_refit(entry) for entry in state["history"]]


def _refit(entry: dict[str, Any]) -> Refit:
    gain = entry["history_gain"]
    return Refit(
        episodes=whole_number(entry["episodes"]),
        successes=whole_number(entry["successes"]),
        history_gain=None if gain is None else finite_number(gain),
        accepted=bool(entry["accepted"]),
        reason=printable(str(entry["reason"])),
        seconds=finite_number(entry["seconds"]),
    )


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
        raise TypeError(
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
