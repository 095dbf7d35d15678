"""Training on disk: a folder that is whole at every moment, from which training goes on or a finished agent is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from stable_baselines3.common.base_class import BaseAlgorithm

from secret_rl.agents.sb3.curve import DeepCurve
from secret_rl.agents.sb3.states import Arrays, buffer_arrays, model_state, plain, set_model_state
from secret_rl.files import replace_text, replacing

_STATE = "state.json"
_FORMAT = "secret-rl deep training"
_VERSION = 1


class TrainingFolderError(ValueError):
    """A folder that training cannot go on from, with what is wrong and what to do."""


class TrainingFolder:
    """Files that training goes on from; the JSON file is replaced last, and only what it names counts.

    Long rows of a replay buffer, its observations, are written once, in a file for each part of the training; short
    ones whole every time, since they may be changed after they were stored.
    """

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.folder = folder
        self._fingerprint = json.loads(json.dumps(fingerprint))
        self._state: dict[str, Any] = {}
        if (folder / _STATE).is_file():
            self._open()

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
        names = {"model": f"model-{number}.safetensors", "curve": f"curve-{number}.npz"}
        self._write(names["model"], arrays)
        curve.save(self.folder / names["curve"])
        buffer, seen = getattr(model, "replay_buffer", None), model.num_timesteps // model.n_envs
        replay = None if finished else self._save_buffer(buffer, seen, number)
        self._state = {
            "format": _FORMAT, "version": _VERSION, "fingerprint": self._fingerprint, "number": number, "part": part,
            "finished": finished, "files": names, "model": state, "replay": replay,
        }  # fmt: skip
        replace_text(self.folder / _STATE, json.dumps(self._state))
        self._sweep()

    def load(self, model: BaseAlgorithm) -> DeepCurve:
        """Put a model where it was at the last save; returns the curve up to there."""
        files = self._state["files"]
        try:
            set_model_state(model, self._state["model"], self._read(files["model"]))
            curve = DeepCurve.load(self.folder / Path(files["curve"]).name)
            if self._state["replay"] is not None:
                self._load_buffer(model.replay_buffer, self._state["replay"])  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OSError) as broken:
            if isinstance(broken, TrainingFolderError):
                raise
            raise TrainingFolderError(
                f"{self.folder} cannot be taken up ({broken!r}): a file was damaged or removed; "
                "delete the folder and train again"
            ) from broken
        return curve

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
        return {"files": files, "short": held, "seen": seen, "numbers": plain(buffer)}

    def _load_buffer(self, buffer: Any, replay: dict[str, Any]) -> None:
        once, others = buffer_arrays(buffer)
        for name, first, came in replay["files"]:
            rows = np.arange(first, first + came) % buffer.buffer_size
            for key, values in self._read(name).items():
                once[key][rows] = values
        for key, number in replay["numbers"].items():
            setattr(buffer, key, number)
        for key, values in self._read(replay["short"]).items():
            _held(others[key], buffer)[...] = values

    def _write(self, name: str, arrays: Arrays) -> None:
        with replacing(self.folder / name) as temporary:
            save_file({key: np.asarray(array, order="C") for key, array in arrays.items()}, temporary)

    def _read(self, name: str) -> Arrays:
        path = self.folder / Path(name).name
        try:
            return load_file(path)
        except (SafetensorError, OSError) as broken:
            raise TrainingFolderError(
                f"{path} is damaged or gone ({broken}): delete the folder and train again"
            ) from broken

    def _sweep(self) -> None:
        """Remove what the newest state does not name, and what a killed process left half written."""
        replay = self._state["replay"] or {"files": [], "short": ""}
        named = {*self._state["files"].values(), replay["short"], *(name for name, *_ in replay["files"])}
        for pattern in ("model-*", "curve-*", "replay-*", f".{_STATE}.writing-*", ".*-*.writing-*"):
            for path in self.folder.glob(pattern):
                if path.name not in named:
                    path.unlink(missing_ok=True)

    def _open(self) -> None:
        path = self.folder / _STATE
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if state.get("format") != _FORMAT or state.get("version") != _VERSION:
                raise ValueError(f"format {state.get('format')} {state.get('version')}, expected {_FORMAT} {_VERSION}")
            before = dict(state["fingerprint"])
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise TrainingFolderError(
                f"{path} cannot be read ({broken!r}): choose another folder, or delete it and train again"
            ) from broken
        changed = sorted(
            key for key in before.keys() | self._fingerprint.keys() if before.get(key) != self._fingerprint.get(key)
        )
        if changed:
            told = "; ".join(f"{key} was {before.get(key)}, now {self._fingerprint.get(key)}" for key in changed)
            raise TrainingFolderError(
                f"{self.folder} holds a training with other options ({told}): repeat that call to go on with it, "
                "choose another folder, or delete it"
            )
        self._state = state


def _held(array: Any, buffer: Any) -> Any:
    """The rows of an array that hold transitions; all of it where it has no row for each."""
    return array[: buffer.size()] if array.shape[:1] == (buffer.buffer_size,) else array
