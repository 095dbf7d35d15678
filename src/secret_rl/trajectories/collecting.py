"""``collect``: a policy and an environment become trajectories."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from secret_rl.env_ids import known_id
from secret_rl.progress import Show, progress_bar
from secret_rl.trajectories.building import annotation_names, env_meta
from secret_rl.trajectories.rollouts import Blocks, Selection, compiled_blocks, env_blocks, policy_name, vector_blocks
from secret_rl.trajectories.shards import ShardedStore
from secret_rl.trajectories.spaces import check_numbers
from secret_rl.trajectories.store import ResumableStore, check_target
from secret_rl.trajectories.types import Trajectories

_DRAWS_PER_EPISODE = 10_000  # before giving up on a success share, by default

EnvLike = str | gym.Env[Any, Any] | VectorEnv[Any, Any, Any] | Callable[[], gym.Env[Any, Any]]


def collect(
    env: EnvLike,
    episodes: int,
    policy: Any = "random",
    seed: int = 0,
    success_share: float | None = None,
    *,
    env_options: Mapping[str, Any] | None = None,
    annotations: Iterable[str] | None = None,
    max_episode_steps: int | None = None,
    max_draws: int | None = None,
    workers: int = 1,
    ray: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    shard: str | None = None,
    compress: bool = False,
    progress: Show = None,
) -> Trajectories:
    """Play episodes and keep what happened.

    Args:
        env: An id, an environment, a vector environment, or a function that makes an environment.
        episodes: How many to keep.
        policy: ``"random"``, a callable of ``(observation)`` or ``(observation, rng)``, or a Stable-Baselines3
            model. With a vector env it is given batches. A policy that needs its environment is given as its class,
            or as ``functools.partial(its class, option=...)``: it is made as ``policy(env)`` in each process that
            plays. If it has a method ``begin(seed)``, that is called at the start of each episode, with a seed of the
            policy's own: what a policy draws is independent of what the environment draws.
        seed: Decides everything; each episode has a seed of its own derived from it, kept in
            ``episode_annotations["seed"]``, with which ``env.reset`` gives the same episode again.
        success_share: Keep rolling out until this share of the kept episodes (and of every prefix of them)
            holds a positive reward. ``meta["drawn"]`` counts the episodes rolled out for that.
        env_options: Keyword arguments for ``gymnasium.make`` when ``env`` is an id.
        annotations: Entries of ``info`` to keep for each step; by default those the env declares in
            ``metadata["annotations"]``. ``info["state"]`` is always kept.
        max_episode_steps: Truncate episodes here, for environments without a time limit.
        max_draws: Give up on ``success_share`` after this many rollouts (default 10,000 per episode).
        workers: Processes (threads for compiled environments) to share the work; the result is the same.
        ray: Have so many workers on Ray: the address of a cluster, "auto" for the one that this machine is part of, or
            "local" (``secret_rl.sweep.Workers``). A worker that is killed is replaced.
        out: Write to this path as episodes come, in bounded memory, and return them memory-mapped. A collection
            that was interrupted goes on where it stopped when called again.
        overwrite: Replace what is at ``out``.
        shard: Append to the folder ``out`` under this name, beside what other processes append at the same time: shards
            of some 256 MB, each of which can be read once it is complete. Each name needs a seed of its own.
        compress: Compress pictures on disk, without loss.
        progress: Show a progress bar, by default if the terminal is interactive; or call a function of (text, done,
            total).

    >>> import secret_rl as srl
    >>> data = srl.collect("secret_rl/Triggers-v0", episodes=1000, success_share=0.25, env_options={"triggers": 1})
    >>> len(data), bool(data.successful.mean() >= 0.25)
    (1000, True)
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}")
    selection = Selection(episodes, success_share, _DRAWS_PER_EPISODE * episodes if max_draws is None else max_draws)
    with ExitStack() as stack:
        if out is None and (shard is not None or compress):
            raise ValueError(f"shard={shard!r} and compress={compress} say how to write: give out, too")
        if shard is not None and overwrite:
            raise ValueError("overwrite replaces a whole store, a shard is added to one: give one of them")
        store: ResumableStore | ShardedStore | None = None
        if out is not None:
            path = Path(out)
            store = ResumableStore(path, compress) if shard is None else ShardedStore(path, shard, compress)
            stack.enter_context(closing(store))
        if isinstance(store, ResumableStore):
            check_target(store.path, overwrite)
        with known_id(env):
            made, make_env = _resolve(env, dict(env_options or {}))
        check_numbers(getattr(made, "single_observation_space", made.observation_space))
        if made is not env:
            stack.callback(made.close)
        play = _player(made, make_env, policy, seed, workers, ray, annotations, max_episode_steps)
        meta = env_meta(made) | {"policy": policy_name(policy), "seed": int(seed)}
        meta |= {"success_share": success_share, "episodes": episodes}
        if play.func is vector_blocks:
            meta["num_envs"] = made.num_envs
        committed = None if store is None else store.resume(meta)
        if committed is not None:
            selection.kept, selection.successes, selection.drawn = committed
        show = stack.enter_context(progress_bar(progress, "episodes", episodes))
        parts = []
        for block in stack.enter_context(closing(play(selection))):
            drawn = f"{selection.drawn:,} drawn" if success_share is not None else ""
            show(drawn, selection.kept, episodes)
            if store is None:
                parts.append(block)
                continue
            store.append(block)
            # A block may hold only part of a selection: commit when all that was chosen is written.
            if play.func is not vector_blocks and store.episodes == selection.kept:
                store.commit({**meta, "drawn": selection.drawn})
        meta["drawn"] = selection.drawn
        if store is None:
            return Trajectories.concatenate(parts).with_meta(**meta)
        store.finish(meta, overwrite)
        return store.load()


def _resolve(env: EnvLike, options: dict[str, Any]) -> tuple[Any, Callable[[], gym.Env[Any, Any]] | None]:
    """An environment to use here, and how to make another in a worker."""
    if isinstance(env, str):
        make = partial(gym.make, env, **options)
        return make(), make
    if options:
        raise ValueError(f"env_options {sorted(options)} only apply to an environment id: {env} is made already")
    if isinstance(env, VectorEnv):
        return env, None
    if isinstance(env, gym.Env):
        return env, None if env.spec is None else partial(gym.make, env.spec)
    if callable(env):
        return env(), env
    raise TypeError(f"env must be an id, an environment, or a function that makes one, got {type(env).__name__}")


def _player(
    env: Any, make_env: Callable[[], gym.Env[Any, Any]] | None, policy: Any, seed: int, workers: int,
    ray: str | None, annotations: Iterable[str] | None, max_episode_steps: int | None,
) -> partial[Blocks]:  # fmt: skip
    """How to play: a function of a selection."""
    names = annotation_names(env, annotations)
    plain = isinstance(policy, str) and policy == "random" and annotations is None and max_episode_steps is None
    if plain and _is_bare(env) and hasattr(env.unwrapped, "random_episodes"):
        if ray is not None:
            raise ValueError("ray does not apply to random play of this environment, which is compiled: use workers")
        return partial(compiled_blocks, env, seed, workers)
    if isinstance(env, VectorEnv):
        if ray is not None:
            raise ValueError("ray does not apply to a vector env, which is in this process: give an id")
        if workers > 1:
            raise ValueError(f"a vector env shares out its own work: use workers=1, got {workers}")
        if max_episode_steps is not None:
            raise ValueError("max_episode_steps does not apply to a vector env: give its sub-envs a TimeLimit")
        return partial(vector_blocks, env, policy, seed, names)
    return partial(env_blocks, env, make_env, policy, seed, workers, names, max_episode_steps, ray)


def _is_bare(env: Any) -> bool:
    """Whether no wrapper changes what the environment does."""
    while isinstance(env, OrderEnforcing | PassiveEnvChecker):
        env = env.env
    return env is env.unwrapped
