"""Many runs: each a cell, a pure function of its settings with one result file, in processes here or on Ray.

What is done is never computed again: the same call goes on after a kill of a worker, a node, the head or the caller.
Results are the same bytes wherever and in whatever order cells run.
"""

import hashlib
import json
import os
import socket
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

from secret_rl.atomic import folder_lock
from secret_rl.checks import printable
from secret_rl.files import FileFormat, plain
from secret_rl.processes import end_processes, worker_begins
from secret_rl.progress import Show, progress_bar
from secret_rl.version import VERSION

Call = Callable[[], Any]
"""Something to do, such as a ``functools.partial`` of a function at the top of a module."""

RETRIES = 5  # how often a cell whose process was killed is tried again
LOCAL, AUTO = "local", "auto"
_PATIENCE = 10.0  # seconds until a cluster answers
_LONGEST_NAME = 80
_LONGEST_SETTINGS = 500
_FORMAT = FileFormat("secret-rl sweep cell", remedy="delete it: the same command computes it again")
# Threads of a cell would wait for those of others, and how many there are would show in the last bits of results.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Workers:
    """Where cells run. By default in this process, one after another.

    Args:
        jobs: So many processes of this machine; also of a Ray that is started for the call.
        ray: "local": a Ray of ``jobs`` workers is started, and ends with the call. "auto": the cluster that this
            machine is part of, or else a local one. Or the address of a cluster, which runs as many cells at a time as
            it has cores; its nodes share this folder, and have the same packages.
    """

    jobs: int | None = None
    ray: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {self.jobs}")
        if self.ray is not None and not self.ray:
            raise ValueError('ray must be "local", "auto" or an address such as "10.0.0.1:6379", got an empty one')


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        name: Names it for people, and its file.
        settings: All that its result depends on, the seed too, as JSON holds it.
        call: Gives the result, as JSON holds it: the same for the same settings.
    """

    name: str
    settings: Mapping[str, Any]
    call: Call

    def path(self, folder: Path) -> Path:
        """Where its result is kept: the name, and a digest of the settings."""
        text = json.dumps(plain(self.settings), sort_keys=True)
        word = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return folder / f"{word[:_LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True)
class Failure:
    """A cell that has no result, and why."""

    name: str
    settings: Mapping[str, Any]
    reason: str

    def __str__(self) -> str:
        settings = json.dumps(plain(self.settings))
        cut = settings if len(settings) <= _LONGEST_SETTINGS else f"{settings[:_LONGEST_SETTINGS]} ..."
        return printable(f"{self.name}: {' '.join(self.reason.split())}\n  settings {cut}")


class SweepError(RuntimeError):
    """Cells that failed, with their settings, and the command that repeats them."""

    def __init__(self, failures: Sequence[Failure], command: str) -> None:
        lines = [f"{len(failures)} of the cells failed:", *map(str, failures)]
        super().__init__("\n".join([*lines, f"this repeats them, and nothing that is done: {command}"]))
        self.failures = tuple(failures)


def run(
    cells: Sequence[Cell], folder: str | Path, workers: Workers | None = None, *, progress: Show = None
) -> tuple[list[Any], list[Failure]]:
    """The results of cells, None for those that failed, and the failures; what is in the folder is not run again.

    Args:
        cells: In the order in which they begin.
        folder: Of their result files.
        workers: Where they run.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    folder = Path(folder).absolute()
    paths = [cell.path(folder) for cell in cells]
    for path, times in Counter(paths).items():
        if times > 1:
            same = cells[paths.index(path)]
            raise ValueError(f"{times} cells are named {same.name!r} and have the same settings: give each its own")
    missing = [number for number, cell in enumerate(cells) if result_of(folder, cell) is None]
    failed: dict[int, Failure] = {}
    with folder_lock(folder), progress_bar(progress, "cells", len(cells)) as tick:
        before = len(cells) - len(missing)
        tick("", before, len(cells))
        calls = [_Keep(folder, cells[number]) for number in missing]
        for done, (place, reason) in enumerate(run_each(calls, workers), before + 1):
            number = missing[place]
            if reason is not None:
                failed[number] = Failure(cells[number].name, cells[number].settings, reason)
            tick(cells[number].name + (f" ({len(failed)} failed)" if failed else ""), done, len(cells))
    found = [None if number in failed else result_of(folder, cell) for number, cell in enumerate(cells)]
    return [None if content is None else content["result"] for content in found], [failed[n] for n in sorted(failed)]


def check(failures: Sequence[Failure], command: str) -> None:
    """An error that lists what failed, if anything did; ``command`` is the one that called for the cells."""
    if failures:
        raise SweepError(failures, command)


def result_of(folder: str | Path, cell: Cell) -> dict[str, Any] | None:
    """The ``settings`` and the ``result`` of a cell; None if it was not run."""
    path = cell.path(Path(folder))
    return _FORMAT.read_json(path) if path.is_file() else None


@dataclass(frozen=True)
class _Keep:
    """Computes a cell and writes its file; a killed worker may have been just about to say that it has."""

    folder: Path
    cell: Cell

    def __call__(self) -> None:
        if result_of(self.folder, self.cell) is None:
            content = {"name": self.cell.name, "settings": plain(self.cell.settings), "result": self.cell.call()}
            _FORMAT.write_json(self.cell.path(self.folder), content)


def run_each(
    calls: Sequence[Call], workers: Workers | None = None, *, fresh: bool = False
) -> Iterator[tuple[int, str | None]]:
    """Make calls in any order, some at a time; what they return is dropped.

    Yields the number of each call as it ends, with the reason if it failed. A call whose process is killed is made
    again, at most ``RETRIES`` times, and leaves the others alone. If the caller stops early, what runs is ended.

    Args:
        calls: They write files of their own, whole or not at all, and may be made again after they have.
        workers: Where.
        fresh: Each call has a process that nothing ran in before.
    """
    workers = workers or Workers()
    if not calls:
        return iter(())
    if workers.ray is not None:
        return _on_ray(calls, workers, fresh)
    if workers.jobs is None:
        import torch  # noqa: F401  or it would come with as many threads as there are cores

        return ((number, _attempt(call)) for number, call in enumerate(calls))
    return _in_processes(calls, min(workers.jobs, len(calls)), fresh)


def _attempt(call: Call | bytes) -> str | None:
    """Make a call on one thread; the reason if it fails."""
    try:
        made = cloudpickle.loads(call) if isinstance(call, bytes) else call
        with _one_thread():
            made()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
    return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch, if it is there already, computes on one thread; if it comes later, the environment says so."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_processes(calls: Sequence[Call], jobs: int, fresh: bool) -> Iterator[tuple[int, str | None]]:
    """In processes of this machine, which take one call after another."""
    context, waiting, killed = get_context("spawn"), deque(range(len(calls))), Counter[int | None]()
    processes: dict[Any, BaseProcess] = {}  # by our end of a pipe
    doing: dict[Any, int | None] = {}  # None: it is just starting
    dismissed: list[BaseProcess] = []
    try:
        while waiting or any(number is not None for number in doing.values()):
            for _ in range(min(jobs, len(processes) + len(waiting)) - len(processes)):
                ours, theirs = context.Pipe()
                process: BaseProcess = context.Process(target=_work, args=(theirs,))
                process.start()
                theirs.close()  # so that reading ends when the process does
                processes[ours], doing[ours] = process, None
            ready: list[Any] = connection.wait(list(processes))
            for one in ready:
                number, ended, reason = doing[one], False, None
                try:
                    reason = one.recv()
                except (EOFError, OSError):  # the process has ended, perhaps half-way through a message
                    processes[one].join()
                    ended, reason = True, f"its process ended with code {processes[one].exitcode}"
                    killed[number] += 1
                    if number is None and killed[None] > RETRIES:
                        raise RuntimeError(
                            f"{reason} as it began. Workers import the main script: put the call under "
                            'if __name__ == "__main__":'
                        ) from None
                    if number is not None and killed[number] <= RETRIES:
                        waiting.appendleft(number)
                        number = None
                if ended or (fresh and number is not None) or not waiting:
                    one.close()  # a worker ends when nothing more can come
                    dismissed.append(processes.pop(one))
                    del doing[one]
                else:
                    doing[one] = following = waiting.popleft()
                    with suppress(OSError):  # it has just ended: noticed when it is waited for
                        one.send_bytes(cloudpickle.dumps(calls[following]))
                if number is not None:
                    killed[None] = 0
                    yield number, reason
        end_processes(dismissed, lambda _: None)
    finally:
        left = [*processes.values(), *dismissed]
        end_processes(left, BaseProcess.terminate)
        end_processes(left, BaseProcess.kill)


def _work(parent: Connection) -> None:
    """The life of a worker process."""
    worker_begins()
    os.environ |= _ONE_THREAD
    with suppress(EOFError, OSError, KeyboardInterrupt):  # Ctrl-C goes to all processes: the parent says so
        parent.send(None)
        while True:
            parent.send(_attempt(parent.recv_bytes()))


def _on_ray(calls: Sequence[Call], workers: Workers, fresh: bool) -> Iterator[tuple[int, str | None]]:
    """As tasks of a Ray cluster, which sees to killed workers and nodes."""
    with ray_of(workers) as ray:
        from ray.exceptions import RayError

        options = {"num_cpus": 1, "max_retries": RETRIES, **({"max_calls": 1} if fresh else {})}
        task = ray.remote(**options)(_on_node)
        place = place_of()
        left = {task.remote(cloudpickle.dumps(call), place): number for number, call in enumerate(calls)}
        try:
            while left:
                [one], _ = ray.wait(list(left), num_returns=1)
                try:
                    reason = ray.get(one)
                except RayError as error:
                    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                yield left.pop(one), reason
        finally:
            for one in left:
                ray.cancel(one, force=True)


@contextmanager
def ray_of(workers: Workers) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster; a Ray that is started here ends with the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError("Ray is not installed: pip install 'secret-rl[ray]'", name="ray") from missing
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    here: dict[str, Any] = {"num_cpus": workers.jobs or os.cpu_count(), "include_dashboard": False}
    if workers.ray == LOCAL:
        ray.init(LOCAL, **quiet, **here)
    else:
        try:
            _check_answers(str(workers.ray))
            ray.init(workers.ray, **quiet)
        except ConnectionError as none:
            if workers.ray != AUTO:
                raise ConnectionError(
                    f"no Ray cluster answers at {workers.ray!r}: start one with `ray start --head` and give the "
                    f"address that it prints, or {LOCAL!r} to have one on this machine"
                ) from none
            ray.init(LOCAL, **quiet, **here)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """A ConnectionError at once where nothing listens at host:port: Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        except OSError as refused:
            raise ConnectionError(str(refused)) from refused


Place = tuple[str, str, tuple[str, ...]]


def place_of() -> Place:
    """What a node needs to have, too: the version, the working folder, and where modules are found."""
    return VERSION, str(Path.cwd()), tuple(sys.path)


def enter_place(place: Place) -> None:
    """Be where the caller is, in a worker of Ray."""
    version, folder, modules = place
    if version != VERSION:
        raise RuntimeError(f"this node has secret-rl {VERSION}, the caller {version}: install the same on both")
    try:
        os.chdir(folder)
    except OSError as missing:
        raise RuntimeError(f"this node has no {folder}: run from a folder that all nodes share") from missing
    sys.path.extend(path for path in modules if path not in sys.path)
    os.environ.update(_ONE_THREAD)


def _on_node(call: bytes, place: Place) -> str | None:
    try:
        enter_place(place)
    except RuntimeError as refused:
        return str(refused)
    return _attempt(call)
