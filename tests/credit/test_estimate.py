"""The cost of a fit is estimated before it starts, and long trajectories come in smaller batches."""

import pytest

from secret_rl.credit import Secret, training

OPTIONS = {"units": 16, "steps": 40, "batch_size": 16, "device": "cpu"}


def test_an_estimate_is_near_what_a_fit_takes_and_grows_with_it(cues):
    data = cues(300)
    few, many = (Secret(**{**OPTIONS, "steps": steps}).estimate(data) for steps in (40, 4000))
    assert (few.updates, many.updates, few.batch_size) == (40, 4000, 16)
    assert 0 < few.seconds < many.seconds
    assert "at most 40 updates of 16 trajectories" in str(few)


def test_long_trajectories_come_in_smaller_batches(cues, monkeypatch):
    data = cues(60)
    longest = int(data.lengths.max())
    whole = Secret(**OPTIONS).estimate(data)
    monkeypatch.setattr(training, "_MOST_PAIRS", 3 * longest**2)
    cut = Secret(**OPTIONS).estimate(data)
    assert cut.batch_size == 3
    assert cut.memory == whole.memory * 3 // 16
    monkeypatch.setattr(training, "_MOST_PAIRS", 1)
    assert Secret(**OPTIONS).estimate(data).batch_size == 1


def test_data_without_rewards_are_refused_before_anything_is_timed(cues):
    data = cues(20)
    with pytest.raises(ValueError, match="no reward in 20 trajectories"):
        Secret(**OPTIONS).estimate(data.with_rewards(0 * data.rewards))
