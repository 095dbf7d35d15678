"""Run the attacks: ``python -m tests.attack [--quick] [--only ATTACK] [--target NAME] [--seed N] [--repeat CASE]``."""

import argparse
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

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
    from tests.attack.table import Tally, merged, report

    import secret_rl.report.explorer
    import secret_rl.sb3  # noqa: F401

    adopt_orphans()
    inputs = Inputs(scratch / "inputs")
    inputs.make()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        print("threads are running here, which forked children would lack: they may hang", file=sys.stderr)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page
    chosen, wanted, only, seed = arguments.only or ATTACKS, arguments.target, None, arguments.seed
    if arguments.repeat:
        *chosen, wanted, only = arguments.repeat.split("/", 2)
    modules = {"kills": kills, "files": files, "writers": writers, "disk": disk}
    named = [unit for name in chosen for unit in modules[name].units(inputs, arguments.quick)]
    named = [(target, attack) for target, attack in named if wanted in (None, target)][: 1 if only else None]
    units = [partial(attack, scratch / f"unit-{i}", seed, only) for i, (_, attack) in enumerate(named)]
    tallies = []
    for (target, _), (tally, ended) in zip(
        named, side_by_side(units, scratch / "results", arguments.processes), strict=True
    ):
        if tally is None:  # one part that breaks must not hide what the others find
            print(ended.err, file=sys.stderr)
            tally = Tally("harness", target, 1, [("broken", str(ended))])
        tally.seconds = ended.seconds
        tallies.append(tally)
    print(report(merged(tallies), seed))
    print(f"seed {seed}, {time.monotonic() - started:.0f} s")
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
