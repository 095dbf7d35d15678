"""The table of conditions beside a baseline: the numbers of the single functions, told so that they can be read."""

import json

import numpy as np
import pytest

from secret_rl.evaluation import (
    Bootstrap,
    LearningCurves,
    area_under_curve,
    compare,
    difference,
    episodes_to_threshold,
    final_performance,
    interquartile_mean,
    mean,
    median_time,
    probability_of_improvement,
    ratio,
    share_reached,
)

MAZES, SEEDS, EPISODES = 8, 3, 80
QUICK = Bootstrap(draws=300, seed=1)


def curves(**how):
    """Learners of three speeds on mazes of different worth; no luck for the one that learns nothing."""
    rng = np.random.default_rng(0)
    worth = rng.uniform(0.4, 1.0, (MAZES, 1, 1))
    time = np.arange(EPISODES)
    speeds = {"value": 20.0, "none": 60.0, "pending": 8.0}
    returns = {
        name: worth * (1 - np.exp(-time / speed)) + rng.normal(0, 0.05, (MAZES, SEEDS, EPISODES))
        for name, speed in speeds.items()
    }
    returns["paper"] = np.zeros((MAZES, SEEDS, EPISODES))
    return LearningCurves(returns, optimal=worth.ravel(), **how)


def assert_estimate(one, other):
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-9)


@pytest.mark.parametrize("bootstrap", [QUICK, Bootstrap("seeds", draws=200, confidence=0.8, seed=7)])
def test_the_table_holds_what_the_single_functions_say(bootstrap):
    data = curves()
    table = compare(data, fraction=0.8, window=5, bootstrap=bootstrap)
    base = area_under_curve(data["none"])
    for name in data:
        row, areas = table[name], area_under_curve(data[name])
        assert row.name == name
        assert_estimate(row.area, mean(areas, bootstrap))
        assert_estimate(row.area_iqm, interquartile_mean(areas, bootstrap))
        assert_estimate(row.final, mean(final_performance(data[name]), bootstrap))
        times = episodes_to_threshold(data[name], fraction=0.8, optimal=data.optimal, window=5)
        assert (row.share_reached, row.episodes_to_threshold) == (share_reached(times), median_time(times))
        if name != "none":
            assert_estimate(row.ratio, ratio(areas, base, bootstrap))
            assert_estimate(row.difference, difference(areas, base, bootstrap))
            assert_estimate(row.improvement, probability_of_improvement(areas, base, bootstrap))
    assert (table["none"].ratio, table["none"].difference, table["none"].improvement) == (None, None, None)
    assert table["pending"].episodes_to_threshold < table["value"].episodes_to_threshold
    assert (table["paper"].share_reached, table["paper"].episodes_to_threshold) == (0, None)


def test_another_baseline_turns_the_table_around():
    data = curves()
    forth, back = compare(data, "none", bootstrap=QUICK), compare(data, "pending", bootstrap=QUICK)
    assert back["none"].ratio.value == pytest.approx(1 / forth["pending"].ratio.value)
    assert back["none"].improvement.value == pytest.approx(1 - forth["pending"].improvement.value)
    assert back["pending"].ratio is None and back["none"].area == forth["none"].area
    assert "ratio to pending" in str(back)


def test_collecting_and_steps_are_counted():
    lengths = {name: np.full((MAZES, SEEDS, EPISODES), 6 + i) for i, name in enumerate(curves())}
    data = curves(lengths=lengths, collected={"value": 100, "pending": 0}, collected_steps={"value": 4_000})
    table = compare(data, fraction=0.8, window=5, bootstrap=QUICK)
    value, pending = table["value"], table["pending"]
    assert value.total_episodes == value.episodes_to_threshold + 100
    assert value.steps_to_threshold == 6 * value.episodes_to_threshold
    assert value.total_steps == value.steps_to_threshold + 4_000
    assert (pending.total_episodes, pending.total_steps) == (pending.episodes_to_threshold, pending.steps_to_threshold)
    assert "with those collected" in str(table)
    assert "with those collected" not in str(compare(curves(), fraction=0.8, bootstrap=QUICK))


def test_without_a_threshold_no_time_is_told():
    table = compare(curves(), bootstrap=QUICK)
    row = table["pending"]
    assert (row.share_reached, row.episodes_to_threshold, row.total_episodes, row.total_steps) == (None,) * 4
    assert table.threshold is None
    assert "threshold" not in str(table).lower() and "reached" not in table.to_markdown()


def test_the_table_in_words():
    table = compare(curves(), fraction=0.8, window=5, bootstrap=QUICK)
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["value", "none", "pending", "paper"]
    assert len({line.index("[") for line in lines[2:6]}) == 1  # columns stand below each other
    assert f"{table['pending'].area:.3f}" in lines[4] and f"{table['pending'].ratio:.2f}" in lines[4]
    assert "not reached" in lines[5] and "0%" in lines[5]
    assert not any(line.endswith(" ") for line in lines)
    assert "8 mazes x 3 seeds x 80 episodes" in lines[7]
    assert "95% bootstrap intervals over mazes and seeds (300 draws)" in lines[8]
    assert "80% of the optimal return in the mean over 5 episodes" in lines[9]
    assert "a return of 0.3 in the mean over 1 episode;" in str(
        compare(curves(), threshold=0.3, window=1, bootstrap=QUICK)
    )
    assert "a return set for each maze" in str(compare(curves(), threshold=[0.3] * MAZES, bootstrap=QUICK))


def test_the_table_in_markdown():
    data = LearningCurves({"none": curves()["none"], "a|b": curves()["pending"]})
    lines = compare(data, threshold=0.5, bootstrap=QUICK).to_markdown().splitlines()
    assert lines[0].startswith("| condition | mean return | IQM | ratio to none | P(improvement) | reached |")
    assert set(lines[1]) == set("| -")
    cells = [line.replace("\\|", "").count("|") for line in lines[:4]]
    assert len(set(cells)) == 1
    assert lines[3].startswith("| a\\|b | ")


def test_the_table_as_json():
    data = curves()
    table = compare(data, "paper", fraction=0.8, bootstrap=QUICK)  # a baseline of 0: no ratio
    told = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert told["baseline"] == "paper" and told["bootstrap"]["seed"] == 1
    assert (told["mazes"], told["seeds"], told["episodes"]) == (MAZES, SEEDS, EPISODES)
    assert told["conditions"]["pending"]["area"]["value"] == table["pending"].area.value
    assert told["conditions"]["pending"]["ratio"] == {"value": None, "low": None, "high": None}
    assert told["conditions"]["paper"]["ratio"] is None
    assert told["conditions"]["paper"]["episodes_to_threshold"] is None
    assert "undefined" in str(table)
    assert table["pending"].difference.low > 0  # which is told all the same


def test_a_single_maze_needs_another_question():
    one = LearningCurves({name: curves()[name][:1] for name in curves()})
    with pytest.raises(ValueError, match="1 maze cannot say how mazes differ"):
        compare(one)
    table = compare(one, bootstrap=Bootstrap("seeds", draws=100))
    assert "over seeds within mazes" in str(table)


def test_bad_questions_are_refused():
    with pytest.raises(ValueError, match=r"no condition 'nothing' to compare with: pass baseline=, one of .*'none'"):
        compare(curves(), "nothing")
    bare = LearningCurves({"none": np.zeros((2, 2, 20))})
    with pytest.raises(ValueError, match="fraction=0.9 of what. Pass optimal="):
        compare(bare, fraction=0.9, bootstrap=QUICK)
    with pytest.raises(ValueError, match="both threshold=1.0 and fraction=0.9 are set"):
        compare(curves(), threshold=1.0, fraction=0.9, bootstrap=QUICK)
    with pytest.raises(ValueError, match=r"window must lie in \[1, 20\]"):
        compare(bare, threshold=1.0, window=21, bootstrap=QUICK)
    with pytest.raises(KeyError, match="no condition 'other': compared were 'value', 'none'"):
        compare(curves(), bootstrap=QUICK)["other"]
