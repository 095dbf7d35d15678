"""Random-policy steps per second with observations made and resets included: ours beside MiniGrid and JAX peers."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.results_file import Row, interleaved, per_second, write

ROUNDS = 5
VECTOR = 4096
SCAN = 64

# peer -> how many times faster ours has to be
AT_LEAST = {
    "MiniGrid DoorKey-8x8, single": 4000,
    "xland-minigrid DoorKey-8x8, vmap": 100,
    "navix DoorKey-8x8, vmap": 100,
    "gymnax DeepSea, vmap": 2.5,
}


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    contenders = {
        "Triggers 8x8 3T1P, whole-episode rollouts": ours_rollouts(),
        f"Triggers 8x8 3T1P, Gymnasium vector API, {VECTOR} envs": ours_vector(),
        "Triggers 8x8 3T1P, single env": single("secret_rl/Triggers-v0"),
        "MiniGrid DoorKey-8x8, single": single("MiniGrid-DoorKey-8x8-v0"),
        "xland-minigrid DoorKey-8x8, vmap": xland(),
        "navix DoorKey-8x8, vmap": navix(),
        "gymnax DeepSea, vmap": gymnax_deep_sea(),
    }
    measured = interleaved({name: lambda w=work: per_second(w) for name, work in contenders.items()}, ROUNDS)
    ours = measured["Triggers 8x8 3T1P, whole-episode rollouts"]
    rows = [
        Row(name, speed, "steps/s", ">= 10,000,000" if "vector" in name else "") for name, speed in measured.items()
    ]
    rows += [Row(f"rollouts over {peer}", ours / measured[peer], "x", f">= {n:,}x") for peer, n in AT_LEAST.items()]
    write("environments", "Random-policy steps per second, observations made and resets included", rows)


def ours_rollouts() -> Callable[[], int]:
    """Whole episodes into flat arrays, a new maze each."""
    from secret_rl.envs.triggers import RandomEpisodes, TriggersOptions

    episodes = RandomEpisodes(TriggersOptions(triggers=3, prizes=1))
    seeds = iter(range(10**9))

    def work() -> int:
        block = np.arange(2048, dtype=np.uint64) + np.uint64(2048 * next(seeds))
        return int(episodes.record(block)["offsets"][-1])

    work()
    return work


def ours_vector() -> Callable[[], int]:
    """``envs.step`` on all envs, infos included."""
    import secret_rl  # noqa: F401

    envs = gym.make_vec("secret_rl/Triggers-v0", VECTOR, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 4, (SCAN, VECTOR))

    def work() -> int:
        for row in actions:
            envs.step(row)
        return SCAN * VECTOR

    work()
    return work


def single(name: str) -> Callable[[], int]:
    """One env through ``gymnasium.make``."""
    if name.startswith("MiniGrid"):
        import minigrid  # noqa: F401
    env = gym.make(name)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, env.action_space.n, 512).tolist()

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return work


def xland() -> Callable[[], int]:
    """Auto-reset environments under vmap and scan."""
    import jax
    import xminigrid
    from xminigrid.wrappers import GymAutoResetWrapper

    env, params = xminigrid.make("MiniGrid-DoorKey-8x8")
    env = GymAutoResetWrapper(env)
    step = jax.vmap(env.step, in_axes=(None, 0, 0))
    first = jax.vmap(env.reset, in_axes=(None, 0))(params, jax.random.split(jax.random.key(0), VECTOR))
    count = env.num_actions(params)
    return scanned(first, lambda state, actions, _: step(params, state, actions), lambda s: s.observation, count)


def navix() -> Callable[[], int]:
    """Auto-reset environments under vmap and scan."""
    import jax
    import navix as nx

    env = nx.make("Navix-DoorKey-8x8-v0")
    step = jax.vmap(env.step)
    first = jax.vmap(env.reset)(jax.random.split(jax.random.PRNGKey(0), VECTOR))
    return scanned(first, lambda state, actions, _: step(state, actions), lambda s: s.observation, len(env.action_set))


def gymnax_deep_sea() -> Callable[[], int]:
    """Auto-reset environments under vmap and scan."""
    import gymnax
    import jax

    env, params = gymnax.make("DeepSea-bsuite")
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    observations, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(jax.random.key(0), VECTOR), params)

    def advance(carry: Any, actions: Any, key: Any) -> Any:
        after = step(jax.random.split(key, VECTOR), carry[1], actions, params)
        return after[0], after[1]

    return scanned((observations, state), advance, lambda carry: carry[0], env.num_actions)


def scanned(first: Any, step: Callable[..., Any], observe: Callable[[Any], Any], actions: int) -> Callable[[], int]:
    """Many steps of many envs in one compiled call; every observation is summed, so that none is skipped."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def many(state: Any, key: Any) -> Any:
        def one(carry: Any, key: Any) -> Any:
            state, total = carry
            act, rest = jax.random.split(key)
            state = step(state, jax.random.randint(act, (VECTOR,), 0, actions), rest)
            return (state, total + jnp.sum(observe(state).astype(jnp.int32))), None

        return jax.lax.scan(one, (state, jnp.int32(0)), jax.random.split(key, SCAN))[0]

    held = [first, jax.random.key(1)]

    def work() -> int:
        held[1], key = jax.random.split(held[1])
        held[0], total = many(held[0], key)
        total.block_until_ready()
        return SCAN * VECTOR

    work()  # twice: some peers recompile on their second call
    work()
    return work
