"""Pictures that the engine draws larger than they are wanted."""

import numpy as np
import pytest

from secret_rl.envs.keys_doors.doom import _shrunk


@pytest.mark.parametrize("by", [1, 2, 4])
def test_pixels_are_means_of_blocks_in_an_array_of_their_own(by):
    frame = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    frame[:4, :4] = 255  # the largest sum
    blocks = frame.reshape(12 // by, by, 16 // by, by, 3).mean((1, 3))
    shrunk = _shrunk(frame, by)
    np.testing.assert_array_equal(shrunk, np.floor(blocks))
    assert shrunk.dtype == np.uint8
    assert not np.shares_memory(shrunk, frame)
