"""An unfinished fit on disk: tensors in safetensors files, everything else in one JSON file that names them."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from secret_rl.files import replace_text, replacing

_STATE = "state.json"


class CheckpointError(ValueError):
    """A checkpoint that cannot be taken up, with what is wrong and what to do."""


class Checkpoint:
    """Saves are all or nothing: the JSON file is replaced last, and only what it names counts."""

    def __init__(self, folder: Path | None, fingerprint: dict[str, Any]) -> None:
        self._folder, self._fingerprint = folder, json.loads(json.dumps(fingerprint))
        self.state: dict[str, Any] = {}
        self._number = 0
        if folder is not None and (folder / _STATE).is_file():
            self._open(folder)

    def save(self, state: dict[str, Any], **tensors: dict[str, Tensor]) -> None:
        """Keep a state and named sets of tensors; sets not given are kept as they were."""
        if self._folder is None:
            return
        from safetensors.torch import save_file

        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        files = dict(self.state.get("files", {}))
        for name, values in tensors.items():
            files[name] = f"checkpoint-{name}-{self._number}.safetensors"
            with replacing(self._folder / files[name]) as temporary:
                save_file(values, temporary)
        self.state = {**state, "files": files, "number": self._number, "fingerprint": self._fingerprint}
        replace_text(self._folder / _STATE, json.dumps(self.state))
        for path in self._folder.glob("checkpoint-*.safetensors"):
            if path.name not in files.values():
                path.unlink()

    def load(self, name: str) -> dict[str, Tensor] | None:
        """A set of tensors that was saved."""
        file = self.state.get("files", {}).get(name)
        if file is None or self._folder is None:
            return None
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._folder / Path(file).name
        try:
            return load_file(path)
        except (SafetensorError, OSError) as broken:
            raise CheckpointError(f"{path} is damaged ({broken}): delete the folder and fit again") from broken

    def discard(self) -> None:
        """The fit is finished: leave nothing behind."""
        if self._folder is None or not self._folder.is_dir():
            return
        partial = (f".{_STATE}.writing-*", ".checkpoint-*.safetensors.writing-*")  # left by a killed process
        for pattern in (_STATE, "checkpoint-*.safetensors", *partial):
            for path in self._folder.glob(pattern):
                path.unlink(missing_ok=True)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _open(self, folder: Path) -> None:
        try:
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
            before, number = dict(state["fingerprint"]), int(state["number"])
        except (ValueError, KeyError, TypeError) as broken:
            raise CheckpointError(
                f"{folder / _STATE} is damaged ({broken!r}): delete the folder and fit again"
            ) from broken
        if before != self._fingerprint:
            changed = sorted(
                key for key in before.keys() | self._fingerprint.keys() if before.get(key) != self._fingerprint.get(key)
            )
            raise CheckpointError(
                f"{folder} is an unfinished fit with another {', '.join(changed)}: repeat that call to finish it, "
                "choose another folder, or delete it"
            )
        self.state, self._number = state, number
