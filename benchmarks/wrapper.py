"""What a step through a shaping wrapper costs beyond the same step through a plain ``gym.Wrapper``.

Both play the same episodes, resets included, turn and turn about.
"""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import secret_rl  # noqa: F401
from benchmarks.results_file import Row, interleaved, write
from secret_rl.credit import ModelOptions, RewardPredictor
from secret_rl.credit.secret.readout import Queries, step_credit
from secret_rl.shaping import (
    GridKey,
    ObservationKey,
    OnlineCredit,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.testing.shaping import OneEnvironment
from secret_rl.trajectories.spaces import to_json

ROUNDS = 21
STEPS = 20_000
VECTORS = (256, 4096)
CLASSES = (-1, 0, 1)  # of reward
VECTOR_STEPS = 50
DISCOUNT = 0.99
EARLY, LATE, AROUND = 50, 900, 40  # steps of an episode, and how many around each are timed


def run() -> None:
    """Measure and write down."""
    rows = [
        *table_cost(),
        *(row for count in VECTORS for row in vector_cost(count)),
        *online_cost(),
    ]  # another measurement of wrappers is another function that gives rows
    write("wrapper", "A step through a shaping wrapper, one core", rows)


def table_cost() -> list[Row]:
    """Table potentials that know every state, on single environments."""
    triggers = TablePotential({state: state / 1024 for state in range(1024)})
    lake = TablePotential({state: state / 64 for state in range(64)}, state=ObservationKey())
    cells = np.indices((20, 20, 20, 20)).reshape(4, -1).T - 10
    pole = TablePotential({tuple(cell): 0.5 for cell in cells.tolist()}, state=GridKey((0.5, 0.5, 0.05, 0.5)))
    settings: dict[str, tuple[Callable[[], gym.Env[Any, Any]], TablePotential, str]] = {
        "Triggers 8x8 3T1P, info state": (
            lambda: gym.make("secret_rl/Triggers-v0", layout_seed=1), triggers, "<= 15 us",
        ),
        "FrozenLake 8x8, observed state": (
            lambda: gym.make("FrozenLake-v1", map_name="8x8"), lake, "<= 15 us",
        ),
        "CartPole, cells of 4 dimensions, 160,000 states": (lambda: gym.make("CartPole-v1"), pole, ""),
    }  # fmt: skip
    rows = []
    for name, (make, potential, asked) in settings.items():
        plain, shaped = gym.Wrapper(make()), PotentialShaping(make(), potential, DISCOUNT)
        actions = np.random.default_rng(0).integers(0, plain.action_space.n, STEPS).tolist()
        measured = interleaved(
            {
                "plain": lambda env=plain, actions=actions: seconds_per_step(env, actions),
                "shaped": lambda env=shaped, actions=actions: seconds_per_step(env, actions),
            },
            ROUNDS,
        )
        rows += [
            Row(f"{name}: step through gym.Wrapper", measured["plain"] * 1e6, "us"),
            Row(f"{name}: shaping adds", (measured["shaped"] - measured["plain"]) * 1e6, "us", asked),
        ]
    return rows


def vector_cost(count: int) -> list[Row]:
    """The vector wrapper, on environments that are compiled themselves."""
    potential = TablePotential({state: state / 1024 for state in range(1024)})

    def make() -> Any:
        return gym.make_vec(
            "secret_rl/Triggers-v0", count, vectorization_mode="vector_entry_point", layout_seed=1
        )  # fmt: skip

    plain, shaped = gym.vector.VectorWrapper(make()), VectorPotentialShaping(make(), potential, DISCOUNT)
    actions = np.random.default_rng(0).integers(0, 4, (VECTOR_STEPS, count))
    measured = interleaved(
        {
            "plain": lambda: vector_seconds_per_step(plain, actions),
            "shaped": lambda: vector_seconds_per_step(shaped, actions),
        },
        ROUNDS,
    )
    name = f"Triggers 8x8 3T1P, {count} environments"
    return [
        Row(f"{name}: step of all through VectorWrapper", measured["plain"] * 1e6, "us"),
        Row(f"{name}: shaping adds", (measured["shaped"] - measured["plain"]) * 1e6, "us"),
    ]


class Untrained:
    """A credit model of the default size, as it is before training: its weights do not change what a step costs."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        spaces = to_json(env.observation_space), to_json(env.action_space)
        self._model = RewardPredictor(*spaces, len(CLASSES), ModelOptions()).eval()
        self._queries = Queries(torch.randn(256, ModelOptions().units), torch.zeros(256))

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> Any:
        device = torch.device("cpu")
        return step_credit(self._model, self._queries, observations, actions, next_observations, device)


def online_cost() -> list[Row]:
    """Credit of the history, early and late in an episode: of pairs never seen before, and of pairs that are known."""
    env = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    model, rng = Untrained(env), np.random.default_rng(0)
    shape = env.observation_space.shape
    assert shape is not None
    new = [*rng.integers(0, 2, (LATE + AROUND, *shape), np.uint8)]
    known = [new[i] for i in rng.integers(0, 64, LATE + AROUND)]
    remembering = OnlineCredit(model)
    seconds_at(remembering, new[:64] * 2, 64)
    rows = []
    for name, potential, observations in (
        ("a pair never seen before", lambda: OnlineCredit(model), new),
        ("a pair that is known", lambda: remembering, known),
    ):
        measured = interleaved(
            {
                at: lambda step=step, potential=potential, seen=observations: seconds_at(potential(), seen, step)
                for at, step in (("early", EARLY), ("late", LATE))
            },
            ROUNDS,
        )
        rows += [
            Row(f"OnlineCredit, {name}: at step {LATE}", measured["late"] * 1e6, "us"),
            Row(
                f"OnlineCredit, {name}: step {LATE} over step {EARLY}",
                measured["late"] / measured["early"],
                "x",
                "<= 1.2x",
            ),
        ]
    return rows


def seconds_at(potential: OnlineCredit, observations: list[Any], step: int) -> float:
    """Play an episode up to some steps around one, and time those."""
    phi = OneEnvironment(potential)
    phi.start(observations[0], {})
    start = 0.0
    for t in range(1, step + AROUND // 2):
        if t == step - AROUND // 2:
            start = time.perf_counter()
        phi.step(0, observations[t], 0.0, {})
    return (time.perf_counter() - start) / AROUND


def seconds_per_step(env: gym.Env[Any, Any], actions: list[int]) -> float:
    """Play from the same seed, and start again whenever an episode is over."""
    env.reset(seed=0)
    start = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - start) / len(actions)


def vector_seconds_per_step(envs: Any, actions: np.ndarray[Any, Any]) -> float:
    """Play from the same seed; episodes restart by themselves."""
    envs.reset(seed=0)
    start = time.perf_counter()
    for row in actions:
        envs.step(row)
    return (time.perf_counter() - start) / len(actions)
