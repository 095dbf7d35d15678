"""What objects show of themselves in a notebook and at a prompt: short, true to their numbers, and never markup."""

import re
from html.parser import HTMLParser

import gymnasium as gym
import numpy as np
import pytest
from tests.report.conftest import episodes, numbers

import secret_rl as srl
from secret_rl.credit.base import method_class
from secret_rl.credit.references import oracle_attributions
from secret_rl.credit.report import Confusion
from secret_rl.display import curves_html, facts_html, table_html
from secret_rl.report import explore
from secret_rl.report.explorer.build import unpack
from secret_rl.sb3.curves import DeepCurve


class Cells(HTMLParser):
    """The texts of cells; tags must match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


@pytest.fixture(scope="module")
def shown():
    data = srl.collect("secret_rl/Triggers-v0", 60, seed=0, success_share=0.3, env_options={"size": 4, "triggers": 1})
    truth = np.asarray(data.annotations["trigger_activated"], np.bool_)
    credit = oracle_attributions(data, truth)
    method = method_class("uniform")().fit(data)
    curves = srl.LearningCurves({"none": np.zeros((2, 3, 300)), "credit": np.ones((2, 3, 300))})
    comparison = srl.compare(curves)
    maze = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=7)
    agent = srl.QLearning(seed=0).learn(maze, episodes=300)
    counts = srl.shaping.VisitCounts()
    deep = DeepCurve(np.arange(9), *[np.zeros((9, 10))] * 3, *[np.zeros(50)] * 4, seed=0, discount=0.9)
    return {
        "data": data, "summary": data.summary(), "episode": data[0], "credit": credit, "method": method,
        "report": method.report, "quality": srl.credit_quality(credit, data), "curves": curves,
        "comparison": comparison, "condition": comparison["credit"], "interval": comparison["credit"].area,
        "agent": agent, "curve": agent.curve, "deep curve": deep, "trained": srl.sb3.training.Trained(agent, deep),
        "arrays": maze.unwrapped.tabular(), "table": srl.estimate_potential(data, kind="value"),
        "counts": counts, "shaped": srl.CreditBonus(maze, counts),
        "page": srl.explore(method, data, trajectories=60, replay=False, progress=False),
        "confusion": Confusion(np.ones((5, 5), np.int64)),
    }  # fmt: skip


def test_at_a_prompt_everything_is_a_line(shown):
    for thing in shown.values():
        text = repr(thing)
        assert "\n" not in text and len(text) < 250 and "array(" not in text
    rows = len(shown["credit"])
    assert repr(shown["credit"]) == f"Attributions({rows} of {rows} rewards, of 60 episodes)"
    assert repr(shown["episode"]).startswith(f"Episode({len(shown['episode'])} steps, return ")
    assert repr(shown["agent"]).startswith("TabularAgent(") and "300 episodes, mean return 0." in repr(shown["curve"])
    assert "not learned" in repr(shown["method"]) and "not fitted" in repr(srl.Secret())


def test_notebooks_show_the_numbers_of_the_text(shown):
    for name in ("data", "credit", "report", "quality", "comparison"):
        cells = Cells(shown[name]._repr_html_()).cells
        assert len(cells) >= 4
    for name, text in (("data", shown["data"].summary()), ("report", shown["report"])):
        words = " ".join(" ".join(Cells(shown[name]._repr_html_()).cells).split())
        assert all(" ".join(line.split()) in words for line in str(text).splitlines())
    cells = Cells(shown["credit"]._repr_html_()).cells
    weights = shown["credit"].row(0)
    assert f"step {weights.argmax()} ({weights.max():.0%})" in cells
    assert cells.count("60") == 0 and len(cells) == 1 + 4 + 4 * min(10, len(shown["credit"]))
    assert "precision" in Cells(shown["quality"]._repr_html_()).cells
    assert "credit" in Cells(shown["comparison"]._repr_html_()).cells


def test_learning_curves_are_drawn_with_a_bounded_number_of_points(shown):
    for name, lines in (("curves", 2), ("curve", 1), ("deep curve", 1)):
        page = shown[name]._repr_html_()
        drawn = [points.split() for points in re.findall(r'points="([^"]*)"', page)]
        assert len(drawn) == lines and all(2 <= len(points) <= 100 for points in drawn)
        assert "mean return" in Cells(page).cells and "<script" not in page
    cells = Cells(shown["curves"]._repr_html_()).cells
    assert cells[cells.index("credit", cells.index("mean return")) + 1] == "1.000"
    nothing = curves_html({"<none>": ([], []), "one": ([5], [0.5])}, "steps", "<of one point>")
    assert "<none>" not in nothing and "no point" in Cells(nothing).cells and "nan" not in nothing


def test_a_page_is_shown_in_place(tmp_path):
    data = episodes(8, numbers)
    made = explore(method_class("uniform")().fit(data), data, tmp_path / "page.html", replay=False, progress=False)
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=")

    class Frame(HTMLParser):
        def handle_starttag(self, tag, attrs):
            self.page = dict(attrs)["srcdoc"]

    parser = Frame()
    parser.feed(frame)
    assert parser.page == made.path.read_text(encoding="utf-8") and unpack(parser.page)["trajectories"]
    held = explore(method_class("uniform")().fit(data), data, replay=False, progress=False)
    assert held.path is None and unpack(held.page)["trajectories"] == unpack(parser.page)["trajectories"]


def test_words_of_the_data_are_no_markup():
    hostile = "<script>alert(1)</script>"
    for page in (facts_html(f"{hostile}  {hostile}", hostile), table_html([hostile], [[hostile]], [hostile], hostile)):
        assert "<script" not in page and Cells(page).cells.count(hostile) >= 3
