"""The credit explorer's page beside a plotly page of the same picture: bytes, and time to load in the same browser."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import secret_rl as srl
from benchmarks.results_file import Row, interleaved, write
from secret_rl.report import explore
from secret_rl.report.explorer.build import unpack

ENV, MAZES = "secret_rl/Triggers-v0", {"size": 8, "triggers": 3, "prizes": 1}
LONGEST = 600_000  # milliseconds to wait for a page
SIZES = {50: 15, 1_000: 5}  # trajectories on a page: how often it is loaded


def run() -> None:
    """Measure and write down."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    write("explorer", "Credit explorer beside a plotly page that shows less of the same, Triggers 8x8 3T1P", rows)


def measure(folder: Path) -> list[Row]:
    """Both pages, each loaded in turn."""
    data = srl.collect(ENV, 2_000, seed=0, success_share=0.5, env_options=MAZES)
    # What the model knows does not matter here: attention has as many numbers either way.
    options: dict[str, Any] = {"steps": 40, "device": "cpu"}
    secret = srl.Secret(seed=0, **options).fit(data[:400], progress=False)
    one = explore(secret, data, folder / "one.html", trajectories=1, progress=False)
    rows = [Row("ours: page of one trajectory", one.bytes / 1e3, "kB")]
    with sync_playwright() as playwright:
        path = next(
            found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))
        )
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for size, rounds in SIZES.items():
            ours = explore(secret, data, folder / f"ours-{size}.html", trajectories=size, progress=False)
            content = unpack(ours.path.read_text(encoding="utf-8"))
            peer = plotly_page(content["trajectories"], folder / f"plotly-{size}.html")
            rows += beside(browser, size, ours.path, peer, rounds)
        browser.close()
    return rows


def beside(browser: Browser, size: int, ours: Path, peer: Path, rounds: int) -> list[Row]:
    """Pages of so many trajectories: bytes, and how long they take to load, in turn."""
    contenders = {
        "ours": partial(load, browser, ours, "html[data-ready]"),
        "plotly": partial(load, browser, peer, ".main-svg .trace"),
    }
    shown = interleaved(contenders, rounds)
    mine, theirs, of = ours.stat().st_size, peer.stat().st_size, f"of {size:,} trajectories"
    return [
        Row(f"ours: page {of}", mine / 1e3, "kB", "<= 2,000 kB" if size == 50 else ""),
        Row(f"plotly: page {of}, library included", theirs / 1e3, "kB"),
        Row(f"size {of}, ours over plotly", mine / theirs, "x", "< 0.2x" if size == 50 else ""),
        Row(f"ours: from navigation until it can be used, {size:,}", shown["ours"], "ms"),
        Row(f"plotly: from navigation until it is drawn, {size:,}", shown["plotly"], "ms"),
        Row(f"loading {of}, plotly over ours", shown["plotly"] / shown["ours"], "x"),
    ]


def load(browser: Browser, path: Path, ready: str) -> float:
    """Milliseconds from navigation until an element is there, in a browser profile of its own."""
    context = browser.new_context()
    page = context.new_page()
    # The page's own clock, looked at as soon as the element appears: how long it takes us to ask does not count.
    page.add_init_script(
        "new MutationObserver((_, seen) => { if (document.querySelector('" + ready + "')) "
        "{ seen.disconnect(); window.readyAt = performance.now(); } })"
        ".observe(document, { childList: true, subtree: true, attributes: true });"
    )
    page.goto(path.as_uri(), timeout=LONGEST)
    page.wait_for_selector(ready, state="attached", timeout=LONGEST)
    found = float(page.evaluate("window.readyAt"))
    context.close()
    return found


def plotly_page(entries: list[dict[str, Any]], path: Path) -> Path:
    """Rewards, predictions, attention, potential and shaped reward of each trajectory, picked from a menu; no maze."""
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=5, cols=1, shared_xaxes=True)
    per_entry = 5
    for number, entry in enumerate(entries):
        steps = list(range(1, entry["steps"] + 1))
        rewards = dict(map(tuple, entry["rewards"]))
        row = entry["attention"][0] if entry["attention"] else {"to": [], "weights": []}
        zeros = [0.0] * len(steps)
        traces = [
            graph_objects.Bar(x=[t + 1 for t in row["to"]], y=[weight / 1e4 for weight in row["weights"]]),
            graph_objects.Bar(x=steps, y=[rewards.get(t, 0.0) for t in range(entry["steps"])]),
            graph_objects.Scatter(x=steps, y=[chance / 255 for chance in entry["chances"][-1]]),
            graph_objects.Scatter(x=steps, y=entry.get("potential", zeros), line_shape="hv"),
            graph_objects.Bar(x=steps, y=entry.get("shaping", zeros)),
        ]
        for place, trace in enumerate(traces, 1):
            trace.visible = number == 0
            figure.add_trace(trace, row=place, col=1)
    buttons = [
        {
            "label": f"Episode {entry['episode']}",
            "method": "update",
            "args": [{"visible": [i // per_entry == number for i in range(per_entry * len(entries))]}],
        }
        for number, entry in enumerate(entries)
    ]
    figure.update_layout(updatemenus=[{"buttons": buttons}], showlegend=False)
    figure.write_html(path, include_plotlyjs=True)
    return path
