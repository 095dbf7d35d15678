"""The table of conditions beside a baseline: the numbers of the single functions, as text, Markdown and JSON."""

import json

import numpy as np
import pytest

from secret_rl import evaluation as ev
from secret_rl.evaluation import Bootstrap, Comparison, LearningCurves, compare

SHAPE = MAZES, SEEDS, EPISODES = 8, 3, 80
QUICK = Bootstrap(draws=300, seed=1)


def curves(**how):
    """Learners of three speeds on mazes with different optimal returns, and one that learns nothing."""
    rng = np.random.default_rng(0)
    optimal, time = rng.uniform(0.4, 1.0, (MAZES, 1, 1)), np.arange(EPISODES)
    speeds = {"value": 20.0, "none": 60.0, "pending": 8.0}
    returns = {
        name: optimal * (1 - np.exp(-time / speed)) + rng.normal(0, 0.05, SHAPE) for name, speed in speeds.items()
    }
    return LearningCurves({**returns, "paper": np.zeros(SHAPE)}, optimal=optimal.ravel(), **how)


@pytest.mark.parametrize("bootstrap", [QUICK, Bootstrap("seeds", draws=200, confidence=0.8, seed=7)])
def test_the_table_holds_what_the_single_functions_say(bootstrap):
    data = curves()
    table = compare(data, fraction=0.8, window=5, bootstrap=bootstrap)
    base = ev.area_under_curve(data["none"])
    for name in data:
        row, areas = table[name], ev.area_under_curve(data[name])
        pairs = [
            (row.area, ev.mean(areas, bootstrap)),
            (row.area_iqm, ev.interquartile_mean(areas, bootstrap)),
            (row.final, ev.mean(ev.final_performance(data[name]), bootstrap)),
        ]
        if name == "none":
            assert row.ratio is row.difference is row.improvement is None
        else:
            found = (row.ratio, row.difference, row.improvement)
            single = (ev.ratio, ev.difference, ev.probability_of_improvement)
            pairs += [(one, ask(areas, base, bootstrap)) for one, ask in zip(found, single, strict=True)]
        for one, other in pairs:
            assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-9)
        times = ev.episodes_to_threshold(data[name], fraction=0.8, optimal=data.optimal, window=5)
        assert (row.share_reached, row.episodes_to_threshold) == (ev.share_reached(times), ev.median_time(times))
        assert row.name == name
    assert table["pending"].episodes_to_threshold < table["value"].episodes_to_threshold
    assert (table["paper"].share_reached, table["paper"].episodes_to_threshold) == (0, None)


def test_the_table_as_text_and_in_markdown():
    data = LearningCurves({"none": curves()["none"], "a|b": curves()["pending"]})
    lines = compare(data, threshold=0.5, bootstrap=QUICK).to_markdown().splitlines()
    assert lines[0].startswith("| condition | mean return | IQM | ratio to none | P(improvement) | reached |")
    assert set(lines[1]) == set("| -") and lines[3].startswith("| a\\|b | ")
    assert len({line.replace("\\|", "").count("|") for line in lines[:4]}) == 1
    back = compare(curves(), "pending", bootstrap=QUICK)
    assert back["pending"].ratio is None and "ratio to pending" in str(back)
    table = compare(curves(), fraction=0.8, window=5, bootstrap=QUICK)
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["value", "none", "pending", "paper"]
    assert len({line.index("[") for line in lines[2:6]}) == 1  # columns are aligned
    assert f"{table['pending'].area:.3f}" in lines[4] and f"{table['pending'].ratio:.2f}" in lines[4]
    below = next(line for line in lines[6:] if line.startswith("paper"))
    assert "not reached" in below and "0%" in below
    assert not any(line.endswith(" ") for line in lines) and "with those collected" not in str(table)
    notes = " ".join(lines[14:])
    assert notes.startswith("8 mazes x 3 seeds x 80 episodes")
    assert "95% bootstrap intervals over mazes and seeds (300 draws)" in notes
    assert "80% of the optimal return in the mean over 5 episodes" in notes
    for threshold, words in (
        (0.3, "a return of 0.3 in the mean over 1 episode;"),
        ([0.3] * 8, "a return set for each"),
    ):
        assert words in str(compare(curves(), threshold=threshold, window=1, bootstrap=QUICK))
    bare = compare(curves(), bootstrap=QUICK, unit="evaluations")
    assert (bare.threshold, bare["pending"].share_reached, bare["pending"].total_episodes) == (None, None, None)
    assert "reached" not in str(bare) and "80 evaluations" in str(bare)
    collected = compare(curves(collected={"value": 100}), fraction=0.8, window=5, bootstrap=QUICK)
    for name, before in {"value": 100, "pending": 0}.items():
        assert collected[name].total_episodes == collected[name].episodes_to_threshold + before
    assert "with those collected" in str(collected)


def test_the_table_as_json():
    table = compare(curves(), "paper", fraction=0.8, bootstrap=QUICK)  # a baseline of 0: no ratio
    content = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert content["baseline"] == "paper" and content["bootstrap"]["seed"] == 1
    assert (content["mazes"], content["seeds"], content["episodes"]) == SHAPE
    rows = content["conditions"]
    assert rows["pending"]["area"]["value"] == table["pending"].area.value and rows["paper"]["ratio"] is None
    assert rows["pending"]["ratio"] == {"value": None, "low": None, "high": None}
    assert "undefined" in str(table) and table["pending"].difference.low > 0
    assert str(Comparison.from_json(content)) == str(table)


def test_bad_questions_are_refused():
    one = LearningCurves({name: curves()[name][:1] for name in curves()})
    for data, options, message in (
        (curves(), {"baseline": "nothing"}, r"no condition 'nothing' to compare with: pass baseline=, one of .*'none'"),
        (curves(), {"threshold": 1.0, "fraction": 0.9}, "both threshold=1.0 and fraction=0.9 are set"),
        (one, {}, "1 maze cannot say how mazes differ"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(data, bootstrap=QUICK, **options)
    with pytest.raises(KeyError, match="no condition 'other': compared were 'value', 'none'"):
        compare(curves(), bootstrap=QUICK)["other"]
    assert "over seeds within mazes" in str(compare(one, bootstrap=Bootstrap("seeds", draws=100)))


def test_tables_fit_eighty_columns():
    rng = np.random.default_rng(0)
    curves = LearningCurves({name: rng.normal(0, 1, (4, 3, 50)) for name in ("none", "OnlineCredit")}, optimal=3.0)
    text = str(compare(curves, fraction=0.5))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("OnlineCredit") == 2, "what does not fit goes below, beside the name"
    assert all(cell in text for row in compare(curves, fraction=0.5).table().rows for cell in row)
