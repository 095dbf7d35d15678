"""What the machine would allow: shown beside what is measured, in the same run."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

_SIZE, _TRIES = 1024, 10


def gemm_peak(device: str = "cpu", size: int = _SIZE, dtype: torch.dtype = torch.float32) -> float:
    """Operations per second of the product of two large matrices, with as many threads as PyTorch has here.

    With one thread, per second of processor time.
    """
    one, other = (torch.rand(size, size, device=device, dtype=dtype) for _ in range(2))

    def product() -> None:
        torch.mm(one, other)
        if device == "cuda":
            torch.cuda.synchronize()

    one_thread = device == "cpu" and torch.get_num_threads() == 1
    return 2 * size**3 / _shortest(product, time.process_time if one_thread else time.perf_counter)


def read_seconds(files: Iterable[Path]) -> float:
    """Seconds to read files from first byte to last into one buffer, from the system's cache after the first time."""
    files, buffer = list(files), bytearray(1 << 20)

    def read() -> None:
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    return _shortest(read)


def flop_of(work: Callable[[], object]) -> float:
    """Operations of all products in some work of PyTorch, gradients included."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


def _shortest(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    work()  # warms up
    shortest = float("inf")
    for _ in range(_TRIES):
        start = clock()
        work()
        shortest = min(shortest, clock() - start)
    return shortest
