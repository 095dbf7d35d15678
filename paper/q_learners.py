"""Many tabular learners at once, over threads: compiled code runs without the interpreter's lock."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from secret_rl.agents.q_learning import CompiledRun, QLearning
from secret_rl.envs.tabular import TabularModel, TabularShaping


def learn_many(
    models: Sequence[TabularModel],
    seeds: Sequence[int],
    episodes: int,
    shapings: Sequence[TabularShaping | None] | None = None,
    *,
    discount: float = 0.99,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths, each (models, seeds, episodes), as ``QLearning(seed=s).learn`` gives them on each model.

    Args:
        models: The tasks.
        seeds: Each is one learner on every model.
        episodes: How many each learner plays.
        shapings: One for each model, or None where it is not shaped; by default none is.
        discount: Of the learners, and of the shapings.
    """
    shapings = [None] * len(models) if shapings is None else shapings
    tasks = list(zip(models, shapings, strict=True))
    agents = [QLearning(seed=seed, discount=discount) for seed in seeds]
    returns = np.empty((len(tasks), len(agents), episodes))
    lengths = np.empty(returns.shape, np.int64)

    def learn(learner: tuple[int, ...]) -> None:
        CompiledRun(*tasks[learner[0]], agents[learner[1]]).play(returns[learner], lengths[learner])

    with ThreadPoolExecutor(get_num_threads()) as pool:
        list(pool.map(learn, np.ndindex(returns.shape[:2])))
    return returns, lengths
