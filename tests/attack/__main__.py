"""Run the attacks: ``python -m tests.attack [--quick] [--only ATTACK] [--target NAME] [--seed N]``."""

import argparse
import gc
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zlib
from contextlib import redirect_stdout
from pathlib import Path

SHOWN = 12  # failures that are listed of each target


def main() -> int:
    """Attack, print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample, in about a minute or two")
    parser.add_argument("--only", choices=("kills", "damage", "writers", "disk"), help="this attack")
    parser.add_argument("--target", help="this one, as the table names it")
    parser.add_argument("--seed", type=int, default=0, help="decides what is drawn")
    arguments = parser.parse_args()
    # Threads do not survive a fork.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": ""}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave nothing behind
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="secret-rl-attack-", dir=memory if memory.is_dir() else None))
    tempfile.tempdir = str(scratch)
    try:
        return _run(arguments, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(arguments: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    import numpy as np
    import torch

    torch.set_num_threads(1)
    import matplotlib.pyplot  # noqa: F401  here rather than in every child
    from tests.attack.attacks import ATTACKS, private_mounts
    from tests.attack.children import adopt_orphans
    from tests.attack.targets import targets

    import secret_rl.report.explorer  # noqa: F401

    warnings.simplefilter("ignore")  # fits this small are no good
    adopt_orphans()
    private_mounts()
    known = [target for target in targets(scratch / "inputs") if not (arguments.quick and target.slow)]
    for target in known:  # its kernels and modules are then loaded when children are forked
        if not target.slow:
            target.start(scratch / "once")
            with redirect_stdout(io.StringIO()):
                code = target.execute(scratch / "once")
            if code:
                raise RuntimeError(f"{target.name} fails without any attack")
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page
    totals: dict[str, list[int]] = {}
    for attack, work in ATTACKS.items():
        for target in known:
            if arguments.only in (None, attack) and arguments.target in (None, target.name):
                rng = np.random.default_rng([arguments.seed, zlib.crc32(f"{attack} {target.name}".encode())])
                place, begun = scratch / attack / target.name.replace(" ", "-"), time.monotonic()
                cases = list(work(target, place, rng, arguments.quick))
                failures = [(case, problems) for case, problems in cases if problems]
                total = totals.setdefault(attack, [0, 0, 0])
                totals[attack] = [a + b for a, b in zip(total, (bool(cases), len(cases), len(failures)), strict=True)]
                seconds = time.monotonic() - begun
                print(f"{attack:<8}{target.name:<26}{len(cases):>7,} tried {len(failures):>4} failed {seconds:>6.1f} s")
                for case, problems in failures[:SHOWN]:
                    print(f"    {case}: {'; '.join(problems)}")
                sys.stdout.flush()
                shutil.rmtree(place, ignore_errors=True)
    for attack, (count, tried, failed) in totals.items():
        print(f"{attack}: {count} targets, {tried:,} tried, {failed:,} failed")
    print(f"seed {arguments.seed}, {time.monotonic() - started:.0f} s")
    return int(any(failed for *_, failed in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
