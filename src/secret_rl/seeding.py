"""Seeds of episodes and policies: distinct, and independent of each other."""

import numpy as np
from numpy.typing import NDArray

_POLICY = 1


def episode_seeds(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """The seeds of episodes ``first`` to ``first + count``: 32 bits, as older environments want, all distinct.

    A keyed permutation of the episode numbers, so that no seed comes twice and other seeds give other orders.
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
    return int(episode_seeds(seed, 0, 1)[0]) >> 1  # leaves space to count on within 32 bits


def policy_seed(seed: int) -> int:
    """The seed of the policy where the environment is reset with ``seed``: 32 bits, as ``numpy.random.seed`` wants.

    Gymnasium and NumPy make the same generator of the same number. With the environment's own seed, the random actions
    of a policy would follow the environment's noise.
    """
    return int(np.random.SeedSequence(seed, spawn_key=(_POLICY,)).generate_state(1)[0])


def _scatter(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """MurmurHash3's 32-bit finaliser: a bijection."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))
