"""Playing episodes: compiled rollouts, an environment (in this process or several), or a vector env.

Each kind yields blocks of kept episodes in the order in which they were drawn. Draw ``i`` depends on the seed and ``i``
alone (but for vector envs, which keep their own time), so the size of the blocks, the number of workers and an
interruption in between change nothing.
"""

import inspect
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from secret_rl.processes import WorkerPool
from secret_rl.seeding import episode_seeds, first_vector_seed, policy_seed
from secret_rl.sweep import RETRIES, Place, Workers, enter_place, place_of, ray_of
from secret_rl.trajectories.building import EpisodeBuilder
from secret_rl.trajectories.nested import arrays_of, map_arrays
from secret_rl.trajectories.types import Trajectories

Blocks = Generator[Trajectories, None, None]

_BLOCK_BYTES = 16 << 20
_SCAN = 1 << 16  # compiled episodes whose outcomes are looked at together
_EPISODES_PER_TASK = 4  # fewer where they are long or show pictures, so that a task stays below _BLOCK_BYTES
_TASKS_PER_WORKER = 2  # one to play and one to wait for it


class TooFewSuccessesError(RuntimeError):
    """The share of successful episodes was not reached within the draws allowed."""


@dataclass
class Selection:
    """Decides episode by episode, in the order they are drawn, until enough are kept.

    Without a share every episode is kept. With one, a successful episode is always kept and a failed one only
    while the share of successes among the kept stays at or above it: so every prefix of the kept episodes holds
    the share too, and nothing depends on how draws are grouped into blocks.
    """

    episodes: int
    success_share: float | None = None
    max_draws: int | None = None
    kept: int = 0
    successes: int = 0
    drawn: int = 0
    """Draws up to the last one kept, once ``complete``; all draws before that."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {self.episodes}")
        if self.success_share is not None and not 0 < self.success_share <= 1:
            raise ValueError(f"success_share must lie in (0, 1], got {self.success_share}: None keeps every episode")

    @property
    def complete(self) -> bool:
        """Whether enough episodes are kept."""
        return self.kept >= self.episodes

    def choose(self, successful: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The positions, in a block of draws, of the episodes to keep."""
        chosen: list[int] = []
        allowed = self._allowed()
        for position, success in enumerate(successful.tolist()):
            if success or self.kept < allowed:
                chosen.append(position)
                self.kept += 1
                self.successes += success
                if self.complete:
                    break
                allowed = self._allowed()
        self.drawn += chosen[-1] + 1 if self.complete else len(successful)
        if self.max_draws is not None and self.drawn >= self.max_draws and not self.complete:
            found = f"{self.drawn:,} episodes were drawn and {self.successes:,} of those kept hold a positive reward"
            wanted = f"{self.episodes:,} episodes with success_share={self.success_share}"
            remedy = "lower the share, collect with a policy that succeeds more often, or raise max_draws"
            raise TooFewSuccessesError(f"{found}, too few for {wanted}: {remedy}")
        return np.array(chosen, np.int64)

    def _allowed(self) -> float:
        """How many episodes may be kept without another success."""
        return math.inf if self.success_share is None else math.floor(self.successes / self.success_share + 1e-9)


class Policy:
    """Anything that may be given as a policy: ``begin`` at the start of each episode, then ``act``.

    The seed of ``begin`` is the policy's own, not the environment's. A Stable-Baselines3 model draws its random numbers
    from the global generators: they are seeded at each episode, so that an episode does not depend on those before it.
    """

    def __init__(self, policy: Any, env: Any) -> None:
        if _class_of(policy) is not None:
            policy = policy(env)
        expected = 'policy must be "random", a callable or an object with predict(observation)'
        if isinstance(policy, str) and policy != "random":
            raise ValueError(f"{expected}, got {policy!r}")
        self._random, self._predicts = isinstance(policy, str), hasattr(policy, "predict")
        if not (self._random or self._predicts or callable(policy)):
            raise TypeError(f"{expected}, got {type(policy).__name__}")
        self._policy, self._space = policy, env.action_space
        self._needs_rng = callable(policy) and not self._predicts and _needs_rng(policy)
        self._rng = np.random.default_rng(0)
        self._memory: Any = None  # of recurrent models
        self._starting = True

    def begin(self, seed: int) -> None:
        """An episode starts."""
        self._memory, self._starting = None, True
        self._rng = np.random.default_rng(seed)
        if self._random:
            self._space.seed(seed)
        elif self._predicts:
            if hasattr(self._policy, "set_random_seed"):
                self._policy.set_random_seed(seed % 2**32)
        elif hasattr(self._policy, "begin"):
            self._policy.begin(seed)

    def act(self, observation: Any) -> Any:
        """The action to take."""
        if self._random:
            return self._space.sample()
        if self._predicts:
            action, self._memory = self._policy.predict(
                observation, state=self._memory, episode_start=np.array([self._starting]), deterministic=False
            )
            self._starting = False
            return action
        return self._policy(observation, self._rng) if self._needs_rng else self._policy(observation)


def policy_name(policy: Any) -> str:
    """What ``meta`` says of a policy; the arguments of a ``functools.partial`` are part of it."""
    if isinstance(policy, str):
        return policy
    made = _class_of(policy)
    if made is None:
        return type(policy).__name__
    options = policy.keywords if isinstance(policy, partial) else {}
    return made.__name__ + (f"({', '.join(f'{k}={v!r}' for k, v in options.items())})" if options else "")


def _class_of(policy: Any) -> type | None:
    """The class that a policy stands for, to be made with an environment; None if it is made already."""
    made = policy.func if isinstance(policy, partial) else policy
    return made if isinstance(made, type) else None


def _needs_rng(function: Callable[..., Any]) -> bool:
    """Whether a policy cannot be called with an observation alone."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return True
    except ValueError:  # it is built in, and has no signature
        return False
    return False


def compiled_blocks(env: Any, seed: int, workers: int, selection: Selection) -> Blocks:
    """Random play of an environment that offers ``random_episodes()``, at compiled speed.

    That gives an object with ``bytes_per_episode``, ``outcomes(seeds)``, whether each episode holds a positive reward,
    and ``record(seeds)``, the episodes by the field names of ``Trajectories``. Where there is a share to reach,
    outcomes come first, and only what is kept is recorded.
    """
    episodes = env.unwrapped.random_episodes()
    single = "single_" if isinstance(env, VectorEnv) else ""
    spaces = {kind: getattr(env, single + kind) for kind in ("observation_space", "action_space")}
    size = int(np.clip(_BLOCK_BYTES // episodes.bytes_per_episode, 1, 4096))

    def record(seeds: NDArray[np.uint64]) -> Trajectories:
        return Trajectories(**episodes.record(seeds), **spaces, episode_annotations={"seed": seeds}, trusted=True)

    with ThreadPoolExecutor(workers) as pool:
        while not selection.complete:
            if selection.success_share is None:
                count = min(selection.episodes - selection.kept, size * workers)
                seeds = episode_seeds(seed, selection.drawn, count)
                outcomes = np.zeros(count, np.bool_)
            else:
                seeds = episode_seeds(seed, selection.drawn, _SCAN * workers)
                outcomes = np.concatenate(list(pool.map(episodes.outcomes, np.array_split(seeds, workers))))
            kept = seeds[selection.choose(outcomes)]
            parts = [kept[i : i + size] for i in range(0, len(kept), size)]
            for i in range(0, len(parts), workers):  # as many in memory at a time as are worked on
                yield from pool.map(record, parts[i : i + workers])


Play = Callable[[list[int]], list[dict[str, Any]]]
"""An episode for each seed."""


def _player(env: Any, policy: Any, annotations: tuple[str, ...], max_episode_steps: int | None) -> Play:
    """Plays whole episodes in one environment."""
    player = Policy(policy, env)

    def play(seed: int) -> dict[str, Any]:
        observation, info = env.reset(seed=seed)
        player.begin(policy_seed(seed))
        episode = EpisodeBuilder(observation, info, annotations, seed)
        while not episode.over:
            action = player.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            truncated = truncated or (not terminated and len(episode) + 1 == max_episode_steps)
            episode.step(action, observation, float(reward), terminated, truncated, info)
        return episode.finish(env.observation_space, env.action_space)

    return lambda seeds: [play(seed) for seed in seeds]


def env_blocks(
    env: gym.Env[Any, Any], make_env: Callable[[], gym.Env[Any, Any]] | None, policy: Any, seed: int, workers: int,
    annotations: tuple[str, ...], max_episode_steps: int | None, ray: str | None, selection: Selection,
) -> Blocks:  # fmt: skip
    """Any Gymnasium environment, one reset with its own seed per episode, in one or several processes, or on Ray."""
    how = policy, annotations, max_episode_steps
    play = _player(env, *how)
    if selection.complete:  # an interrupted collection that only lacked its name
        return
    try:
        with _elsewhere(workers, ray, (make_env, *how)) as begin:
            for episodes in _draws(begin or partial(partial, play), seed, workers if begin else 0, selection):
                yield from _kept(selection, episodes, env.observation_space, env.action_space)
                if selection.complete:
                    return
    except BrokenProcessPool as broken:
        raise RuntimeError(
            f"one of {workers} worker processes died. Workers import the main script: put the call under "
            'if __name__ == "__main__":, or use workers=1 to see the error itself'
        ) from broken


Begin = Callable[[list[int]], Callable[[], list[dict[str, Any]]]]
"""Begins to play an episode for each seed; what it gives waits for them."""


def _draws(begin: Begin, seed: int, workers: int, selection: Selection) -> Iterator[list[dict[str, Any]]]:
    """Draws in their order, a task at a time; so few are under way at once that memory is bounded."""
    drawn, count = selection.drawn, 1  # the first ones show how large they are
    last = 2**63 if selection.success_share is not None else drawn + selection.episodes - selection.kept
    under_way: deque[Callable[[], list[dict[str, Any]]]] = deque()
    while drawn < last or under_way:
        while drawn < last and len(under_way) < max(_TASKS_PER_WORKER * workers, 1):
            seeds = episode_seeds(seed, drawn, min(count, last - drawn)).tolist()
            under_way.append(begin(seeds))
            drawn += len(seeds)
        episodes = under_way.popleft()()
        size = sum(array.nbytes for episode in episodes for array in arrays_of(episode["observations"]))
        count = int(np.clip(_BLOCK_BYTES * len(episodes) // max(size, 1), 1, _EPISODES_PER_TASK))
        yield episodes


@contextmanager
def _elsewhere(workers: int, ray: str | None, recipe: tuple[Any, ...]) -> Iterator[Begin | None]:
    """How to have tasks done in other processes, of this machine or of a Ray cluster; None: it is one worker, here."""
    if workers == 1 and ray is None:
        yield None
        return
    if recipe[0] is None:
        remedy = "give an id, a function that makes it, or an env from gymnasium.make"
        raise ValueError(f"workers={workers} needs an environment that can be made again in each of them: {remedy}")
    try:
        sent = cloudpickle.dumps(recipe)
    except Exception as refused:
        message = f"the environment or policy cannot be sent to {workers} workers ({refused}): use workers=1"
        raise ValueError(message) from refused
    if ray is None:
        with WorkerPool(workers, _start_worker, sent) as pool:
            yield lambda seeds: pool.submit(_play_in_worker, seeds).result
        return
    with ray_of(Workers(workers, ray)) as cluster:
        task = cluster.remote(num_cpus=1, max_retries=RETRIES)(_play_on_node)
        shared, place = cluster.put(sent), place_of()
        yield lambda seeds: partial(cluster.get, task.remote(shared, place, seeds))


_play: Play  # of a worker process


def _start_worker(recipe: bytes) -> None:
    global _play
    make_env, *how = cloudpickle.loads(recipe)
    _play = _player(make_env(), *how)


_recipe: bytes | None = None  # of a worker of Ray, which keeps its environment from task to task


def _play_on_node(recipe: bytes, place: Place, seeds: list[int]) -> list[dict[str, Any]]:
    global _recipe
    if recipe != _recipe:
        enter_place(place)
        _start_worker(recipe)
        _recipe = recipe
    return _play(seeds)


def _play_in_worker(seeds: list[int]) -> list[dict[str, Any]]:
    return _play(seeds)


def vector_blocks(
    envs: VectorEnv[Any, Any, Any], policy: Any, seed: int, annotations: tuple[str, ...], selection: Selection
) -> Blocks:
    """A vector env in its own time: episodes in the order (round, sub-env).

    Every sub-env gives the same number of episodes, whatever their lengths: the first to finish would otherwise crowd
    out long episodes.
    """
    waiting: list[deque[dict[str, Any]]] = [deque() for _ in range(envs.num_envs)]
    following = 0
    for i, episode in _play_vector(envs, policy, seed, annotations):
        waiting[i].append(episode)
        ready = []
        while waiting[following]:
            ready.append(waiting[following].popleft())
            following = (following + 1) % envs.num_envs
        yield from _kept(selection, ready, envs.single_observation_space, envs.single_action_space)
        if selection.complete:
            return


def _play_vector(
    envs: VectorEnv[Any, Any, Any], policy: Any, seed: int, annotations: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Step for ever, giving each episode as it ends."""
    mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    player, first = Policy(policy, envs), first_vector_seed(seed)
    observations, infos = envs.reset(seed=first)
    player.begin(policy_seed(first))

    def begun(i: int) -> EpisodeBuilder:
        return EpisodeBuilder(_row(observations, i), _row_info(infos, i), annotations)

    current: list[EpisodeBuilder | None] = [begun(i) for i in range(envs.num_envs)]
    while True:
        actions = player.act(observations)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        over = terminated | truncated
        for i, episode in enumerate(current):
            if episode is None:  # NEXT_STEP: this step was the reset
                current[i] = begun(i)
                continue
            seen, info = _row(observations, i), _row_info(infos, i)
            if over[i] and mode is AutoresetMode.SAME_STEP:
                seen, info = infos["final_obs"][i], _row_info(infos["final_info"], i)
            episode.step(_row(actions, i), seen, rewards[i], terminated[i], truncated[i], info)
            if over[i]:
                yield i, episode.finish(envs.single_observation_space, envs.single_action_space)
                current[i] = begun(i) if mode is AutoresetMode.SAME_STEP else None
        if mode is AutoresetMode.DISABLED and over.any():
            observations, infos = envs.reset(options={"reset_mask": over})
            for i in np.flatnonzero(over).tolist():
                current[i] = begun(i)


def _kept(selection: Selection, episodes: list[dict[str, Any]], observation_space: Any, action_space: Any) -> Blocks:
    chosen = selection.choose(np.array([(episode["rewards"] > 0).any() for episode in episodes], np.bool_))
    if len(chosen):
        yield Trajectories.from_episodes(
            [episodes[i] for i in chosen], observation_space=observation_space, action_space=action_space
        )


def _row(nest: Any, i: int) -> Any:
    return map_arrays(lambda array: array[i], nest)


def _row_info(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """The info of one sub-env out of a vector env's."""
    return {
        key: (_row_info(value, i) if isinstance(value, dict) else value[i])
        for key, value in infos.items()
        if not key.startswith("_")
        and key not in ("final_obs", "final_info")
        and infos.get(f"_{key}", (True,) * (i + 1))[i]
    }
