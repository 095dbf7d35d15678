"""Run the benchmarks: ``python -m benchmarks [NAME ...]``; all of those for one core if none is named.

``python -m benchmarks check [NAME ...]`` compares ratios with the committed ones instead.
"""

import sys
from importlib import import_module

from benchmarks import check
from benchmarks.results_file import use_one_core

NAMES = (
    "environments",
    "store",
    "training",
    "attribution",
    "wrapper",
    "q_learning",
    "sb3",
    "keys_doors",
    "explorer",
    "startup",
)  # on one core
ELSEWHERE = {  # only when named: module and function
    "soak": ("soak", "run"),
    "parallel": ("parallel", "run"),
    "fit": ("fit", "run"),
    "sweep": ("sweep", "run"),
    "sweep_kills": ("sweep_kills", "run"),
    "long_episodes": ("long_episodes", "run"),
    "large_store": ("large_store", "run"),
    "sweep_node": ("sweep_kills", "node"),
    "distributed": ("distributed", "run"),
}


def main(names: list[str]) -> None:
    """Run each benchmark, on one core unless it is one for another device."""
    if names[:1] == ["check"]:
        unknown = sorted(set(names[1:]) - set(NAMES))
        if unknown:
            sys.exit(f"no benchmark with ratios on one core: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
        use_one_core()
        check.run(names[1:])
        return
    unknown = sorted(set(names) - {*NAMES, *ELSEWHERE})
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; choose from {', '.join((*NAMES, *ELSEWHERE))}")
    for name in [name for name in names if name in ELSEWHERE]:  # first: one core is for good
        print(name)
        module, function = ELSEWHERE[name]
        getattr(import_module(f"benchmarks.{module}"), function)()
    on_one_core = [name for name in names if name in NAMES] if names else NAMES
    if on_one_core:
        use_one_core()
    for name in on_one_core:
        print(name)
        import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
