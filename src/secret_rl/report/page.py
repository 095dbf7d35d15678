"""One HTML page of one or several runs: what was asked, what the data hold, what was learned, and how sure that is."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secret_rl.atomic import replace_text
from secret_rl.credit.diagnosis import FitReport
from secret_rl.report.concentration import plot_concentration
from secret_rl.report.html import Html, element, folded, page, picture, table
from secret_rl.report.learned import learned_sections
from secret_rl.report.record import FORMAT
from secret_rl.report.runs import Run, load_runs
from secret_rl.report.style import svg_of
from secret_rl.report.training_curves import plot_training
from secret_rl.report.verdicts import doubt_of, verdict_of

_MISSING = "\N{EM DASH}"


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page of runs, whole or not at all.

    ``runs`` are folders left by ``secret-rl`` or by ``train(folder=...)``, folders of learning curves, and models.
    """
    loaded = load_runs([Path(run) for run in runs])
    if not loaded:
        raise ValueError("no run to report: name at least one folder or model")
    with FORMAT.reading(Path(", ".join(run.name for run in loaded))):  # what is read is not all checked beforehand
        text = report_page(loaded)
    replace_text(out, text)
    return Path(out)


def report_page(runs: Sequence[Run]) -> str:
    """The page as text."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    sections = (_verdicts, _overview, _configuration, _data, _training, _quality, learned_sections)
    return page(f"secret-rl: {title}", element("h1", title), *(part for section in sections for part in section(runs)))


def _verdicts(runs: Sequence[Run]) -> Iterator[Html]:
    for run in runs:
        before = "" if len(runs) == 1 else f"{run.name}: "
        doubt = doubt_of(run.fit)
        if run.fit is not None and doubt is not None:
            yield element("p", f"{before}{run.fit.verdict}: {doubt}.", kind="banner")
        if run.verdict:
            yield element("p", f"{before}{run.verdict}", kind="verdict")
        if run.fit is not None:
            judged = [f"{quality} on {name}" for name, quality in run.quality.items()]
            words = "; ".join([verdict_of(run.fit), *judged])
            yield element("p", f"Credit model of {run.name}, {words}", kind="verdict")


def _overview(runs: Sequence[Run]) -> Iterator[Html]:
    names = list(dict.fromkeys(name for run in runs for name, value in run.facts.items() if value is not None))
    if names:
        rows = [[run.name, *(_told(run.facts.get(name)) for name in names)] for run in runs]
        yield table(["run", *names], rows)


def _configuration(runs: Sequence[Run]) -> Iterator[Html]:
    """Of several runs of a command, the settings that differ; everything is there to unfold."""
    configured = [run for run in runs if run.settings]
    if not configured:
        return
    yield element("h2", "Configuration")
    for command in dict.fromkeys(run.facts.get("command") for run in configured):
        same = [run for run in configured if run.facts.get("command") == command]
        if len(same) > 1:
            yield _differences(str(command), same)
    for run in configured:
        rows = [[name, _told(value)] for name, value in run.settings.items()]
        yield folded(f"all settings of {run.name}", table(["setting", "value"], rows))


def _differences(command: str, runs: Sequence[Run]) -> Html:
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    differing = [name for name in names if len({json.dumps(run.settings.get(name)) for run in runs}) > 1]
    if not differing:
        return element("p", f"No setting of {command} differs.", kind="note")
    rows = [[name, *(_told(run.settings.get(name)) for run in runs)] for name in differing]
    return table([f"{command}: what differs", *(run.name for run in runs)], rows)


# Title -> what to say of the summary of trajectories.
_DATA: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "episodes": lambda data: f"{data['episodes']:,}",
    "steps": lambda data: f"{data['steps']:,}",
    "mean length": lambda data: f"{data['mean_length']:.1f}",
    "returns": lambda data: f"mean {data['mean_return']:.3f}, from {data['min_return']:g} to {data['max_return']:g}",
    "rewards": lambda data: f"{data['positive_rewards']:,} positive, {data['negative_rewards']:,} negative",
    "successful": lambda data: f"{data['successful_episodes']:,} ({data['success_share']:.2%})",
    "rolled out": lambda data: _MISSING if data["drawn"] is None else f"{data['drawn']:,}",
}


def _data(runs: Sequence[Run]) -> Iterator[Html]:
    known = [(run.name, run.data) for run in runs if run.data is not None]
    if known:
        yield element("h2", "Data")
        yield table(["run", *_DATA], [[name, *(tell(data) for tell in _DATA.values())] for name, data in known])
        yield element("p", "Successful: episodes that hold a positive reward.", kind="note")


def _training(runs: Sequence[Run]) -> Iterator[Html]:
    fits = {run.name: run.fit for run in runs if run.fit is not None}
    if not fits:
        return
    yield element("h2", "Training of the credit model")
    header = ["run", "verdict", "history gain", "left open", "accuracy", "updates", "seconds"]
    rows = [
        [
            name, fit.verdict, f"{fit.history_gain:.1%}", f"{fit.uncertain:,.0f} rewards", _accuracy(fit),
            f"{fit.steps:,}", f"{fit.seconds:.0f}",
        ]
        for name, fit in fits.items()
    ]  # fmt: skip
    yield table(header, rows)
    yield element(
        "p", "History gain: of the uncertainty that the present leaves about rewards, the share that the past removes. "
        "Left open: the rewards that the present does not decide. Accuracy by the class of the reward. Gain and "
        "accuracy are of held-out trajectories.", kind="note",
    )  # fmt: skip
    curves = {name: fit.curve for name, fit in fits.items() if fit.curve}
    if curves:
        yield element("figure", Html(svg_of(plot_training(curves))))


def _accuracy(fit: FitReport) -> str:
    values = zip(fit.classes.names, fit.validation.accuracy, fit.validation.present, strict=True)
    return ", ".join(f"{value:.3f} of {name}" for name, value, here in values if here)


def _quality(runs: Sequence[Run]) -> Iterator[Html]:
    several = len(runs) > 1
    judged = {
        f"{run.name}: {name}" if several else name: quality for run in runs for name, quality in run.quality.items()
    }
    if judged:
        yield element("h2", "Credit quality")
        header = ["judged on", "precision", "recall", "average precision", "attention on events", "rewards judged",
                  "rewards predicted"]  # fmt: skip
        rows = [
            [
                name, f"{quality.precision:.3f}", f"{quality.recall:.3f}", f"{quality.average_precision:.3f}",
                f"{quality.attention_on_events:.1%}", f"{quality.rows:,}", f"{quality.coverage:.1%}",
            ]
            for name, quality in judged.items()
        ]  # fmt: skip
        yield table(header, rows)
        levels = ", ".join(sorted({f"{quality.threshold:g}" for quality in judged.values()}))
        yield element("p", f"A step counts as credited where attention is above {levels}.", kind="note")
        drawn = plot_concentration({name: quality.concentration for name, quality in judged.items()})
        yield element(
            "figure", Html(svg_of(drawn)), element("figcaption", "Attention around the steps that truly count.")
        )
    for run in runs:
        for caption, png in run.pictures.items():
            yield picture(png, f"{run.name}: {caption}" if several else caption)


def _told(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
