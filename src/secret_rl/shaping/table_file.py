"""Tables on disk: one JSON file, written whole or not at all. Nothing in it is ever run."""

from collections.abc import Hashable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from secret_rl.files import FileFormat, finite_number

FORMAT = FileFormat("secret-rl table potential", remedy="restore it or estimate the potential again", large=True)


def write_table(path: Path, values: Mapping[Hashable, float], **about: Any) -> None:
    """Write states with their values, and JSON entries about them."""
    FORMAT.write_json(
        path, {**about, "states": [_key_to_json(state) for state in values], "values": list(values.values())}
    )


def read_table(path: Path) -> tuple[dict[Hashable, float], dict[str, Any]]:
    """The states with their values, and what else the file says."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
    about = FORMAT.read_json(path)
    with FORMAT.reading(path):
        states, values = about.pop("states"), about.pop("values")
        table = {_key_from_json(state): finite_number(value) for state, value in zip(states, values, strict=True)}
        if len(table) != len(states):
            raise ValueError("it names a state twice")
        return table, about


def _key_to_json(key: Any) -> Any:
    """Numbers, strings, bools and None as they are, tuples as lists; JSON lacks bytes and infinities."""
    if isinstance(key, tuple):
        return [_key_to_json(part) for part in key]
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, float) and not isfinite(key):
        return {"float": str(key)}
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(
        f"a table with the state {key!r} cannot be saved: expected numbers, strings, bytes, bools, None, "
        "or tuples of them"
    )


def _key_from_json(data: Any) -> Hashable:
    if isinstance(data, list):
        return tuple(_key_from_json(part) for part in data)
    match data:
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"float": "inf" | "-inf" as name}:
            return float(name)
    if isinstance(data, dict) or (isinstance(data, float) and not isfinite(data)):
        raise ValueError(f"{data!r} is not a state")
    return data  # type: ignore[no-any-return]
