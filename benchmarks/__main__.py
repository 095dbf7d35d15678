"""Run the benchmarks: ``python -m benchmarks [NAME ...]``; all of them if none is named."""

import sys
from importlib import import_module

from benchmarks.results_file import use_one_core

NAMES = ("environments", "store")


def main(names: list[str]) -> None:
    """Run each benchmark on one core."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    use_one_core()
    for name in names or NAMES:
        print(name)
        import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
