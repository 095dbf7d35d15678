"""One HTML page about one or several runs: settings, data, training, credit quality, learning curves and verdicts."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl.atomic import replace_text
from secret_rl.checks import printable
from secret_rl.evaluation import Bootstrap, LearningCurves, compare
from secret_rl.report.figures import plot_concentration, plot_learning_curves, plot_training, svg_of
from secret_rl.report.record import FORMAT, doubt_of, verdict_of
from secret_rl.report.runs import Run, load_runs

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('reports need the report extra: pip install "secret-rl[report]"') from missing


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page about runs, whole or not at all.

    ``runs`` are folders left by ``secret-rl`` or by ``train(folder=...)``, folders of learning curves, and models.
    """
    loaded = load_runs([Path(run) for run in runs])
    if not loaded:
        raise ValueError("no run to report: name at least one folder or model")
    with FORMAT.reading(Path(", ".join(run.name for run in loaded))):  # loading does not check every value
        text = report_page(loaded)
    replace_text(out, text)
    return Path(out)


def report_page(runs: Sequence[Run]) -> str:
    """The page as text."""
    prefix = {run.name: f"{run.name}: " if len(runs) > 1 else "" for run in runs}
    quality = {f"{prefix[run.name]}{name}": found for run in runs for name, found in run.quality.items()}
    pictures = {f"{prefix[run.name]}{name}": png for run in runs for name, png in run.pictures.items()}
    training = {run.name: run.fit.curve for run in runs if run.fit is not None and run.fit.curve}
    environment = Environment(loader=PackageLoader("secret_rl.report"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    # With the sign, a value that is missing is an error that names it.
    environment.filters |= {"fmt": lambda number, spec: format(+number, spec), "show": _show}
    page = environment.get_template("report.html").render(
        title=runs[0].name if len(runs) == 1 else f"{len(runs)} runs",
        runs=runs,
        prefix=prefix,
        pictures={caption: b64encode(png).decode() for caption, png in pictures.items()},
        facts=list(dict.fromkeys(name for run in runs for name, value in run.facts.items() if value is not None)),
        differences=_differences([run for run in runs if run.settings]),
        training=_svg(plot_training(training)) if training else None,
        quality=quality,
        concentration=_svg(plot_concentration({k: q.concentration for k, q in quality.items()})) if quality else None,
        learning=[_learning(group) for group in _same_tasks([run for run in runs if run.curves is not None])],
        deep=_deep_learning([run for run in runs if run.deep is not None and len(run.deep)]),
        doubt_of=doubt_of,
        verdict_of=verdict_of,
    )
    return printable(page)  # names may hold control characters


def _differences(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each command of several runs, the settings that differ."""
    found = []
    for command in dict.fromkeys(run.facts.get("command") for run in runs):
        same = [run for run in runs if run.facts.get("command") == command]
        names = dict.fromkeys(name for run in same for name in run.settings)
        rows = [
            [name, *(_show(run.settings.get(name)) for run in same)]
            for name in names
            if len({json.dumps(run.settings.get(name)) for run in same}) > 1
        ]
        if len(same) > 1:
            found.append({"command": command, "runs": [run.name for run in same], "rows": rows})
    return found


def _same_tasks(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs grouped where the baseline is the same to the bit: the same tasks and agents."""
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            name, baseline = next(iter(group[0].curves.returns.items()))  # type: ignore[union-attr]
            if np.array_equal(baseline, run.curves.returns.get(name, ())):  # type: ignore[union-attr]
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _learning(group: Sequence[Run]) -> dict[str, Any]:
    """The figure and the comparison of runs in the same tasks."""
    returns: dict[str, Any] = {}
    for run in group:
        for name, array in run.curves.returns.items():  # type: ignore[union-attr]
            differs = name in returns and not np.array_equal(returns[name], array)
            returns[f"{name}, {run.name}" if differs else name] = array
    curves, window = LearningCurves(returns), max(run.window for run in group)
    comparison = group[0].comparison if len(group) == 1 else None
    single = curves.mazes == curves.seeds == 1
    bootstrap = Bootstrap("both" if curves.mazes > 1 else "seeds")
    if not single and comparison is None:
        comparison = compare(curves, curves.names[0], bootstrap=bootstrap)
    drawn = _twice(curves) if single else curves
    return {
        "runs": ", ".join(run.name for run in group),
        "single": single,
        "figure": _svg(plot_learning_curves(drawn, window=min(window, curves.episodes), bootstrap=bootstrap)),
        "table": None if comparison is None else comparison.table(),
    }


def _twice(curves: LearningCurves) -> LearningCurves:
    """One run as two, for an interval of no width."""
    return LearningCurves({name: np.repeat(array, 2, axis=1) for name, array in curves.returns.items()})


def _deep_learning(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A figure and a table for agents tested at the same steps; runs that differ in their seed alone are one."""
    by_steps: dict[tuple[int, ...], dict[str, list[Run]]] = {}
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if name != "seed"}
        groups = by_steps.setdefault(tuple(run.deep.steps.tolist()), {})  # type: ignore[union-attr]
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    found = []
    for steps, groups in by_steps.items():
        panels, rows = {}, []
        for group in groups.values():
            name = group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more seeds"
            tests = [run.deep.discounted for run in group if run.deep is not None]  # (tests, episodes) each
            agents = tests[0].T if len(tests) == 1 else np.stack([returns.mean(1) for returns in tests])
            curves = LearningCurves({name: agents[None]})  # of one agent, the episodes of a test are the runs
            panels[name] = _twice(curves) if curves.seeds == 1 else curves
            means = agents.mean(0)  # (tests,)
            rows.append([name, str(len(group)), f"{means.mean():.3f}", f"{means[-1]:.3f}"])
        drawn: LearningCurves | Mapping[str, LearningCurves] = panels
        if len({curves.seeds for curves in panels.values()}) == 1:
            drawn = LearningCurves({name: curves[name] for name, curves in panels.items()})
        how = {"bootstrap": Bootstrap("seeds"), "spacing": list(steps), "xlabel": "environment steps"}
        found.append({"figure": _svg(plot_learning_curves(drawn, **how)), "rows": rows})  # type: ignore[arg-type]
    return found


def _svg(figure: Any) -> Markup:
    return Markup(svg_of(figure))  # matplotlib escapes the texts of a figure


def _show(value: Any) -> str:
    """A setting as people read it."""
    if value is None:
        return "\N{EM DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
