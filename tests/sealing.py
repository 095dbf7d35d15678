"""Files of this library with other content, and checksums that match it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open

from secret_rl.files import FileFormat, checksum


def change_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Change a JSON document in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content | {"crc32": checksum(content)}), encoding="utf-8")
    return path


def change_arrays(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any], out: Path | None = None) -> Path:
    """Change what a safetensors file says, and its arrays."""
    with safe_open(path, framework="np") as file:
        about = json.loads(file.metadata()["secret_rl"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    change(about, arrays)
    name, version = about.pop("format"), about.pop("version")
    return FileFormat(name, version).write_arrays(out or path, about, arrays, finite=False)
