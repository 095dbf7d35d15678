"""Tables on disk: one JSON file, written whole or not at all. Nothing in it is ever run."""

import json
from collections.abc import Hashable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from secret_rl.files import replace_text
from secret_rl.version import VERSION

FORMAT = "secret-rl table potential"
FORMAT_VERSION = 1


class PotentialFileError(ValueError):
    """A file that cannot be read as a potential, with what is wrong and what to do."""


def write_table(path: Path, values: Mapping[Hashable, float], **about: Any) -> None:
    """Write states with their values, and JSON entries about them."""
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "library": VERSION,
        **about,
        "states": [_key_to_json(state) for state in values],
        "values": list(values.values()),
    }
    replace_text(path, json.dumps(content, allow_nan=False) + "\n")


def read_table(path: Path) -> tuple[dict[Hashable, float], dict[str, Any]]:
    """The states with their values, and what else the file says."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _table(content), content
    except PotentialFileError as wrong:
        raise PotentialFileError(f"{path} cannot be read as a potential: {wrong}") from None
    # Hostile files nest deeper than Python recurses, or hold numbers too long to read.
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as broken:
        raise PotentialFileError(
            f"{path} cannot be read as a potential ({broken or type(broken).__name__}): "
            "it is damaged or something else; restore it or estimate the potential again"
        ) from broken


def _table(content: Any) -> dict[Hashable, float]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        said = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise PotentialFileError(f"it says format {said!r}, expected {FORMAT!r}")
    if content.get("version") != FORMAT_VERSION:
        raise PotentialFileError(
            f"it has format version {content.get('version')!r}, this library reads {FORMAT_VERSION}: "
            f"open it with secret-rl {content.get('library', 'of another version')}"
        )
    states, values = content["states"], content["values"]
    if not (isinstance(states, list) and isinstance(values, list) and len(states) == len(values)):
        raise PotentialFileError("it does not hold one value for each state: restore it or estimate it again")
    table = {_key_from_json(state): value for state, value in zip(states, values, strict=True)}
    if len(table) != len(states):
        raise PotentialFileError("it names a state twice: restore it or estimate it again")
    for state, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise PotentialFileError(f"its value of state {state!r} is {value!r}, expected a finite number")
    return table


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
        raise PotentialFileError(f"{data!r} is not a state")
    return data  # type: ignore[no-any-return]
