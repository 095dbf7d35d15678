"""Training on disk: a folder that is whole at every moment, from which training goes on or a finished agent is read."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from secret_rl.agents.sb3.curve import DeepCurve
from secret_rl.agents.sb3.states import (
    BUFFER_NUMBERS,
    Arrays,
    buffer_arrays,
    model_state,
    numbers_of,
    set_model_state,
    set_numbers,
)
from secret_rl.atomic import Lock, folder_lock, is_locked_or_left, sweep_folder
from secret_rl.files import FileFormat, check_same, whole_number
from secret_rl.trajectories.sb3 import unflattened
from secret_rl.trajectories.spaces import problem_with_rows

STATE = "state.json"
_REMEDY = "delete the folder and train again"
FORMAT = FileFormat("secret-rl deep training", remedy=_REMEDY)
_ARRAYS = FileFormat("secret-rl deep training's arrays", remedy=_REMEDY)


class TrainingFolder:
    """Files that training goes on from; the JSON file is replaced last, and only what it names counts.

    Long rows of a replay buffer, its observations, are written once, in a file for each part of the training; short
    ones whole every time, since they may be changed after they were stored. One process at a time holds the folder of
    an unfinished training, until ``close``.
    """

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.folder = folder
        self._fingerprint = json.loads(json.dumps(fingerprint))
        self._state: dict[str, Any] = self._open()
        self._lock: Lock | None = None
        if not self.finished:
            self._lock = folder_lock(folder)
            self._state = self._open()  # now that nobody else writes there
        elif is_locked_or_left(folder):  # whoever finished it was killed as it cleared up
            with suppress(OSError), folder_lock(folder):
                self._sweep()

    @property
    def part(self) -> int:
        """How many parts of the training are done."""
        return int(self._state.get("part", 0))

    @property
    def finished(self) -> bool:
        """Whether training is over."""
        return bool(self._state.get("finished", False))

    def save(self, model: BaseAlgorithm, curve: DeepCurve, part: int, *, finished: bool) -> None:
        """Keep everything that the next part needs; of a finished training, the agent and its curve."""
        number = int(self._state.get("number", 0)) + 1
        state, arrays = model_state(model)
        names = {"model": f"model-{number}.safetensors", "curve": f"curve-{number}.safetensors"}
        self._write(names["model"], arrays)
        curve.save(self.folder / names["curve"])
        buffer, seen = getattr(model, "replay_buffer", None), model.num_timesteps // model.n_envs
        replay = None if finished else self._save_buffer(buffer, seen, number)
        self._state = {
            "fingerprint": self._fingerprint, "number": number, "part": part, "finished": finished, "files": names,
            "model": state, "replay": replay,
        }  # fmt: skip
        FORMAT.write_json(self.folder / STATE, self._state)
        self._sweep()

    def load(self, model: BaseAlgorithm) -> DeepCurve:
        """Put a model where it was at the last save; returns the curve up to there."""
        with FORMAT.reading(self.folder / STATE):
            files = self._state["files"]
            set_model_state(model, self._state["model"], self._read(files["model"], finite=True))
            curve = DeepCurve.load(self._path(files["curve"]))
            if self._state["replay"] is not None:
                self._load_buffer(model.replay_buffer, self._state["replay"])  # type: ignore[attr-defined]
        return curve

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            self._lock.release()

    def _save_buffer(self, buffer: Any, seen: int, number: int) -> dict[str, Any] | None:
        """Write what a replay buffer has got since the last save; ``seen``: all transitions so far, per environment."""
        if buffer is None:
            return None
        once, others = buffer_arrays(buffer)
        before = self._state.get("replay") or {"files": [], "seen": 0, "numbers": {"pos": 0}}
        size, came = buffer.buffer_size, seen - before["seen"]
        files = list(before["files"])
        if came > size or (before["numbers"]["pos"] + came) % size != buffer.pos:  # more than it holds, or not as told
            files, came = [], buffer.size()
        if came and once:
            first = (buffer.pos - came) % size
            name = f"replay-{number}.safetensors"
            rows = np.arange(first, first + came) % size
            self._write(name, {key: array[rows] for key, array in once.items()})
            files.append([name, first, came])
        kept = 0
        for index in range(len(files) - 1, -1, -1):  # what newer files overwrite is not needed
            if kept >= size:
                files = files[index + 1 :]
                break
            kept += files[index][2]
        held = f"replay-short-{number}.safetensors"
        self._write(held, {key: _held(array, buffer) for key, array in others.items()})
        return {"files": files, "short": held, "seen": seen, "numbers": numbers_of(buffer, BUFFER_NUMBERS)}

    def _load_buffer(self, buffer: Any, replay: dict[str, Any]) -> None:
        once, others = buffer_arrays(buffer)
        size = buffer.buffer_size
        for name, first, came in replay["files"]:
            rows = whole_number(first, high=size) + np.arange(whole_number(came, high=size))
            for key, own, values in _matched(once, self._read(name), f"{name} holds"):
                _check_rows(key, own[:came], values)
                own[rows % size] = values
        whole_number(replay["numbers"]["pos"], high=size - 1)
        set_numbers(buffer, replay["numbers"], BUFFER_NUMBERS)
        for key, own, values in _matched(others, self._read(replay["short"]), f"{replay['short']} holds"):
            _check_rows(key, _held(own, buffer), values)
            _held(own, buffer)[...] = values
        problem = problem_with_rows(buffer.action_space, unflattened(buffer.action_space, _acted(buffer)))
        if problem is not None:
            raise ValueError(f"an action {problem[1]}")
        if not np.isfinite(buffer.rewards[: buffer.size()]).all():
            raise ValueError("a reward is not finite")
        for name in ("dones", "timeouts"):
            if not np.isin(getattr(buffer, name), (0, 1)).all():
                raise ValueError(f"{name} holds more than 0 and 1")

    def _write(self, name: str, arrays: Arrays) -> None:
        _ARRAYS.write_arrays(self.folder / name, {}, arrays, finite=False)

    def _read(self, name: str, *, finite: bool = False) -> Arrays:
        return _ARRAYS.read_arrays(self._path(name), finite=finite)[1]

    def _path(self, name: str) -> Path:
        """A file that the state names, if it is there."""
        path = self.folder / Path(name).name
        if not path.is_file():
            raise ValueError(f"{path} is gone")
        return path

    def _sweep(self) -> None:
        """Remove what the newest state does not name, and what a killed process left half written."""
        replay = self._state["replay"] or {"files": [], "short": ""}
        named = {*self._state["files"].values(), replay["short"], *(name for name, *_ in replay["files"])}
        sweep_folder(self.folder)
        for path in list(self.folder.iterdir()):
            if path.name.startswith(("model-", "curve-", "replay-")) and path.name not in named:
                path.unlink(missing_ok=True)

    def _open(self) -> dict[str, Any]:
        path = self.folder / STATE
        if not path.is_file():
            return {}
        state = FORMAT.read_json(path)
        with FORMAT.reading(path):
            check_same(self.folder, "a training", dict(state["fingerprint"]), self._fingerprint)
            whole_number(state["part"]), whole_number(state["number"])
            if not isinstance(state["finished"], bool):
                raise ValueError(f"finished is {state['finished']!r}, expected true or false")
        return state


def _acted(buffer: Any) -> Any:
    """(transitions, ...) the actions that a buffer holds, of all environments."""
    rows = buffer.actions[: buffer.size()]
    return rows.reshape(-1, *rows.shape[2:])


def _matched(own: Arrays, read: Arrays, what: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, own array, read array) of all; an error unless they are called the same."""
    if own.keys() != read.keys():
        raise ValueError(f"{what} {sorted(read)}, expected {sorted(own)}")
    return ((name, own[name], read[name]) for name in own)


def _check_rows(name: str, own: Any, values: Any) -> None:
    if own.shape != values.shape or own.dtype != values.dtype:
        raise ValueError(f"{name} is {values.dtype}{values.shape}, expected {own.dtype}{own.shape}")


def _held(array: Any, buffer: Any) -> Any:
    """The rows of an array that hold transitions; all of it where it has no row for each."""
    return array[: buffer.size()] if array.shape[:1] == (buffer.buffer_size,) else array
