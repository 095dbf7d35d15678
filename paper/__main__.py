"""Make the paper's results: ``python -m paper [NAME ...] [--quick]``; all of them if none is named."""

import argparse
from importlib import import_module

NAMES = (
    "maze", "credit_quality", "source_data", "class_weights", "concentration", "window_size", "ablations",
    "transfer_in_domain", "transfer_bigger", "transfer_inverted", "transfer_window", "transfer_class_weights",
    "transfer_source_data", "transfer_target_data", "transfer_learned", "deep_inverted", "deep_in_domain",
    "deep_sb3", "deep_bonus", "method_worth", "online", "keys_doors_credit", "keys_doors_heat", "keys_doors_transfer",
    "keys_doors_bonus", "beyond_triggers", "unseen_tasks", "unseen_small", "unseen_third",
)  # fmt: skip
_OF_TASKS = ("beyond_triggers", "unseen_tasks", "unseen_small", "unseen_third", "deep_bonus", "method_worth")


def main(arguments: list[str] | None = None) -> list[str]:
    """Make each result that was asked for: run what is missing, then write its table and figure; give their paths."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which results, of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small size, minutes on two cores")
    parser.add_argument("--analyse", action="store_true", help="only write tables and figures of runs that are there")
    parser.add_argument("--run-only", action="store_true", help="only run: no table and no figure")
    parser.add_argument("--only", metavar="TASK", help=f"of {', '.join(_OF_TASKS)}: this task alone")
    parser.add_argument("--jobs", type=int, help=f"of {', '.join(_OF_TASKS)}: so many runs at a time")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no such result: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    given = {name: getattr(options, name) for name in ("only", "jobs") if getattr(options, name) is not None}
    if given and options.names not in ([name] for name in _OF_TASKS):
        parser.error(f"--{next(iter(given))} is an option of {', '.join(_OF_TASKS)}: name one of them alone")
    written: list[str] = []
    for name in options.names or NAMES:
        module = import_module(f"paper.{name}")
        print(f"{name}: {module.__doc__.splitlines()[0]}", flush=True)
        command = f"python -m paper {name}{' --quick' if options.quick else ''}"
        if options.run_only:
            module.run(module.result(options.quick), command, **given)
            continue
        for path in module.main(options.quick, command, options.analyse, **given):
            print(f"  wrote {path}")
            written.append(path)
    return written


if __name__ == "__main__":
    main()
