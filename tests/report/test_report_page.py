"""The report: everything a run left on one page that fetches nothing, runs nothing, and tells the truth."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.quick import quick_fits
from tests.sealing import change_json

import secret_rl as srl
from secret_rl.agents.sb3 import DeepCurve
from secret_rl.agents.sb3.checkpoint import FORMAT as TRAINING
from secret_rl.cli.learning import results_of, verdict
from secret_rl.credit import RewardClasses
from secret_rl.credit.diagnosis import FitReport, Gain
from secret_rl.credit.measures import Confusion
from secret_rl.evaluation import CreditQuality, LearningCurves, compare
from secret_rl.files import FileFormatError
from secret_rl.report import page, save_frames, write_report
from secret_rl.report.record import RunFolder

VOID = {"meta", "img"}
SHAPES = {"svg", "g", "path", "text", "defs", "use", "clippath", "rect", "tspan", "style"}
WORDS = {
    "html", "head", "title", "body", "h1", "h2", "h3", "p", "div", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "figure", "figcaption",
}  # fmt: skip


class Reader(HTMLParser):
    """A page as a browser takes it: elements, attributes, tables and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.rows, self.words, self.open = set(), [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data.strip()
        if "style" not in self.open:
            self.words.append(data.strip())

    def row(self, name):
        (row,) = [row for row in self.rows if row[:1] == [name]]
        return row[1:]

    @property
    def text(self):
        return " ".join(self.words)


def read(path):
    reader = Reader(Path(path).read_text(encoding="utf-8"))
    assert reader.tags <= WORDS | SHAPES | VOID, reader.tags - WORDS - SHAPES - VOID
    for _, name, value in reader.attributes:
        assert not name.startswith("on"), "no script"
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("data:image/png;base64,", "#")), "nothing is fetched"
    policy = [value for tag, name, value in reader.attributes if tag == "meta" and name == "content"]
    assert policy[0].startswith("default-src 'none'") and "script" not in policy[0]
    return reader


def fit_report(verdict="credit"):
    curve = [{"step": 10 * n, "loss": 1 / n, "validation_loss": 1.1 / n, "gain": 1 - 1 / n} for n in range(1, 5)]
    return FitReport(
        classes=RewardClasses.of(np.array([-1.0, 0.0, 5.0])), class_counts=(10, 100, 9), verdict=verdict,
        gain=Gain(0.875, 0.01), pooled_gain=None, decided=(0.5, 1.0, 0.5), uncertain=1234.4, calibration_error=0.01,
        validation=Confusion(np.diag([8, 90, 7]) + 1), steps=40, seconds=12.3, curve=tuple(curve),
    )  # fmt: skip


def quality(precision=0.91):
    concentration = {d: 0.5 if d == 0 else 0.01 for d in range(-10, 11)}
    return CreditQuality(
        precision=precision, recall=0.82, average_precision=0.88, strongest=0.93, row_precision=0.9, row_recall=0.8,
        attention_on_events=0.77, uniform_share=0.1, coverage=0.66, rows=1234, threshold=0.2, tolerance=0, events="all",
        concentration=concentration,
    )  # fmt: skip


def learning(credit=0.6, seed=0, name="OnlineCredit"):
    rng = np.random.default_rng(seed)
    none = rng.normal(0.2, 0.1, (3, 4, 50))
    return LearningCurves({"none": none, name: none + credit}, optimal=1.0)


def learned(folder, curves=None, settings=None, **more):
    curves = learning() if curves is None else curves
    run = RunFolder(Path(folder), "learn", {"env": "Maze-v0", "option": {"size": 4}, **(settings or {})})
    comparison, words = verdict(curves, threshold=0.5)
    curves.save(Path(folder) / "curves.safetensors")
    run.finish(**{**results_of(curves, comparison, words), **more})
    return Path(folder)


def test_everything_of_a_run_is_on_its_page(tmp_path):
    data = srl.collect("secret_rl/Triggers-v0", 50, success_share=0.1, env_options={"triggers": 1})
    save_frames([np.zeros((20, 20, 3), np.uint8)], tmp_path / "run" / "credit.png")
    folder = learned(
        tmp_path / "run", data=data.summary().to_json(), fit=fit_report().to_json(),
        quality={"held-out mazes": quality().to_json()}, pictures={"The steps": "credit.png"}, seconds=7,
    )  # fmt: skip
    out = write_report([folder], tmp_path / "report.html")
    shown, name = read(out), str(folder)
    curves = LearningCurves.load(folder / "curves.safetensors")
    comparison, words = verdict(curves, threshold=0.5)
    assert words in shown.text
    overview = next(row for row in shown.rows if row[:1] == [name])
    assert overview[1:3] == ["learn", srl.__version__] and overview[4:] == ["yes", "7"]
    assert shown.row("option.size") == ["4"] and shown.row("env") == ["Maze-v0"]
    summary = data.summary()
    [told] = [row for row in shown.rows if row[:2] == [name, "50"]]
    assert f"{summary.successful_episodes} ({summary.success_share:.2%})" in told
    assert f"mean {summary.mean_return:.3f}, from {summary.min_return:g} to {summary.max_return:g}" in told
    [fitted] = [row for row in shown.rows if row[:2] == [name, "credit"]]
    assert fitted[2:] == ["87.5%", "1,234 rewards", "0.818 of -1, 0.978 of 0, 0.800 of +5", "40", "12"]
    said = "verdict: credit; the past removes 87.5% of what the present leaves open"
    assert f"Credit model of {name}, {said}" in shown.text and "need not have earned" not in shown.text
    assert shown.row("held-out mazes") == ["0.910", "0.820", "0.880", "77.0%", "1,234", "66.0%"]
    [row] = [row for row in shown.rows if row[:1] == ["OnlineCredit"]]
    better = comparison["OnlineCredit"]
    assert row[1] == f"{better.area:.3f}" and row[3] == f"{better.ratio:.2f}" and row[4] == f"{better.improvement:.2f}"
    assert row[5] == f"{better.share_reached:.0%}" and row[6] == f"{better.episodes_to_threshold:,.0f}"
    for label in ("updates", "held-out trajectories", "attention", "episodes", "none"):
        assert label in shown.text
    pictures = [value for tag, attribute, value in shown.attributes if (tag, attribute) == ("img", "src")]
    assert len(pictures) == 1 and "The steps" in shown.text
    assert Path(out).read_text().count("<svg") == 3, "training, concentration and learning curves"


@pytest.mark.parametrize("found", ["not learned", "past not needed"])
def test_attention_that_is_not_credit_has_a_banner(tmp_path, found):
    doubted = learned(tmp_path / "doubted", fit=fit_report(found).to_json())
    fine = learned(tmp_path / "fine", fit=fit_report().to_json())
    for runs, before in (([doubted], ""), ([fine, doubted], f"{doubted}: ")):
        path = write_report(runs, tmp_path / "r.html")
        assert path.read_text().count('class="banner"') == 1
        assert f"{before}{found}: the " in read(path).text
        assert "need not have earned the rewards" in read(path).text


def test_readable_on_light_and_dark_ground(tmp_path):
    text = write_report([learned(tmp_path / "run")], tmp_path / "r.html").read_text()
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text
    figure = text[text.index("<svg") :]
    assert "currentColor" in figure and not re.search(r"(fill|stroke): #(000000|ffffff)", figure)


def test_the_same_runs_give_the_same_page(tmp_path):
    folder = learned(tmp_path / "run", fit=fit_report().to_json())
    one, other = (write_report([folder], tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == other


def test_of_several_runs_the_differences_are_shown_and_the_same_tasks_drawn_together(tmp_path):
    one = learned(tmp_path / "one", settings={"scale": 1.0, "seeds": 4})
    two = learned(tmp_path / "two", learning(credit=0.3), settings={"scale": 0.5, "seeds": 4})
    other = learned(tmp_path / "other", learning(seed=1), settings={"scale": 1.0, "seeds": 4})
    path = write_report([one, two, other], tmp_path / "r.html")
    shown = read(path)
    differences = [row for row in shown.rows if row and row[0] == "scale" and len(row) == 4]
    assert differences == [["scale", "1.0", "0.5", "1.0"]]
    assert not [row for row in shown.rows if row and row[0] == "seeds" and len(row) == 4], "no difference"
    assert path.read_text().count("<svg") == 2, "other mazes are another figure"
    [joined] = [row for row in shown.rows if row[:1] == [f"OnlineCredit, {two}"]]
    together = LearningCurves({"none": learning()["none"], "two": learning(credit=0.3)["OnlineCredit"]})
    bootstrap = verdict(together)[0].bootstrap
    assert joined[1] == f"{compare(together, bootstrap=bootstrap)['two'].area:.3f}"
    same = read(write_report([one, learned(tmp_path / "same", settings={"scale": 1.0, "seeds": 4})], path))
    assert "No setting of learn differs" in same.text


HOSTILE = "<script>alert(1)<\x0bscript> \"'><img src=x onerror=alert(2)> $\\frac{1}$ & ]]>"


def test_hostile_words_are_shown_and_not_obeyed(tmp_path):
    spoken = HOSTILE.replace("\x0b", "")
    curves = learning(name=spoken)
    save_frames([np.zeros((20, 20, 3), np.uint8)], tmp_path / HOSTILE / "credit.png")
    folder = learned(
        tmp_path / HOSTILE, curves, {HOSTILE: HOSTILE, "env": HOSTILE}, verdict=HOSTILE, fit=fit_report().to_json(),
        quality={HOSTILE: quality().to_json()}, pictures={HOSTILE: "../../credit.png"},
    )  # fmt: skip
    plain = learned(tmp_path / "plain", learning(credit=0.1, name=spoken))
    for runs in ([folder], [folder, plain]):
        path = write_report(runs, tmp_path / "r.html")
        shown = read(path)
        assert spoken in shown.text and "$\\frac{1}$" in shown.text
        assert "<script" not in path.read_text().lower()
        assert [tag for tag, name, _ in shown.attributes if name == "src"] == ["img"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
def test_a_model_is_reported_with_the_record_beside_it(tmp_path, monkeypatch):
    quick_fits(monkeypatch)
    data = srl.collect("secret_rl/Triggers-v0", 100, success_share=0.3, env_options={"triggers": 1, "size": 3})
    options = {"steps": 10, "units": 16, "batch_size": 16, "evaluate_every": 5, "device": "cpu"}
    secret = srl.Secret(**options).fit(data)
    model = secret.save(tmp_path / "m.safetensors")
    alone = read(write_report([model], tmp_path / "r.html"))
    assert alone.row("units") == ["16"] and "Credit quality" not in alone.text
    run = RunFolder(tmp_path / "m.run", "fit", {"units": 16})
    run.finish(fit=secret.report.to_json(), quality={"test": quality().to_json()})
    assert "Credit quality" in read(write_report([model], tmp_path / "r.html")).text
    run = RunFolder(tmp_path / "m.run", "fit", {"units": 16})
    run.finish(fit=fit_report().to_json(), quality={"test": quality().to_json()})
    assert "Credit quality" not in read(write_report([model], tmp_path / "r.html")).text, "the record of another model"


def trained(folder, seed, level, shaping=None, tests=6):
    rng = np.random.default_rng(seed)
    returns = level + rng.normal(0, 0.05, (tests, 5))
    nothing = np.zeros(0)
    steps = np.minimum(np.arange(tests) * 100, 450)  # the last test is at the end, wherever that is
    lengths = np.ones((tests, 5), np.int64)
    curve = DeepCurve(steps, returns, returns, lengths, nothing, nothing, nothing, nothing, seed, 0.99)
    curve.save(folder / "curve-1.safetensors")
    state = {
        "finished": True, "files": {"curve": "curve-1.safetensors"},
        "fingerprint": {"algorithm": "DQN", "seed": seed, "shaping": shaping, "steps": 450},
    }  # fmt: skip
    TRAINING.write_json(folder / "state.json", state)
    return folder


def test_folders_of_deep_agents(tmp_path):
    plain = [trained(tmp_path / f"plain-{seed}", seed, 0.2) for seed in range(3)]
    shaped = [trained(tmp_path / f"shaped-{seed}", seed, 0.6, "credit") for seed in range(3)]
    path = write_report([*plain, *shaped], tmp_path / "r.html")
    shown = read(path)
    means = [DeepCurve.load(folder / "curve-1.safetensors").discounted.mean() for folder in plain]
    [row] = [row for row in shown.rows if row[:1] == [f"{plain[0]} and 2 more seeds"]]
    assert row[1] == "3" and row[2] == f"{np.mean(means):.3f}"
    assert path.read_text().count("<svg") == 1, "tested at the same steps: one figure"
    assert "environment steps" in shown.text
    assert ["shaping", *(["\N{EM DASH}"] * 3), *(["credit"] * 3)] in shown.rows
    single = read(write_report(shaped[:1], tmp_path / "r.html"))
    assert [row for row in single.rows if row[:2] == [str(shaped[0]), "1"]]
    unlike = [shaped[0], trained(tmp_path / "longer", 0, 0.5, tests=7)]
    assert write_report(unlike, tmp_path / "r.html").read_text().count("<svg") == 2


def test_train_leaves_a_folder_that_can_be_reported(tmp_path):
    import gymnasium as gym
    from stable_baselines3 import DQN

    options = {"learning_starts": 10, "buffer_size": 100, "evaluate_every": 20, "evaluation_episodes": 2}
    srl.train(DQN, lambda: gym.make("CartPole-v1"), 40, n_envs=1, folder=tmp_path / "dqn", progress=False, **options)
    shown = read(write_report([tmp_path / "dqn"], tmp_path / "r.html"))
    assert shown.row("buffer_size") == ["100"] and "Learning curves of deep agents" in shown.text


def test_curves_without_a_record_and_a_single_agent(tmp_path):
    (tmp_path / "curves").mkdir()
    learning().save(tmp_path / "curves" / "curves.safetensors")
    shown = read(write_report([tmp_path / "curves"], tmp_path / "r.html"))
    assert "P(improvement)" in shown.text
    (tmp_path / "one").mkdir()
    LearningCurves({"none": np.zeros((1, 1, 9))}).save(tmp_path / "one" / "curves.safetensors")
    assert "One agent: there is no interval" in read(write_report([tmp_path / "one"], tmp_path / "r.html")).text


def test_what_has_no_ratio_or_no_bound_says_so(tmp_path):
    curves = learning(credit=1.0)
    level = float(curves["none"].mean())
    for shift, words in ((-level - 0.1, "undefined"), (-level + 1e-3, "[unbounded]")):
        folder = learned(tmp_path / "run", LearningCurves({name: curves[name] + shift for name in curves}))
        rows = read(write_report([folder], tmp_path / "r.html")).rows
        assert words in next(row for row in rows if row[:1] == ["OnlineCredit"])[3]


def test_an_unfinished_run_says_so(tmp_path):
    RunFolder(tmp_path / "run", "learn", {"env": "Maze-v0"})
    shown = read(write_report([tmp_path / "run"], tmp_path / "r.html"))
    assert shown.row(str(tmp_path / "run"))[-1] == "no" and "Learning curves" not in shown.text


def spoiled(folder, **changes):
    """A run whose record was tampered with."""
    path = learned(folder, fit=fit_report().to_json(), quality={"test": quality().to_json()}) / "run.json"
    change_json(path, lambda record: record.update(changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": 5}, "run.json cannot be read as 'secret-rl run': AttributeError: 'int' object"),
        ({"fit": {"steps": 3}}, "run.json cannot be read as 'secret-rl run': KeyError: 'verdict'"),
        (
            {"quality": {"test": {"precision": 1}}},
            "run.json cannot be read as 'secret-rl run': KeyError: 'concentration'",
        ),
        ({"data": {"episodes": 3}}, "run cannot be read as 'secret-rl run': KeyError: 'steps'"),
        ({"comparison": {}}, "run cannot be read as 'secret-rl run': KeyError: 'conditions'"),
        ({"version": 99}, "format version 99"),
        ({"curves": "nothing.safetensors"}, "nothing.safetensors"),
        ({"curves": "run.json"}, "run.json cannot be read as 'secret-rl learning curves'"),
        ({"pictures": {"secret": "../../../../etc/passwd"}}, "passwd"),
        ({"pictures": {"no picture": "run.json"}}, "no PNG picture"),
    ],
)
def test_what_cannot_be_read_is_refused_and_an_older_page_is_kept(tmp_path, changes, message):
    folder, out = spoiled(tmp_path / "run", **changes), tmp_path / "r.html"
    out.write_text("an older page")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        write_report([folder], out)
    assert out.read_text() == "an older page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "run"]


def test_a_record_that_was_changed_afterwards_is_refused(tmp_path):
    path = learned(tmp_path / "run") / "run.json"
    path.write_text(path.read_text().replace("Maze-v0", "Maze-v1"))
    with pytest.raises(
        FileFormatError, match=r"run\.json cannot be read as 'secret-rl run': it does not match its check"
    ):
        write_report([tmp_path / "run"], tmp_path / "r.html")


def test_folders_without_anything_to_report(tmp_path):
    with pytest.raises(ValueError, match=r"nothing to report in .*: expected run.json \(of fit, learn and demo\)"):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        write_report([tmp_path / "nowhere"], tmp_path / "r.html")
    with pytest.raises(ValueError, match="named twice"):
        write_report([learned(tmp_path / "a"), tmp_path / "a"], tmp_path / "r.html")
    with pytest.raises(ValueError, match="name at least one"):
        write_report([], tmp_path / "r.html")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "state.json").write_text('{"format": "another"}')
    with pytest.raises(FileFormatError, match="it says format 'another', expected 'secret-rl deep training'"):
        write_report([tmp_path / "b"], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    folder = learned(tmp_path / "run")
    monkeypatch.setattr(page, "report_page", lambda _: "\ud800")  # cannot be written as UTF-8
    with pytest.raises(UnicodeEncodeError):
        write_report([folder], tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
