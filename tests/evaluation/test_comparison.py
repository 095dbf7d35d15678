"""The table of conditions beside a baseline: the numbers of the single functions, as text, Markdown and JSON."""

import json

import numpy as np
import pytest

from secret_rl.evaluation import (
    Bootstrap,
    Comparison,
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
    """Learners of three speeds on mazes with different optimal returns, and one that learns nothing."""
    rng = np.random.default_rng(0)
    optimal = rng.uniform(0.4, 1.0, (MAZES, 1, 1))
    time = np.arange(EPISODES)
    speeds = {"value": 20.0, "none": 60.0, "pending": 8.0}
    returns = {
        name: optimal * (1 - np.exp(-time / speed)) + rng.normal(0, 0.05, (MAZES, SEEDS, EPISODES))
        for name, speed in speeds.items()
    }
    returns["paper"] = np.zeros((MAZES, SEEDS, EPISODES))
    return LearningCurves(returns, optimal=optimal.ravel(), **how)


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


def test_collected_trajectories_are_counted():
    table = compare(curves(collected={"value": 100}), fraction=0.8, window=5, bootstrap=QUICK)
    assert table["value"].total_episodes == table["value"].episodes_to_threshold + 100
    assert table["pending"].total_episodes == table["pending"].episodes_to_threshold
    assert "with those collected" in str(table)
    assert "with those collected" not in str(compare(curves(), fraction=0.8, bootstrap=QUICK))


def test_the_table_as_text():
    table = compare(curves(), fraction=0.8, window=5, bootstrap=QUICK)
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["value", "none", "pending", "paper"]
    assert len({line.index("[") for line in lines[2:6]}) == 1  # columns are aligned
    assert f"{table['pending'].area:.3f}" in lines[4] and f"{table['pending'].ratio:.2f}" in lines[4]
    assert "not reached" in lines[5] and "0%" in lines[5]
    assert not any(line.endswith(" ") for line in lines)
    assert "8 mazes x 3 seeds x 80 episodes" in lines[7]
    assert "95% bootstrap intervals over mazes and seeds (300 draws)" in lines[8]
    assert "80% of the optimal return in the mean over 5 episodes" in lines[9]
    for threshold, words in {
        0.3: "a return of 0.3 in the mean over 1 episode;",
        (0.3,) * 8: "a return set for each",
    }.items():
        assert words in str(compare(curves(), threshold=threshold, window=1, bootstrap=QUICK))
    bare = compare(curves(), bootstrap=QUICK, unit="evaluations")
    assert (bare.threshold, bare["pending"].share_reached, bare["pending"].total_episodes) == (None, None, None)
    assert "reached" not in str(bare) and "80 evaluations" in str(bare)


def test_the_table_in_markdown():
    data = LearningCurves({"none": curves()["none"], "a|b": curves()["pending"]})
    lines = compare(data, threshold=0.5, bootstrap=QUICK).to_markdown().splitlines()
    assert lines[0].startswith("| condition | mean return | IQM | ratio to none | P(improvement) | reached |")
    assert set(lines[1]) == set("| -")
    assert len({line.replace("\\|", "").count("|") for line in lines[:4]}) == 1
    assert lines[3].startswith("| a\\|b | ")


def test_the_table_as_json():
    table = compare(curves(), "paper", fraction=0.8, bootstrap=QUICK)  # a baseline of 0: no ratio
    content = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert content["baseline"] == "paper" and content["bootstrap"]["seed"] == 1
    assert (content["mazes"], content["seeds"], content["episodes"]) == (MAZES, SEEDS, EPISODES)
    assert content["conditions"]["pending"]["area"]["value"] == table["pending"].area.value
    assert content["conditions"]["pending"]["ratio"] == {"value": None, "low": None, "high": None}
    assert content["conditions"]["paper"]["ratio"] is None
    assert "undefined" in str(table) and table["pending"].difference.low > 0
    assert str(Comparison.from_json(content)) == str(table)


def test_bad_questions_are_refused():
    with pytest.raises(ValueError, match=r"no condition 'nothing' to compare with: pass baseline=, one of .*'none'"):
        compare(curves(), "nothing")
    with pytest.raises(ValueError, match="both threshold=1.0 and fraction=0.9 are set"):
        compare(curves(), threshold=1.0, fraction=0.9, bootstrap=QUICK)
    with pytest.raises(KeyError, match="no condition 'other': compared were 'value', 'none'"):
        compare(curves(), bootstrap=QUICK)["other"]
    one = LearningCurves({name: curves()[name][:1] for name in curves()})
    with pytest.raises(ValueError, match="1 maze cannot say how mazes differ"):
        compare(one)
    assert "over seeds within mazes" in str(compare(one, bootstrap=Bootstrap("seeds", draws=100)))
