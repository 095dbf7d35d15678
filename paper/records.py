"""What the runs of a result leave behind: a JSON file with an entry for each panel, and a page made of it."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secret_rl.atomic import InUseError, path_lock, replace_text

CELLS = Path("runs/paper/cells")  # of every study a folder, with a file for each run


def load(path: Path) -> dict[str, Any]:
    """The record of a result, empty if nothing was run yet."""
    if not path.is_file():
        return {"panels": []}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def entry_of(record: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The panel that was run with these settings, if any."""
    return next((entry for entry in record["panels"] if entry["settings"] == settings), None)


def keep(path: Path, record: dict[str, Any], entry: Mapping[str, Any], command: str) -> None:
    """Write the record with one more panel, in place of an earlier one of its name."""
    record["panels"] = [*(other for other in record["panels"] if other["label"] != entry["label"]), entry]
    record |= {"command": command, "date": datetime.now(UTC).date().isoformat()}
    replace_text(path, json.dumps(record, indent=1) + "\n")


def write_page(
    path: Path, title: str, note: str, sections: Mapping[str, Sequence[str] | None], record: Mapping[str, Any]
) -> Path:
    """A Markdown page: a section for each panel, None for one that was not run, and where the numbers come from."""
    lines = [f"# {title}", "", *([note, ""] if note else [])]
    for heading, content in sections.items():
        lines += [f"## {heading}", "", *(["not run", ""] if content is None else content)]
    machines = sorted({entry["machine"] for entry in record["panels"]})
    lines += [f"`{record['command']}`, {record['date']}, {'; '.join(machines)}.", ""]
    replace_text(path, "\n".join(lines))
    return path


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Of the cells that need the same file, one makes it in the block; the others wait, and find it there."""
    while True:
        try:
            lock = path_lock(path.with_name(f"{path.name}.made"))  # who writes it may lock the path itself
            break
        except InUseError:
            time.sleep(0.5)
    with lock:
        yield
