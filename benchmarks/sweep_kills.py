"""Workers, drivers and Ray's own processes killed at random moments of studies that go on: is anything lost or doubled?

``python -m benchmarks sweep_kills``, or ``python -m benchmarks.sweep_kills --kills N --ray --seed N``.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import descendants
from benchmarks.results_file import Row, machine, write
from benchmarks.sweep import content_of, fit, study
from secret_rl import sweep
from secret_rl.sweep import LOCAL, Cell, Workers

KILLS, RAY_KILLS, JOBS = 50, 20, 2
SMALL: dict[str, Any] = {"episodes": 60, "steps": 10}
_SEEDS = 4  # twelve cells
_LONGEST = 4.0  # seconds between two kills
_HUNG = 300  # seconds without a new file
_KINDS = {"worker": ("spawn_main", "ray::_on_node"), "head": ("gcs_server", "raylet/raylet")}


def cells(log: Path) -> list[Cell]:
    """A study whose cells say when they begin."""
    return [Cell(cell.name, cell.settings, partial(noted, log, cell)) for cell in study(SMALL, _SEEDS)]


def noted(log: Path, cell: Cell) -> Any:
    """A line for each time that a cell begins, then its result."""
    with log.open("a") as file:
        file.write(json.dumps([time.time_ns(), cell.name]) + "\n")
    return fit(**cell.settings)


def drive(folder: Path, ray: bool) -> None:
    """What is killed: a process that runs the study."""
    workers = Workers(JOBS, LOCAL if ray else None)
    _, failures = sweep.run(cells(folder.with_suffix(".log")), folder, workers, progress=False)
    if failures:
        sys.exit("\n".join(map(str, failures)))


def attack(kills: int, ray: bool, seed: int, scratch: Path) -> tuple[Counter[str], list[str]]:
    """Kill at random, and start again what was killed; how many of each were killed, and what went wrong."""
    rng, killed, wrong, studies = random.Random(seed), Counter[str](), list[str](), 0
    expected = _undisturbed(scratch / "undisturbed")
    while killed.total() < kills:
        folder, studies = scratch / f"study-{studies}", studies + 1
        process, seen, last = _begin(folder, ray), dict[str, int](), time.monotonic()
        while process.poll() != 0:
            if process.poll() is not None:  # it was killed, or lost its head
                wrong += ["the driver failed"] if process.returncode > 0 and not ray else []
                process = _begin(folder, ray)
            if killed.total() < kills:
                while process.poll() is None and not _victims(process, "worker"):
                    time.sleep(0.1)  # Ray takes its time to start
                time.sleep(rng.uniform(0.0, _LONGEST))
                kind = rng.choice(["worker", "worker", "driver", *(["head"] if ray else [])])
                killed[kind] += _kill(process, kind, rng)
            else:
                time.sleep(0.1)
            now = _written(folder)
            wrong += [f"{name} was written again" for name, when in seen.items() if now.get(name) != when]
            last, seen = time.monotonic() if len(now) > len(seen) else last, now
            if time.monotonic() - last > _HUNG:
                process.kill()
                return killed, [*wrong, "it hangs"]
        wrong += _faults(folder, expected)
    return killed, wrong


def _undisturbed(folder: Path) -> dict[str, bytes]:
    sweep.run(cells(folder.with_suffix(".log")), folder, Workers(JOBS), progress=False)
    return content_of(folder)


def _begin(folder: Path, ray: bool) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.sweep_kills", "--drive", str(folder), *(["--ray"] if ray else [])]
    with folder.with_suffix(".err").open("a") as errors:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, text=True, start_new_session=True)


def _victims(process: subprocess.Popen[str], kind: str) -> list[int]:
    """The processes of a kind."""
    if kind == "driver":
        return [process.pid]
    found = []
    for pid in descendants(process.pid):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            found += [pid] if any(word in command for word in _KINDS[kind]) else []
    return found


def _kill(process: subprocess.Popen[str], kind: str, rng: random.Random) -> int:
    """Send SIGKILL to one process of a kind; how many were killed, 0 or 1."""
    if process.poll() is None and (found := _victims(process, kind)):
        with suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
            return 1
    return 0


def _written(folder: Path) -> dict[str, int]:
    """The result files, and when each was written."""
    found = {}
    for path in folder.glob("[!.]*.json"):
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_mtime_ns
    return found


def _faults(folder: Path, expected: dict[str, bytes]) -> list[str]:
    """What is lost, doubled, changed or left behind when a study is done."""
    found, finished = content_of(folder), _written(folder)
    wrong = [f"{name} is lost" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is left" for name in sorted(found.keys() - expected.keys())]
    wrong += [f"{name} has other content" for name in found.keys() & expected.keys() if found[name] != expected[name]]
    log = folder.with_suffix(".log")
    names = {cell.name: cell.path(folder).name for cell in cells(log)}
    for line in log.read_text().splitlines():
        began, name = json.loads(line)
        if began > finished.get(names[name], began):
            wrong.append(f"{names[name]} began again after it was done")
    return wrong


def run() -> None:
    """Both attacks, written down; exits with an error where anything is lost or doubled."""
    rows, wrong = [], []
    for kills, ray, where in ((KILLS, False, "in processes"), (RAY_KILLS, True, "on a local Ray")):
        scratch = Path(tempfile.mkdtemp(prefix="secret-rl-sweep-kills-"))
        killed, faults = attack(kills, ray, 0, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        rows += [Row(f"{where}: {kind}s killed", count) for kind, count in sorted(killed.items())]
        rows.append(Row(f"{where}: cells lost, doubled, changed or left half-way", len(faults), asked="0"))
        wrong += faults
    about = machine()["machine"].replace("one used", "two used")
    write("sweep_kills", "Random kills of a study that goes on", rows, {"machine": about, "faults": wrong})
    if wrong:
        sys.exit("; ".join(wrong))


def node() -> None:
    """Kill one of two Ray nodes of this machine in the middle of a study, written down."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}  # both nodes are ours alone
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as scratch:
        expected, folder = _undisturbed(Path(scratch) / "undisturbed"), Path(scratch) / "study"
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        lost = cluster.add_node(num_cpus=2)

        def kill() -> None:
            while len(_written(folder)) < len(expected) // 4:
                time.sleep(0.05)
            cluster.remove_node(lost, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        _, failures = sweep.run(cells(folder.with_suffix(".log")), folder, Workers(ray=cluster.address), progress=False)
        killer.join()
        begun = len(folder.with_suffix(".log").read_text().splitlines())
        wrong = [*map(str, failures), *_faults(folder, expected)]
        cluster.shutdown()
    rows = [
        Row("cells of the study", len(expected)),
        Row("nodes killed, of two", 1),
        Row("cells begun again, of those under way", begun - len(expected)),
        Row("cells lost, doubled, changed or left half-way", len(wrong), asked="0"),
    ]
    about = machine()["machine"].replace("one used", "two used")
    write("sweep_node", "A study on two Ray nodes, one of which is killed", rows, {"machine": about, "faults": wrong})
    if wrong:
        sys.exit("; ".join(wrong))


def main() -> None:
    """An attack of another size, or what is attacked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="how many")
    parser.add_argument("--ray", action="store_true", help="on a local Ray, whose head is killed, too")
    parser.add_argument("--seed", type=int, default=0, help="decides when and what is killed")
    parser.add_argument("--drive", type=Path, metavar="FOLDER", help="run the study, to be killed")
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.ray)
        return
    with tempfile.TemporaryDirectory() as scratch:
        killed, wrong = attack(options.kills, options.ray, options.seed, Path(scratch))
    print(f"killed {dict(killed)}; {len(wrong)} faults", *wrong, sep="\n  ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
