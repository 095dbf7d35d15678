"""The report: everything a run left, on one page that loads nothing and runs nothing."""

import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.quick import quick_fits
from tests.report.conftest import episodes, numbers
from tests.sealing import change_json

import secret_rl as srl
from secret_rl.cli.learning import verdict
from secret_rl.credit import RewardClasses
from secret_rl.credit.base import method_class
from secret_rl.credit.report import Confusion, FitReport, Gain
from secret_rl.evaluation import Comparison, CreditQuality, LearningCurves
from secret_rl.report import explore, page, write_report
from secret_rl.report.explorer.build import unpack
from secret_rl.report.runs import RunFolder
from secret_rl.sb3 import DeepCurve
from secret_rl.sb3.checkpoint import TrainingFile, read_training

ELEMENTS = (
    "html head meta title style body main h1 h2 h3 p div table thead tbody tr th td details summary figure figcaption "
    "svg g path text defs use clipPath rect tspan"
)


class Shown:
    """A page as it is parsed: its tables and its text; it must load nothing and run nothing."""

    def __init__(self, runs, path):
        self.source = write_report(runs, path).read_text(encoding="utf-8")
        root = ElementTree.fromstring(self.source)  # every element is closed
        self.elements = [node.tag.rpartition("}")[2] for node in root.iter()]
        assert set(self.elements) <= set(ELEMENTS.split())
        for node in root.iter():
            assert not any(name.startswith("on") for name in node.attrib), "no script"
            for name in ("src", "href", "{http://www.w3.org/1999/xlink}href"):
                assert node.get(name, "#").startswith("#"), "nothing is loaded"
        policy = root.find("head/meta[@http-equiv='Content-Security-Policy']").get("content")
        assert policy.startswith("default-src 'none'") and "script" not in policy
        self.rows = [["".join(cell.itertext()).strip() for cell in row] for row in root.iter("tr")]
        self.text = " ".join(" ".join(root.find("body").itertext()).split())
        self.figures = self.elements.count("svg")

    def row(self, *first):
        (row,) = [row for row in self.rows if tuple(row[: len(first)]) == first]
        return row[len(first) :]


@pytest.fixture
def shown(tmp_path):
    return lambda *runs: Shown(runs, tmp_path / "r.html")


def fit_report(verdict="credit"):
    curve = [{"step": 10 * n, "loss": 1 / n, "validation_loss": 1.1 / n, "gain": 1 - 1 / n} for n in range(1, 5)]
    return FitReport(
        classes=RewardClasses.of(np.array([-1.0, 0.0, 5.0])), class_counts=(10, 100, 9), verdict=verdict,
        gain=Gain(0.875, 0.01), pooled_gain=None, decided=(0.5, 1.0, 0.5), uncertain=1234.4, calibration_error=0.01,
        validation=Confusion(np.diag([8, 90, 7]) + 1), steps=40, seconds=12.3, curve=tuple(curve),
    ).to_json()  # fmt: skip


def quality():
    return CreditQuality(
        precision=0.91, recall=0.82, average_precision=0.88, strongest=0.93,
        attention_on_events=0.77, uniform_share=0.1, coverage=0.66, rows=1234, threshold=0.2, tolerance=0, events="all",
        concentration={d: 0.5 if d == 0 else 0.01 for d in range(-10, 11)},
    ).to_json()  # fmt: skip


def learning(credit=0.6, seed=0, name="OnlineCredit"):
    none = np.random.default_rng(seed).normal(0.2, 0.1, (3, 4, 50))
    return LearningCurves({"none": none, name: none + credit}, optimal=1.0)


def learned(folder, curves=None, settings=None, **more):
    curves = learning() if curves is None else curves
    comparison, words = verdict(curves, threshold=0.5)
    with RunFolder(Path(folder), "learn", {"env": "Maze-v0", "option": {"size": 4}, **(settings or {})}) as run:
        curves.save(Path(folder) / "curves.safetensors")
        run.finish(**{"comparison": comparison.to_json(), "verdict": words, **more})
    return Path(folder)


def test_everything_of_a_run_is_on_its_page(tmp_path, shown):
    data = srl.collect("secret_rl/Triggers-v0", 50, success_share=0.1, env_options={"triggers": 1})
    results = {"data": data.summary().to_json(), "fit": fit_report(), "quality": {"held-out mazes": quality()}}
    folder = learned(tmp_path / "run", seconds=7, **results)
    page, name, summary = shown(folder), str(folder), data.summary()
    comparison, words = verdict(LearningCurves.load(folder / "curves.safetensors"), threshold=0.5)
    assert words in page.text
    assert page.row(name, "learn", srl.__version__)[1:] == ["yes", "7"]
    assert page.row("option.size") == ["4"] and page.row("env") == ["Maze-v0"]
    stored = page.row(name, "50")
    assert f"{summary.successful_episodes} ({summary.success_share:.2%})" in stored
    assert f"mean {summary.mean_return:.3f}, from {summary.min_return:g} to {summary.max_return:g}" in stored
    fitted = ["87.5%", "1,234 rewards", "neg 0.818  zero 0.978  pos 0.800", "40", "12"]
    assert page.row(name, "credit") == fitted
    said = "verdict: credit; the past removes 87.5% of what the present leaves open"
    assert f"Credit model of {name}, {said}" in page.text and "need not have earned" not in page.text
    assert page.row("held-out mazes") == ["0.910", "0.820", "0.880", "77.0%", "1,234", "66.0%"]
    table = comparison.table()
    assert all(row in page.rows for row in [table.header, *table.rows]) and " ".join(table.notes) in page.text
    assert str(Comparison.from_json(comparison.to_json())) == str(comparison)
    for label in ("updates", "held-out trajectories", "attention", "episodes", "none"):
        assert label in page.text
    assert page.figures == 3, "training, concentration and learning curves"
    assert shown(folder).source == page.source, "the same runs give the same page"
    assert "prefers-color-scheme: dark" in page.source and "color-scheme: light dark" in page.source
    figure = page.source[page.source.index("<svg") :]
    assert "currentColor" in figure and not re.search(r"(fill|stroke): #(000000|ffffff)", figure)


@pytest.mark.parametrize("found", ["not learned", "past not needed"])
def test_attention_that_is_not_credit_has_a_banner(tmp_path, shown, found):
    doubted, fine = learned(tmp_path / "doubted", fit=fit_report(found)), learned(tmp_path / "fine", fit=fit_report())
    for runs, before in (([doubted], ""), ([fine, doubted], f"{doubted}: ")):
        page = shown(*runs)
        assert page.source.count('class="banner"') == 1 and f"{before}{found}: the " in page.text
        assert "need not have earned the rewards" in page.text


def test_a_report_links_to_the_explorer_beside_it(tmp_path):
    method = method_class("uniform")().fit(episodes(8, numbers))
    path = method.save(tmp_path / "uniform.safetensors")
    report = tmp_path / "report.html"
    assert "explorer.html" not in write_report([path], report).read_text(encoding="utf-8")
    explore(method, episodes(8, numbers), tmp_path / "explorer.html", replay=False, progress=False)
    assert 'href="explorer.html"' in write_report([path], report).read_text(encoding="utf-8")
    made = explore(method, episodes(8, numbers), tmp_path / "explorer.html", replay=False, progress=False)
    assert unpack(made.path.read_text(encoding="utf-8"))["report"] == "report.html"


def test_of_several_runs_the_differences_are_shown(tmp_path, shown):
    one = learned(tmp_path / "one", settings={"scale": 1.0, "seeds": 4})
    two = learned(tmp_path / "two", learning(credit=0.3), settings={"scale": 0.5, "seeds": 4})
    page = shown(one, two)
    assert page.rows.count(["scale", "1.0", "0.5"]) == 2 and page.rows.count(["seeds", "4", "4"]) == 1
    assert page.figures == 2 and len([row for row in page.rows if row[0] == "OnlineCredit"]) == 2
    assert "No setting differs" in shown(one, learned(tmp_path / "same", settings={"scale": 1.0, "seeds": 4})).text


HOSTILE = "<script>alert(1)<\x0bscript> \"'><img src=x onerror=alert(2)> $\\frac{1}$ & ]]> {{ 7 * 7 }} {% raw %}"


def test_hostile_words_are_shown_and_not_obeyed(tmp_path, shown):
    spoken = HOSTILE.replace("\x0b", "")
    folder = learned(
        tmp_path / HOSTILE, learning(name=spoken), {HOSTILE: HOSTILE, "env": HOSTILE}, verdict=HOSTILE,
        fit=fit_report(), quality={HOSTILE: quality()},
    )  # fmt: skip
    plain = learned(tmp_path / "plain", learning(credit=0.1, name=spoken))
    for runs in ([folder], [folder, plain]):
        page = shown(*runs)
        assert spoken in page.text and HOSTILE.replace("\x0b", "\N{REPLACEMENT CHARACTER}") in page.text
        assert "<script" not in page.source.lower()


@pytest.mark.filterwarnings("ignore::UserWarning")  # fits this short warn
def test_a_model_is_reported_with_the_record_beside_it(tmp_path, shown, monkeypatch):
    quick_fits(monkeypatch)
    data = srl.collect("secret_rl/Triggers-v0", 100, success_share=0.3, env_options={"triggers": 1, "size": 3})
    secret = srl.Secret(steps=10, units=16, batch_size=16, evaluate_every=5, device="cpu").fit(data)
    model = secret.save(tmp_path / "m.safetensors")
    alone = shown(model)
    assert alone.row("units") == ["16"] and "Credit quality" not in alone.text
    for fit, own in ((secret.report.to_json(), True), (fit_report(), False)):  # the second is of another model
        with RunFolder(tmp_path / "m.run", "fit", {"units": 16}) as run:
            run.finish(fit=fit, quality={"test": quality()})
        assert ("Credit quality" in shown(model).text) == own


def trained(folder, seed, level, shaping=None, tests=6):
    returns = level + np.random.default_rng(seed).normal(0, 0.05, (tests, 5))
    steps = np.minimum(np.arange(tests) * 100, 450)  # the last test is at the end, wherever that is
    tested = (steps, returns, returns, np.ones((tests, 5), np.int64), *[np.zeros(0)] * 4)
    settings = {"algorithm": "DQN", "seed": seed, "shaping": shaping, "steps": 450}
    model = SimpleNamespace(get_parameters=dict, get_vec_normalize_env=lambda: None, env=None)
    TrainingFile(folder / "training.safetensors", settings).save(
        model, DeepCurve(*tested, seed, 0.99), 1, finished=True
    )
    return folder


def test_folders_of_deep_agents(tmp_path, shown):
    plain = [trained(tmp_path / f"plain-{seed}", seed, 0.2) for seed in range(3)]
    shaped = [trained(tmp_path / f"shaped-{seed}", seed, 0.6, "credit") for seed in range(3)]
    page = shown(*plain, *shaped)
    means = [read_training(folder)[2].discounted.mean() for folder in plain]
    assert page.row(f"{plain[0]} and 2 more seeds")[:2] == ["3", f"{np.mean(means):.3f}"]
    assert page.figures == 1 and "environment steps" in page.text, "tested at the same steps: one figure"
    assert ["shaping", *(["\N{EM DASH}"] * 3), *(["credit"] * 3)] in page.rows
    assert len(shown(shaped[0]).row(str(shaped[0]), "1")) == 2
    assert shown(shaped[0], trained(tmp_path / "longer", 0, 0.5, tests=7)).figures == 2


def test_what_a_run_does_not_have_is_said_or_left_out(tmp_path, shown):
    """An end, a ratio, a bound."""
    with RunFolder(tmp_path / "unfinished", "learn", {"env": "Maze-v0"}):
        page = shown(tmp_path / "unfinished")
    assert page.row(str(tmp_path / "unfinished"))[-1] == "no" and "Learning curves" not in page.text
    curves = learning(credit=1.0)
    level = float(curves["none"].mean())
    for shift, words in ((-level - 0.1, "undefined"), (-level + 1e-3, "[unbounded]")):
        folder = learned(tmp_path / "run", LearningCurves({name: curves[name] + shift for name in curves}))
        assert words in shown(folder).row("OnlineCredit")[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": 5}, "run.json cannot be read as 'secret-rl run': AttributeError: 'int' object"),
        ({"data": {"episodes": 3}}, "run cannot be read as 'secret-rl run': UndefinedError: .* 'steps'"),
        ({"version": 99}, "format version 99"),
    ],
)
def test_what_cannot_be_read_is_refused_and_an_older_page_is_kept(tmp_path, changes, message):
    folder, out = learned(tmp_path / "run", fit=fit_report(), quality={"test": quality()}), tmp_path / "r.html"
    change_json(folder / "run.json", lambda record: record.update(changes))
    out.write_text("an older page")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        write_report([folder], out)
    assert out.read_text() == "an older page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "run"]


def test_folders_without_anything_to_report_and_failed_writes_leave_nothing(tmp_path, monkeypatch):
    run, changed, empty, other = (tmp_path / name for name in ("a", "changed", "empty", "other"))
    path = learned(learned(run).with_name("changed")) / "run.json"
    path.write_text(path.read_text().replace("Maze-v0", "Maze-v1"))
    empty.mkdir()
    other.mkdir()
    (other / "training.safetensors").write_text("{}")
    for runs, message in (
        ([changed], r"run\.json cannot be read as .*: it does not match its check"),
        ([empty], r"nothing to report in .*: expected a folder with run.json \(of fit, learn and demo\)"),
        ([tmp_path / "nowhere"], "nothing to report in .*nowhere"),
        ([run, run], "named twice"),
        ([], "name at least one"),
        ([other], "training.safetensors cannot be read as 'secret-rl deep training': SafetensorError"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            write_report(runs, tmp_path / "r.html")
    monkeypatch.setattr(page, "report_page", lambda *_: "\ud800")  # cannot be written as UTF-8
    with pytest.raises(UnicodeEncodeError):
        write_report([run], tmp_path / "r.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "changed", "empty", "other"]
