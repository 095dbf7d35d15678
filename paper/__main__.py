"""Make the paper's results: ``python -m paper [NAME ...] [--quick]``; all of them if none is named."""

import argparse
import sys
from importlib import import_module

from secret_rl.sweep import AUTO, LOCAL, SweepError, Workers

NAMES = (
    "maze", "credit_quality", "source_data", "class_weights", "concentration", "window_size", "ablations",
    "transfer_in_domain", "transfer_bigger", "transfer_inverted", "transfer_window", "transfer_class_weights",
    "transfer_source_data", "transfer_target_data", "transfer_learned", "deep_inverted", "deep_in_domain",
    "deep_sb3", "deep_bonus", "method_worth", "online", "keys_doors_credit", "keys_doors_heat", "keys_doors_transfer",
    "keys_doors_bonus", "beyond_triggers", "unseen_tasks", "unseen_small", "unseen_third",
)  # fmt: skip
_OF_TASKS = (
    "beyond_triggers", "unseen_tasks", "unseen_small", "unseen_third", "deep_bonus", "method_worth", "keys_doors_bonus",
)  # fmt: skip
_BATCHED = ("deep_bonus", "method_worth")
_ONE_RUN = ("maze", "keys_doors_heat", "keys_doors_bonus")  # a picture, a fit, and learners that are one batch


def main(arguments: list[str] | None = None) -> list[str]:
    """Make each result that was asked for: run what is missing, then write its table and figure; give their paths."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which results, of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small size, minutes on two cores")
    parser.add_argument("--analyse", action="store_true", help="only write tables and figures of runs that are there")
    parser.add_argument("--run-only", action="store_true", help="only run: no table and no figure")
    parser.add_argument("--only", metavar="TASK", help=f"of {', '.join(_OF_TASKS)}: this task or condition alone")
    parser.add_argument("--batch", type=int, help=f"of {', '.join(_BATCHED)}: so many conditions in one batch")
    parser.add_argument(
        "--jobs", type=int, help="so many runs at a time, each in a process (default: one, in this one)"
    )
    parser.add_argument(
        "--ray", nargs="?", const=AUTO, metavar="ADDRESS",
        help=f"run on Ray: a cluster's address; {AUTO}, the default: the cluster of this machine, or else a local one; "
        f"{LOCAL}: a Ray of --jobs workers that ends with the command",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no such result: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    given = {name: getattr(options, name) for name in ("only", "batch") if getattr(options, name) is not None}
    for option, allowed in (("batch", _BATCHED), ("only", _OF_TASKS)):
        if option in given and options.names not in ([name] for name in allowed):
            parser.error(f"--{option} is an option of {', '.join(allowed)}: name one of them alone")
    try:
        workers = Workers(options.jobs, options.ray)
    except ValueError as bad:
        parser.error(str(bad))
    again = "".join(f" --{name} {value}" for name, value in vars(options).items() if name in ("jobs", "ray") and value)
    failed: list[str] = []
    written: list[str] = []
    for name in options.names or NAMES:
        module = import_module(f"paper.{name}")
        print(f"{name}: {module.__doc__.splitlines()[0]}", flush=True)
        command = f"python -m paper {name}{' --quick' if options.quick else ''}"
        if name not in _ONE_RUN:
            given["workers"] = workers
        try:
            if options.run_only:
                module.run(module.result(options.quick), command, **given)
                continue
            for path in module.main(options.quick, command, options.analyse, **given):
                print(f"  wrote {path}")
                written.append(path)
        except SweepError as some:  # the others go on
            failed.append(f"{name}: {some}{again}")
        given.pop("workers", None)
    if failed:
        sys.exit("\n".join(failed))
    return written


if __name__ == "__main__":
    main()
