"""Where episodes come from: compiled rollouts, an environment (in this process or several), a vector env.

A source yields blocks of kept episodes in the order of their draws. Draw ``i`` depends on the seed and ``i``
alone (but for vector envs, which keep their own time), so the blocks, the workers and an interruption in
between change nothing.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Protocol

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from secret_rl.processes import worker_pool
from secret_rl.seeding import policy_seed
from secret_rl.trajectories.building import EpisodeBuilder, pack
from secret_rl.trajectories.nested import map_arrays, named_arrays
from secret_rl.trajectories.policies import Policy, as_policy
from secret_rl.trajectories.selection import Selection
from secret_rl.trajectories.types import Trajectories

_BLOCK_BYTES = 16 << 20
_SCAN = 1 << 16
_EPISODES_PER_TASK = 4  # fewer where they are long or show pictures, so that a task stays below _BLOCK_BYTES
_TASKS_PER_WORKER = 2  # one to play and one to wait for it


class Source(Protocol):
    """Episodes by number."""

    resumable: bool

    def blocks(self, selection: Selection) -> Generator[Trajectories, None, None]:
        """Kept episodes, from draw ``selection.drawn`` on, until the selection is complete."""


class CompiledEpisodes(Protocol):
    """What an environment's ``random_episodes()`` gives when it can play at compiled speed."""

    bytes_per_episode: int

    def outcomes(self, seeds: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the episode of each seed holds a positive reward."""

    def record(self, seeds: NDArray[np.uint64]) -> dict[str, Any]:
        """The episodes of the seeds, by the field names of ``Trajectories``."""


def episode_seeds(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """The seeds of draws ``first`` to ``first + count``: 32 bits, as older environments want, all distinct.

    A keyed permutation of the draw numbers, so that no seed comes twice and other seeds give other orders.
    """
    if first + count > 2**32:
        raise ValueError(f"draw {first + count:,} is beyond the {2**32:,} distinct episodes of one seed")
    keys = np.random.SeedSequence(seed).generate_state(2)
    numbers = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
    return (_scatter(_scatter(numbers ^ keys[0]) + keys[1])).astype(np.uint64)


def first_vector_seed(seed: int) -> int:
    """The seed of the first sub-env of a vector env; the others count on from there.

    Not ``seed`` itself: sub-envs 1, 2, ... of seed 0 would be sub-envs 0, 1, ... of seed 1.
    """
    return int(episode_seeds(seed, 0, 1)[0]) >> 1  # room to count on within 32 bits


def _scatter(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """MurmurHash3's 32-bit finaliser: a bijection."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


class CompiledSource:
    """Random play of an environment that offers ``random_episodes()``."""

    resumable = True

    def __init__(self, env: Any, seed: int, workers: int) -> None:
        self._episodes: CompiledEpisodes = env.unwrapped.random_episodes()
        vector = isinstance(env, VectorEnv)
        self._observation_space = env.single_observation_space if vector else env.observation_space
        self._action_space = env.single_action_space if vector else env.action_space
        self._seed, self._workers = seed, workers
        self._block = int(np.clip(_BLOCK_BYTES // self._episodes.bytes_per_episode, 1, 4096))

    def blocks(self, selection: Selection) -> Generator[Trajectories, None, None]:
        """Scan for outcomes if a share is asked for, then write down what is kept."""
        with ThreadPoolExecutor(self._workers) as pool:
            while not selection.complete:
                if selection.success_share is None:
                    count = min(selection.episodes - selection.kept, self._block * self._workers)
                    seeds = episode_seeds(self._seed, selection.drawn, count)
                    outcomes = np.zeros(count, np.bool_)
                else:
                    seeds = episode_seeds(self._seed, selection.drawn, _SCAN * self._workers)
                    shares = np.array_split(seeds, self._workers)
                    outcomes = np.concatenate(list(pool.map(self._episodes.outcomes, shares)))
                kept = seeds[selection.choose(outcomes)]
                parts = [kept[i : i + self._block] for i in range(0, len(kept), self._block)]
                for i in range(0, len(parts), self._workers):  # as many in memory at a time as are worked on
                    yield from pool.map(self._record, parts[i : i + self._workers])

    def _record(self, seeds: NDArray[np.uint64]) -> Trajectories:
        return Trajectories(
            **self._episodes.record(seeds),
            observation_space=self._observation_space,
            action_space=self._action_space,
            episode_annotations={"seed": seeds},
            trusted=True,
        )


class EnvSource:
    """Any Gymnasium environment, one reset with its own seed per episode, in one or several processes."""

    resumable = True

    def __init__(
        self,
        env: gym.Env[Any, Any],
        make_env: Callable[[], gym.Env[Any, Any]] | None,
        policy: Any,
        seed: int,
        workers: int,
        annotations: tuple[str, ...],
        max_episode_steps: int | None,
    ) -> None:
        self._env, self._make_env, self._policy = env, make_env, policy
        self._seed, self._workers = seed, workers
        self._roller = _Roller(env, as_policy(policy, env), annotations, max_episode_steps)
        self._settings = (annotations, max_episode_steps)

    def blocks(self, selection: Selection) -> Generator[Trajectories, None, None]:
        """Roll out episodes in the order of their draws and keep what the selection wants."""
        if selection.complete:  # an interrupted collection that lacked its last touch only
            return
        with ExitStack() as stack:
            pool = stack.enter_context(self._pool()) if self._workers > 1 else None
            try:
                for episodes in self._rolled(pool, selection):
                    kept = selection.choose(_successes(episodes))
                    if len(kept):
                        yield self._roller.pack([episodes[i] for i in kept])
                    if selection.complete:
                        return
            except BrokenProcessPool as broken:
                raise RuntimeError(
                    f"a worker process died ({self._workers} were asked for). Workers import the main script: put "
                    'the call under if __name__ == "__main__":, or use workers=1 to see the error itself'
                ) from broken

    def _rolled(self, pool: Executor | None, selection: Selection) -> Iterator[list[dict[str, Any]]]:
        """Draws in their order, a task at a time; so many are under way at once that memory is bounded."""
        drawn, count = selection.drawn, 1  # the first tell how large they are
        last = 2**63 if selection.success_share is not None else drawn + selection.episodes - selection.kept
        under_way: deque[Callable[[], list[dict[str, Any]]]] = deque()
        while drawn < last or under_way:
            while drawn < last and len(under_way) < (_TASKS_PER_WORKER * self._workers if pool else 1):
                seeds = episode_seeds(self._seed, drawn, min(count, last - drawn)).tolist()
                under_way.append(pool.submit(_roll_in_worker, seeds).result if pool else partial(self._roller, seeds))
                drawn += len(seeds)
            episodes = under_way.popleft()()
            count = int(np.clip(_BLOCK_BYTES * len(episodes) // _bytes(episodes), 1, _EPISODES_PER_TASK))
            yield episodes

    def _pool(self) -> AbstractContextManager[Executor]:
        if self._make_env is None:
            raise ValueError(
                f"workers={self._workers} needs an environment that can be made again in each of them: "
                "give an id, a function that makes it, or an env from gymnasium.make"
            )
        try:
            recipe = cloudpickle.dumps((self._make_env, self._policy, *self._settings))
        except Exception as refused:
            raise ValueError(
                f"the environment or policy cannot be sent to {self._workers} workers ({refused}): use workers=1"
            ) from refused
        return worker_pool(self._workers, _start_worker, recipe)


class _Roller:
    """Plays whole episodes in one environment."""

    def __init__(
        self, env: gym.Env[Any, Any], policy: Policy, annotations: tuple[str, ...], max_episode_steps: int | None
    ) -> None:
        self._env, self._policy = env, policy
        self._annotations, self._limit = annotations, max_episode_steps

    def __call__(self, seeds: list[int]) -> list[dict[str, Any]]:
        return [self._roll(seed) for seed in seeds]

    def pack(self, episodes: list[dict[str, Any]]) -> Trajectories:
        return pack(episodes, self._env.observation_space, self._env.action_space, {})

    def _roll(self, seed: int) -> dict[str, Any]:
        observation, info = self._env.reset(seed=seed)
        self._policy.begin(policy_seed(seed))
        episode = EpisodeBuilder(observation, info, self._annotations, seed)
        while not episode.over:
            action = self._policy.act(observation)
            observation, reward, terminated, truncated, info = self._env.step(action)
            truncated = truncated or (not terminated and len(episode) + 1 == self._limit)
            episode.step(action, observation, float(reward), terminated, truncated, info)
        return episode.finish(self._env.observation_space, self._env.action_space)


_worker_roller: _Roller | None = None


def _start_worker(recipe: bytes) -> None:
    global _worker_roller
    make_env, policy, annotations, limit = cloudpickle.loads(recipe)
    env = make_env()
    _worker_roller = _Roller(env, as_policy(policy, env), annotations, limit)


def _roll_in_worker(seeds: list[int]) -> list[dict[str, Any]]:
    assert _worker_roller is not None
    return _worker_roller(seeds)


class VectorSource:
    """A vector env in its own time. Every sub-env gives the same number of episodes, whatever their lengths:
    the first to finish would otherwise crowd out long episodes."""

    resumable = False

    def __init__(self, envs: VectorEnv[Any, Any, Any], policy: Any, seed: int, annotations: tuple[str, ...]) -> None:
        self._envs, self._seed, self._annotations = envs, seed, annotations
        self._policy = as_policy(policy, envs)
        self._mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)

    def blocks(self, selection: Selection) -> Generator[Trajectories, None, None]:
        """Episodes in the order (round, sub-env)."""
        envs = self._envs
        waiting: dict[tuple[int, int], dict[str, Any]] = {}
        rounds = np.zeros(envs.num_envs, np.int64)
        following = (0, 0)
        for i, episode in self._play():
            waiting[int(rounds[i]), i] = episode
            rounds[i] += 1
            ready = []
            while following in waiting:
                ready.append(waiting.pop(following))
                turn, env = following
                following = (turn, env + 1) if env + 1 < envs.num_envs else (turn + 1, 0)
            if ready:
                kept = selection.choose(_successes(ready))
                if len(kept):
                    yield pack([ready[k] for k in kept], envs.single_observation_space, envs.single_action_space, {})
            if selection.complete:
                return

    def _play(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Step for ever, giving each episode as it ends."""
        envs = self._envs
        first = first_vector_seed(self._seed)
        observations, infos = envs.reset(seed=first)
        self._policy.begin(policy_seed(first))
        current: list[EpisodeBuilder | None] = [
            EpisodeBuilder(_row(observations, i), _row_info(infos, i), self._annotations) for i in range(envs.num_envs)
        ]
        while True:
            actions = self._policy.act(observations)
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            over = terminated | truncated
            for i, episode in enumerate(current):
                ended, info = bool(over[i]), _row_info(infos, i)
                if episode is None:  # NEXT_STEP: this step was the reset
                    current[i] = EpisodeBuilder(_row(observations, i), info, self._annotations)
                    continue
                seen = _row(observations, i)
                if ended and self._mode is AutoresetMode.SAME_STEP:
                    seen, info = infos["final_obs"][i], _row_info(infos["final_info"], i)
                episode.step(_row(actions, i), seen, rewards[i], terminated[i], truncated[i], info)
                if ended:
                    yield i, episode.finish(envs.single_observation_space, envs.single_action_space)
                    current[i] = None
                    if self._mode is AutoresetMode.SAME_STEP:
                        current[i] = EpisodeBuilder(_row(observations, i), _row_info(infos, i), self._annotations)
            if self._mode is AutoresetMode.DISABLED and over.any():
                observations, infos = envs.reset(options={"reset_mask": over})
                for i in np.flatnonzero(over).tolist():
                    current[i] = EpisodeBuilder(_row(observations, i), _row_info(infos, i), self._annotations)


def _bytes(episodes: list[dict[str, Any]]) -> int:
    return sum(a.nbytes for episode in episodes for _, a in named_arrays("", episode["observations"])) or 1


def _successes(episodes: list[dict[str, Any]]) -> NDArray[np.bool_]:
    return np.array([bool((episode["rewards"] > 0).any()) for episode in episodes], np.bool_)


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
