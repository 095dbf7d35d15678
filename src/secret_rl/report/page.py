"""One HTML page about one or several runs: settings, data, training, credit quality, learning curves and verdicts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl.atomic import replace_text
from secret_rl.checks import printable
from secret_rl.evaluation import Bootstrap, LearningCurves
from secret_rl.report.figures import plot_concentration, plot_learning_curves, plot_training, svg_of
from secret_rl.report.runs import FORMAT, WINDOW, Run, doubt_of, load_runs, verdict_of

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('reports need the report extra: pip install "secret-rl[report]"') from missing

_EXPLORER = "explorer.html"  # linked where it lies beside the report


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page about runs, whole or not at all.

    ``runs`` are folders left by ``secret-rl`` or by ``train(folder=...)``, and models.
    """
    if not runs:
        raise ValueError("no run to report: name at least one folder or model")
    loaded = load_runs([Path(run) for run in runs])
    with FORMAT.reading(Path(", ".join(run.name for run in loaded))):  # loading does not check every value
        text = report_page(loaded, _EXPLORER if Path(out).with_name(_EXPLORER).is_file() else None)
    replace_text(out, text)
    return Path(out)


def report_page(runs: Sequence[Run], explorer: str | None = None) -> str:
    """The page as text; with a link to a credit explorer, if there is one."""
    prefix = {run.name: f"{run.name}: " if len(runs) > 1 else "" for run in runs}
    quality = {f"{prefix[run.name]}{name}": found for run in runs for name, found in run.quality.items()}
    training = {run.name: run.fit.curve for run in runs if run.fit is not None and run.fit.curve}
    names = dict.fromkeys(name for run in runs for name in run.settings)
    settings = [[name, *(_show(run.settings.get(name)) for run in runs)] for name in names]
    environment = Environment(loader=PackageLoader("secret_rl.report"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    # With the sign, a value that is missing is an error that names it.
    environment.filters |= {"fmt": lambda number, spec: format(+number, spec), "show": _show}
    page = environment.get_template("report.html").render(
        title=runs[0].name if len(runs) == 1 else f"{len(runs)} runs",
        runs=runs,
        explorer=explorer,
        prefix=prefix,
        facts=list(dict.fromkeys(name for run in runs for name, value in run.facts.items() if value is not None)),
        settings=settings,
        differences=[row for row in settings if len(set(row[1:])) > 1],
        training=_svg(plot_training(training)) if training else None,
        quality=quality,
        concentration=_svg(plot_concentration({k: q.concentration for k, q in quality.items()})) if quality else None,
        learning={
            run.name: _svg(plot_learning_curves(curves, window=min(WINDOW, curves.episodes), bootstrap=how.bootstrap))
            for run in runs
            if (curves := run.curves) is not None and (how := run.comparison) is not None
        },
        deep=_deep_learning([run for run in runs if run.deep is not None and len(run.deep)]),
        doubt_of=doubt_of,
        verdict_of=verdict_of,
    )
    return printable(page)  # names may hold control characters


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
            # (runs, tests): of one agent, the episodes of a test are the runs.
            agents = tests[0].T if len(tests) == 1 else np.stack([returns.mean(1) for returns in tests])
            panels[name] = LearningCurves({name: np.resize(agents, (1, max(2, len(agents)), len(steps)))})
            means = agents.mean(0)  # (tests,)
            rows.append([name, str(len(group)), f"{means.mean():.3f}", f"{means[-1]:.3f}"])
        drawn: LearningCurves | Mapping[str, LearningCurves] = panels
        if len({curves.seeds for curves in panels.values()}) == 1:
            drawn = LearningCurves({name: curves[name] for name, curves in panels.items()})
        figure = plot_learning_curves(
            drawn, bootstrap=Bootstrap("seeds"), spacing=list(steps), xlabel="environment steps"
        )
        found.append({"figure": _svg(figure), "rows": rows})
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
