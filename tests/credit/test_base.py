"""``Attributions``: what steps earned, tables, and files."""

import sys
from dataclasses import fields

import numpy as np
import pytest
from tests.sealing import change_arrays

from secret_rl.credit import Attributions
from secret_rl.files import FileFormatError


def hand_made():
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


def test_what_each_step_earned_worked_by_hand():
    credit = hand_made()
    first_episode = [0.0, 0.0]
    second_episode = [2 * 0.5, 2 * 0.25 - 1 * 0.5, 2 * 0.25, -1 * 0.5, 0.0]
    assert second_episode == [1.0, 0.0, 0.5, -0.5, 0.0]
    assert credit.step_credit().tolist() == first_episode + second_episode
    assert credit.step_credit().sum() == credit.reward.sum()
    assert credit.row(0).tolist() == [0.5, 0.25, 0.25]
    assert credit.row(1).tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]
    assert len(credit) == 2 and credit.coverage == 0.5


def test_saved_credit_comes_back_to_the_bit(tmp_path, learned, cues):
    credit = learned.attribute(cues(30))
    again = Attributions.load(credit.save(tmp_path / "new" / "credit.safetensors"))
    for name in (field.name for field in fields(credit)):
        np.testing.assert_array_equal(getattr(again, name), getattr(credit, name), err_msg=name)
    assert again.weights.dtype == np.float32
    assert again.coverage == credit.coverage
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["credit.safetensors"]


def changed(name, value):
    return lambda about, arrays: arrays.update({name: np.array(value, arrays[name].dtype)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda about, _: about.pop("rewards_seen"), "KeyError: 'rewards_seen'"),
        (lambda about, _: about.update(rewards_seen=-1), "-1 is not a whole number"),
        (lambda _, arrays: arrays.pop("step"), "TypeError: .*step"),
        (lambda _, arrays: arrays.update(colours=np.zeros(2)), "TypeError: .*colours"),
        (lambda _, arrays: arrays.update(weights=np.zeros(8)), "weights is float64"),
        (changed("step", [[2, 4]]), r"step is int64 of shape \(1, 2\)"),
        (changed("reward", [2.0, np.nan]), "reward holds NaN or infinite numbers"),
        (changed("weights", [np.inf] * 8), "weights holds NaN or infinite numbers"),
        (changed("step", [2]), "its arrays are of different lengths"),
        (changed("evidence", [0.5]), "its arrays are of different lengths"),
        (lambda _, arrays: arrays.pop("evidence"), "TypeError: .*evidence"),
        (lambda _, arrays: arrays.update(evidence=np.zeros(2)), "evidence is float64"),
        (changed("offsets", [0, 3, 9]), "its offsets do not fit its weights"),
        (changed("offsets", [0, 9, 8]), "its offsets do not fit its weights"),
        (changed("offsets", [1, 3, 8]), "its offsets do not fit its weights"),
        (changed("lengths", [2, 0]), "its episodes have no length"),
        (changed("lengths", [2, 2**62]), "its episodes have no length, or too much"),
        (changed("episode", [1, 2]), "it names episodes that are not there"),
        (changed("episode", [-1, 1]), "it names episodes that are not there"),
        (changed("step", [2, 5]), "it names steps that are not there"),
        (changed("step", [-1, 4]), "it names steps that are not there"),
        (changed("lengths", [2, 4]), "it names steps that are not there"),
    ],
)
def test_credit_whose_parts_do_not_fit_is_refused(tmp_path, change, reason):
    path = change_arrays(hand_made().save(tmp_path / "credit.safetensors"), change)
    with pytest.raises(FileFormatError, match=rf"credit\.safetensors cannot be read as 'secret-rl attr.*': {reason}"):
        Attributions.load(path)


def test_a_table_has_a_line_for_each_weight_above_the_threshold(tmp_path, monkeypatch):
    class Pandas:
        DataFrame = dict

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    table = hand_made().columns(threshold=0.25)
    assert {name: list(column) for name, column in hand_made().to_pandas(0.25).items()} == {
        name: list(column) for name, column in table.items()
    }
    lines = hand_made().to_csv(tmp_path / "credit.csv", 0.25).read_text().splitlines()
    assert lines == ["episode,reward_step,reward,step,weight", "1,2,2.0,0,0.5", "1,4,-1.0,1,0.5", "1,4,-1.0,3,0.5"]
    assert len(hand_made().columns()["weight"]) == 5, "by default every step with any weight"
    assert {name: list(column) for name, column in table.items()} == {
        "episode": [1, 1, 1],
        "reward_step": [2, 4, 4],
        "reward": [2.0, -1.0, -1.0],
        "step": [0, 1, 3],
        "weight": [0.5, 0.5, 0.5],
    }
