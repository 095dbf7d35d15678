"""Run the attacks: ``python -m tests.attack [--quick] [--only ATTACK] [--target NAME] [--seed N] [--repeat CASE]``."""

import argparse
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

ATTACKS = ("kills", "files", "writers", "disk")


def main() -> int:
    """Attack, print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample, in less than a minute")
    parser.add_argument("--only", choices=ATTACKS, action="append", help="this attack")
    parser.add_argument("--target", help="this job, reader or scenario, as the table names it")
    parser.add_argument("--seed", type=int, default=0, help="decides what is drawn")
    parser.add_argument("--repeat", metavar="ATTACK/TARGET/CASE", help="one case, as a failure names it")
    parser.add_argument("--processes", type=int, default=2, help="how many attacks run in parallel")
    arguments = parser.parse_args()
    # Threads do not survive a fork.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ["MPLBACKEND"] = "agg"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # PyTorch starts threads for each device
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave nothing behind
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="secret-rl-attack-", dir=memory if memory.is_dir() else None))
    try:
        return _run(arguments, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(arguments: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    import torch

    torch.set_num_threads(1)
    import matplotlib.pyplot  # noqa: F401  here rather than in every child
    from tests.attack import disk, files, kills, writers
    from tests.attack.children import adopt_orphans, side_by_side
    from tests.attack.jobs import Inputs
    from tests.attack.table import listed, merged, table

    import secret_rl.report.explorer
    import secret_rl.sb3  # noqa: F401

    adopt_orphans()
    inputs = Inputs(scratch / "inputs")
    inputs.make()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        print("threads are running here, which forked children would lack: they may hang", file=sys.stderr)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page
    processes = arguments.processes
    modules = {"kills": kills, "files": files, "writers": writers, "disk": disk}
    if arguments.repeat:
        attack, target, case = arguments.repeat.split("/", 2)
        tallies = [modules[attack].repeat(inputs, scratch / "repeat", target, case, arguments.seed)]
    else:
        chosen = arguments.only or ATTACKS
        units = [
            unit
            for name in chosen
            for unit in modules[name].units(inputs, scratch, arguments.quick, arguments.seed)
            if arguments.target in (None, _target(unit))
        ]
        tallies = merged(side_by_side([partial(_guarded, unit) for unit in units], scratch / "results", processes))
    print(table(tallies))
    failures = listed(tallies, arguments.seed)
    if failures:
        print(failures)
    print(f"seed {arguments.seed}, {time.monotonic() - started:.0f} s")
    return int(any(tally.failures for tally in tallies))


def _target(unit: partial[Any]) -> str:
    return getattr(unit.args[0], "name", "read-only folder")


def _guarded(unit: partial[Any]) -> Any:
    """One part that breaks must not hide what the others find."""
    from tests.attack.table import Failure, Tally

    started = time.monotonic()
    try:
        tally = unit()
    except Exception as error:
        traceback.print_exc()
        tally = Tally("harness", _target(unit), 1, [Failure("broken", f"{type(error).__name__}: {error}")])
    tally.seconds = time.monotonic() - started
    return tally


if __name__ == "__main__":
    sys.exit(main())
