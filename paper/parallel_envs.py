"""Run slow environments in parallel: several per worker process, with observations in shared memory."""

import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Self

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, create_shared_memory, read_from_shared_memory
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.processes import worker_begins
from secret_rl.trajectories.nested import arrays_of, leaf_spaces, map_arrays

_Make = Callable[[], gym.Env[Any, Any]]
_ARRAYS = gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary
_Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
_GRACE = 2.0  # seconds that workers have to close their environments


class ParallelVectorEnv(VectorEnv[Any, Any, Any]):
    """``n`` environments in ``workers`` processes, as one vector environment that resets within the step.

    Gymnasium's ``AsyncVectorEnv`` has a process for each environment, and sends all infos through pipes. Here a worker
    steps several environments for one message, which is what makes fast environments worth distributing.

    >>> import gymnasium as gym, secret_rl
    >>> envs = ParallelVectorEnv(lambda: gym.make("CartPole-v1"), 4, workers=2)
    >>> observations, _ = envs.reset(seed=0)
    >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards.tolist()
    ((4, 4), [1.0, 1.0, 1.0, 1.0])
    >>> envs.close()

    What the environments give does not depend on the number of workers. ``step_async`` returns at once, so that other
    work, or another vector environment, can go on until ``step_wait``.

    Args:
        make: Makes one environment; called in the workers. Or a function for each environment.
        num_envs: How many; with a function for each, that many.
        workers: Processes; by default one for each core that this process may use.
        infos: Names of the infos to pass on; by default all. Fewer are faster.
        pin: Keep each worker, and what it starts, to one core (Linux only). An environment that talks to a program of
            its own, as ViZDoom does, waits for that program at every step: on one core it is woken in time.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  Gymnasium's own
    _closed = True  # until all is there

    def __init__(
        self,
        make: _Make | Sequence[_Make],
        num_envs: int | None = None,
        workers: int | None = None,
        *,
        infos: Sequence[str] | None = None,
        pin: bool = False,
    ) -> None:
        if callable(make):
            makers = [make] * check_integer("num_envs", num_envs, 1)
        else:
            makers = list(make)
            check_integer("num_envs", len(makers) if num_envs is None else num_envs, max(1, len(makers)), len(makers))
        self._join(makers, _Workers([makers], workers, infos, pin), 0)

    @classmethod
    def groups(
        cls,
        makers: Sequence[Sequence[_Make]],
        workers: int | None = None,
        *,
        infos: Sequence[str] | None = None,
        pin: bool = False,
    ) -> list[Self]:
        """Several, which share their workers: a worker steps its environments of one group, then those of the next.

        While one group is waited for, others go on; with workers of their own, they would take turns on the same cores
        at every step of an environment. To close one closes all.
        """
        shared = _Workers(makers, workers, infos, pin)
        found = []
        for number, own in enumerate(makers):
            envs = cls.__new__(cls)
            envs._join(list(own), shared, number)
            found.append(envs)
        return found

    def _join(self, makers: Sequence[_Make], workers: "_Workers", number: int) -> None:
        self.num_envs = len(makers)
        self._workers, self._number, self._waiting = workers, number, False
        env = workers.example
        self.metadata = {**env.metadata, **self.metadata}
        self.render_mode, self.spec = env.render_mode, env.spec
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations, self._parts = workers.observations[number], workers.parts[number]
        self._closed = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment; with one seed, environment ``i`` gets ``seed + i``."""
        self._check_idle()
        if seed is None or isinstance(seed, int | np.integer):
            seed = [None if seed is None else int(seed) + number for number in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments: give one, or one for each")
        seeds = [[seed[number] for number in part] for part in self._parts]
        self._workers.send(self._number, "reset", [{"seed": own, "options": options} for own in seeds])
        infos = [info for (info,) in self._workers.received(self._number)]
        return map_arrays(np.copy, self._observations), _joined(infos, self._parts, self.num_envs)

    def step_async(self, actions: Any) -> None:
        """Begin a step."""
        self._check_idle()
        of_parts = [map_arrays(lambda rows, part=part: np.asarray(rows)[part], actions) for part in self._parts]
        self._workers.send(self._number, "step", [{"actions": own} for own in of_parts])
        self._waiting = True

    def step_wait(self) -> _Step:
        """The step that was begun."""
        if not self._waiting:
            raise RuntimeError("step_wait() without a step: call step_async() first")
        self._waiting = False
        *columns, infos = zip(*self._workers.received(self._number), strict=True)
        rewards, terminated, truncated = (np.concatenate(column) for column in columns)
        observations = map_arrays(np.copy, self._observations)
        return observations, rewards, terminated, truncated, _joined(infos, self._parts, self.num_envs)

    def step(self, actions: Any) -> _Step:
        """Step every environment; those whose episode ended show the first observation of the next."""
        self.step_async(actions)
        return self.step_wait()

    @property
    def closed(self) -> bool:
        """Whether its workers have ended, or it was never there in full."""
        return self._closed or self._workers.closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._closed = value

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  Gymnasium's own
        """End the workers, and their environments with them."""
        self._workers.close()

    def _check_idle(self) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError("the environments are closed: make others")
        if self._waiting:
            raise RuntimeError("a step is under way: wait for it with step_wait() first")


class _Workers:
    """Processes that each hold a part of every group of environments, and step the groups in the order asked."""

    def __init__(
        self, groups: Sequence[Sequence[_Make]], workers: int | None, infos: Sequence[str] | None, pin: bool
    ) -> None:
        few = min(len(makers) for makers in groups)
        workers = min(check_integer("workers", len(cores()) if workers is None else workers, 1), few)
        self.example = groups[0][0]()
        self.example.close()
        space = self.example.observation_space
        for leaf in arrays_of(leaf_spaces(space)):
            if not isinstance(leaf, _ARRAYS):
                raise TypeError(f"observations of {leaf} are no arrays of one size: they cannot be in shared memory")
        context = get_context("spawn")  # a fork would inherit locks held by threads of PyTorch and others
        sizes = [len(makers) for makers in groups]
        memories = [create_shared_memory(space, size, context) for size in sizes]  # type: ignore[arg-type]
        self.observations = [
            read_from_shared_memory(space, memory, size) for memory, size in zip(memories, sizes, strict=True)
        ]
        self.parts = [np.array_split(np.arange(size), workers) for size in sizes]
        self.pipes: list[Connection] = []
        self.processes = []
        self._early: list[dict[int, Any]] = [{} for _ in range(workers)]  # answers to who asked later, by group
        names = None if infos is None else frozenset(infos)
        pinned = cores()[-workers:] if pin and hasattr(os, "sched_setaffinity") else None
        for worker in range(workers):
            ours, theirs = context.Pipe()
            core = None if pinned is None else pinned[worker % len(pinned)]
            own = [parts[worker] for parts in self.parts]
            made = cloudpickle.dumps(
                ([[makers[one] for one in part] for makers, part in zip(groups, own, strict=True)], names)
            )
            places = list(zip(memories, own, sizes, strict=True))
            process = context.Process(target=_work, args=(theirs, made, places, core), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.closed = False
        self.received(0)  # once they are all there

    def send(self, group: int, command: str, arguments: Sequence[Any]) -> None:
        """Ask each worker for its part of a group."""
        for number, (pipe, given) in enumerate(zip(self.pipes, arguments, strict=True)):
            try:
                pipe.send((group, command, given))
            except OSError:
                self._died(number)

    def received(self, group: int) -> list[Any]:
        """What each worker answers for a group; the first error of one is raised here, and ends them all."""
        return [self._answer(number, group) for number in range(len(self.pipes))]

    def _answer(self, number: int, group: int) -> Any:
        early = self._early[number]
        while group not in early:
            try:
                of, answer, error = self.pipes[number].recv()
            except (EOFError, OSError):
                self._died(number)
            if error is not None:
                self.close()
                raise error
            early[of] = answer
        return early.pop(group)

    def close(self) -> None:
        """End them."""
        self.closed = True
        for pipe in self.pipes:
            pipe.close()  # which they take as the end
        for process in self.processes:
            process.join(_GRACE)
            if process.is_alive():
                process.kill()

    def _died(self, number: int) -> NoReturn:
        self.processes[number].join(_GRACE)
        code = self.processes[number].exitcode
        self.close()
        raise RuntimeError(
            f"worker {number} of {len(self.processes)} ended (exit code {code}), and its environments with it. Workers "
            'import the main script: put what starts them under if __name__ == "__main__":'
        )


def cores() -> list[int]:
    """Those that this process may use."""
    known = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return sorted(known)


class _KeepInfos(gym.Wrapper[Any, Any, Any, Any]):
    """Passes on the infos with some names."""

    def __init__(self, env: gym.Env[Any, Any], names: frozenset[str]) -> None:
        super().__init__(env)
        self._names = names

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**given)
        return observation, {name: info[name] for name in self._names & info.keys()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *result, info = self.env.step(action)
        return *result, {name: info[name] for name in self._names & info.keys()}


def _work(
    pipe: Connection, made: bytes, places: Sequence[tuple[Any, NDArray[np.int64], int]], core: int | None
) -> None:
    """Step the environments of each group whenever asked to, until the pipe is closed.

    ``places`` says where the observations of a group go: shared memory, the rows of this worker, and how many all have.
    """
    worker_begins()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who then closes the pipe
    if core is not None:
        os.sched_setaffinity(0, {core})
    every: list[SyncVectorEnv] = []
    group = 0
    try:
        groups, names = cloudpickle.loads(made)
        shared = []
        for makers, (memory, _, size) in zip(groups, places, strict=True):
            kept = makers if names is None else [lambda make=make: _KeepInfos(make(), names) for make in makers]
            every.append(SyncVectorEnv(kept, copy=False, autoreset_mode=AutoresetMode.SAME_STEP))
            shared.append(read_from_shared_memory(every[-1].single_observation_space, memory, size))
        pipe.send((0, None, None))
        while True:
            group, command, given = pipe.recv()
            observations, *answer = getattr(every[group], command)(**given)
            rows = places[group][1]
            map_arrays(lambda to, own: to.__setitem__(rows, own), shared[group], observations)  # noqa: B023
            pipe.send((group, answer, None))
    except EOFError:
        pass  # the other end is closed
    except Exception as error:  # which ends all workers
        with suppress(OSError):
            try:
                pipe.send((group, None, error))
            except (TypeError, AttributeError, pickle.PicklingError):
                pipe.send((group, None, RuntimeError(f"{type(error).__name__}: {error}")))
    finally:
        for envs in every:
            envs.close()


def _joined(infos: Sequence[Mapping[str, Any]], parts: Sequence[NDArray[np.int64]], n: int) -> dict[str, Any]:
    """The infos of all environments, from those of the parts; what a part lacks is zero, or None."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for info in infos for name in info):
        columns = [info.get(name) for info in infos]
        first = next(column for column in columns if column is not None)
        if isinstance(first, Mapping):
            found[name] = _joined([column or {} for column in columns], parts, n)
            continue
        found[name] = joined = np.zeros((n, *first.shape[1:]), first.dtype)
        if first.dtype == object:
            joined[:] = None
        for part, column in zip(parts, columns, strict=True):
            if column is not None:
                joined[part] = column
    return found
