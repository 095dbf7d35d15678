"""An unfinished fit on disk: tensors in safetensors files, everything else in one JSON file that names them."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from secret_rl.atomic import InUseError, Lock, folder_lock, sweep
from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.files import FileFormat, ResumeError, check_same

_STATE = "state.json"
_REMEDY = "delete the folder and fit again"
_FORMAT = FileFormat("secret-rl unfinished fit", remedy=_REMEDY)
_TENSORS = FileFormat("secret-rl unfinished fit's tensors", remedy=_REMEDY)


class Checkpoint:
    """Saves are all or nothing: the JSON file is replaced last, and only what it names counts.

    What is there is taken up; an error if it belongs to another fit, by its fingerprint. One process at a time holds
    the folder, until ``close`` or ``discard``; of a ``group``, the first, which tells the others what is there.
    Without a folder, nothing is kept.
    """

    def __init__(self, folder: Path | None, fingerprint: dict[str, Any], group: Group = ALONE) -> None:
        self.folder, self._group = folder, group
        self.state: dict[str, Any] = {}
        self._fingerprint = json.loads(json.dumps(fingerprint))
        self._lock: Lock | None = None
        if folder is None:
            return
        if group.leads:
            self._lock = folder_lock(folder)
            try:
                if (folder / _STATE).is_file():
                    self.state = self._read(folder)
            except BaseException:
                self.close()
                raise
        self.state = group.of_first(self.state)

    def save(self, state: dict[str, Any], **tensors: dict[str, Tensor]) -> None:
        """Keep a state and named sets of tensors; sets not given are kept as they were."""
        if self.folder is None:
            return
        if not self._group.leads:
            self.state = state
            return
        number = self.state.get("number", 0) + 1
        files = dict(self.state.get("files", {}))
        for name, values in tensors.items():
            files[name] = f"checkpoint-{name}-{number}.safetensors"
            arrays = {key: value.numpy() for key, value in values.items()}
            _TENSORS.write_arrays(self.folder / files[name], {}, arrays, finite=False)  # training may diverge
        self.state = {**state, "files": files, "number": number, "fingerprint": self._fingerprint}
        _FORMAT.write_json(self.folder / _STATE, self.state)
        for path in self.folder.glob("checkpoint-*.safetensors"):
            if path.name not in files.values():
                path.unlink()

    def load(self, name: str) -> dict[str, Tensor]:
        """A set of tensors that was saved; empty if none was."""
        if self.folder is None:
            return {}
        return self._group.of_first(self._load(name, self.folder) if self._group.leads else {})

    def _load(self, name: str, folder: Path) -> dict[str, Tensor]:
        file = self.state.get("files", {}).get(name)
        if file is None:
            return {}
        path = folder / Path(file).name
        with _TENSORS.reading(path):
            if not path.is_file():
                raise ValueError("it is missing")
            _, arrays = _TENSORS.read_arrays(path)
            return {key: torch.from_numpy(array) for key, array in arrays.items()}

    def reading(self) -> AbstractContextManager[None]:
        """Whatever the state leads to in the block becomes a ``FileFormatError``."""
        return _FORMAT.reading((self.folder or Path()) / _STATE)

    def _read(self, folder: Path) -> dict[str, Any]:
        state = _FORMAT.read_json(folder / _STATE)
        check_same(folder, "an unfinished fit", state["fingerprint"], self._fingerprint)
        return state

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            self._lock.release()

    def discard(self) -> None:
        """What came of the fit is safe elsewhere: leave nothing behind. What another fit has put there stays."""
        self.close()
        if self.folder is None or not self._group.leads or not (self.folder / _STATE).is_file():
            return
        try:
            with folder_lock(self.folder):
                if self._read(self.folder) == self.state:
                    for path in (self.folder / _STATE, *self.folder.glob("checkpoint-*.safetensors")):
                        path.unlink(missing_ok=True)
                    sweep(self.folder)
        except (InUseError, ResumeError):
            return
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
