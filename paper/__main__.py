"""Run the paper's results: ``python -m paper [NAME ...] [--quick]``; all of them if none is named."""

import argparse
from importlib import import_module

NAMES = ("maze",)


def main() -> None:
    """Run each result that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which results (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small size for two cores")
    options = parser.parse_args()
    for name in options.names or NAMES:
        module = import_module(f"paper.{name}")
        print(f"{name}: {module.__doc__.splitlines()[0]}")
        print(f"  wrote {module.run(quick=options.quick)}")


if __name__ == "__main__":
    main()
