"""CPU seconds in which ``secret-rl`` says its help, version or completion, now and before imports were lazy."""

import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from io import BytesIO
from pathlib import Path

from benchmarks.results_file import Row, interleaved, write

BEFORE = "9d74bfd"  # the last commit in which the command imported what it might need
CALLS = {"--help": ["--help"], "--version": ["--version"], "completion": ["--print-completion", "bash"]}
ROUNDS = 9
ROOT = Path(__file__).parent.parent


def run() -> None:
    """Measure and write down."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        rows = measure({"before": Path(folder) / "src", "now": ROOT / "src"})
    write("startup", f"Start-up of the command line, CPU seconds, beside commit {BEFORE}", rows)


def measure(sources: dict[str, Path]) -> list[Row]:
    """Every call with every source in turn, compiled once before."""
    contenders = {
        f"{name}, {when}": partial(cpu_seconds, words, source)
        for name, words in CALLS.items()
        for when, source in sources.items()
    }
    for measure_once in contenders.values():
        measure_once()
    found = interleaved(contenders, ROUNDS)
    rows = []
    for name in CALLS:
        before, now = (found[f"{name}, {when}"] for when in sources)
        rows += [
            Row(f"secret-rl {name}: before", before, "s"),
            Row(f"secret-rl {name}: now", now, "s", "< 0.3 s"),
            Row(f"secret-rl {name}: before over now", before / now, "x"),
        ]
    return rows


def cpu_seconds(words: list[str], source: Path) -> float:
    """User and system time of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from secret_rl.cli import main; main()", *words]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
