"""Random streams that come from one seed and are independent of each other."""

import numpy as np

_POLICY = 1


def policy_seed(seed: int) -> int:
    """The seed of who acts where the environment is reset with ``seed``.

    Gymnasium and NumPy make the same generator of the same number. With the environment's own seed a policy would draw
    the very numbers that the environment draws: its random actions would follow the environment's noise.

    32 bits, as ``numpy.random.seed`` wants.
    """
    return int(np.random.SeedSequence(seed, spawn_key=(_POLICY,)).generate_state(1)[0])
