"""``Attributions``: what steps earned, tables, and files."""

import numpy as np
import pytest
from tests.sealing import change_arrays

from secret_rl.credit import Attributions
from secret_rl.files import FileFormatError


@pytest.fixture
def credit():
    """Episodes of 2 and 5 steps; the second has a reward of 2 at step 2 and one of -1 at step 4."""
    return Attributions(
        episode=np.array([1, 1]),
        step=np.array([2, 4]),
        predicted_at=np.array([2, 4]),
        reward=np.array([2.0, -1.0]),
        evidence=np.array([0.5, 0.0], np.float32),
        weights=np.array([0.5, 0.25, 0.25, 0.0, 0.5, 0.0, 0.5, 0.0], np.float32),
        offsets=np.array([0, 3, 8]),
        rewards_seen=4,
        lengths=np.array([2, 5]),
    )


def test_what_each_step_earned_worked_by_hand(credit):
    first_episode = [0.0, 0.0]
    second_episode = [2 * 0.5, 2 * 0.25 - 1 * 0.5, 2 * 0.25, -1 * 0.5, 0.0]
    assert credit.step_credit().tolist() == first_episode + second_episode
    assert credit.step_credit().sum() == credit.reward.sum()
    assert credit.row(0).tolist() == [0.5, 0.25, 0.25]
    assert credit.row(1).tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]
    assert len(credit) == 2 and credit.coverage == 0.5


def test_saved_credit_comes_back_to_the_bit_and_a_file_without_a_part_is_refused(tmp_path, credit):
    path = credit.save(tmp_path / "new" / "credit.safetensors")
    again = Attributions.load(path)
    for name, value in vars(credit).items():
        np.testing.assert_array_equal(getattr(again, name), value, err_msg=name, strict=True)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["credit.safetensors"]
    change_arrays(path, lambda _, arrays: arrays.pop("step"))
    with pytest.raises(FileFormatError, match=r"credit\.safetensors cannot be read as 'secret-rl attr.*: .*step"):
        Attributions.load(path)


def test_a_table_has_a_line_for_each_weight_above_the_threshold(tmp_path, credit):
    assert {name: list(column) for name, column in credit.columns(threshold=0.25).items()} == {
        "episode": [1, 1, 1],
        "reward_step": [2, 4, 4],
        "reward": [2.0, -1.0, -1.0],
        "step": [0, 1, 3],
        "weight": [0.5, 0.5, 0.5],
    }
    lines = credit.to_csv(tmp_path / "credit.csv", 0.25).read_text().splitlines()
    assert lines == ["episode,reward_step,reward,step,weight", "1,2,2.0,0,0.5", "1,4,-1.0,1,0.5", "1,4,-1.0,3,0.5"]
    assert len(credit.columns()["weight"]) == 5, "by default every step with any weight"
