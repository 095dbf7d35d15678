"""The texts of the repository as tests read them: their code, run as it stands, and their numbers."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))

_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*")


def blocks(text: str, language: str) -> list[str]:
    """The fenced code of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_python(text: str, folder: Path) -> str:
    """Run the Python of a text in order, in one process, where warnings are errors; what it printed."""
    return _run([sys.executable, "-W", "error", "-c", "\n".join(blocks(text, "python"))], folder)


def commands(text: str) -> list[list[str]]:
    """Every call of our command in a text."""
    lines = [line.split("#")[0].strip() for block in blocks(text, "console") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("secret-rl")]


def run_commands(text: str, folder: Path) -> None:
    """Run the calls of our command in a text, in order."""
    for program, *words in commands(text):
        _run([Path(sys.executable).parent / program, *words], folder)


def unlike_printed(text: str, printed: str) -> list[str]:
    """Lines of output that a text shows and that were not printed, whatever their numbers."""
    known = {_shape(line) for line in printed.splitlines()}
    shown = [line for block in blocks(text, "text") for line in block.splitlines()]
    return [line for line in shown if _shape(line) not in known]


def _shape(line: str) -> str:
    return " ".join(_NUMBER.sub("0", line).split())


def _run(command: list[str | Path], folder: Path) -> str:
    """What a program prints; it must not fail. It is given keys, for a walk in a maze and the way out."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MINARI_DATASETS_PATH": str(folder / "minari")}
    how = {"cwd": folder, "env": environment, "timeout": 600, "input": "wasdq"}
    done = subprocess.run(command, capture_output=True, text=True, **how)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
