"""The part of a report that is about agents: learning curves with intervals, drawn together where that is fair."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from secret_rl.evaluation import Bootstrap, Estimate, LearningCurves, compare
from secret_rl.report.html import Html, element, table
from secret_rl.report.learning_curves import plot_learning_curves
from secret_rl.report.runs import Run
from secret_rl.report.style import svg_of


def learned_sections(runs: Sequence[Run]) -> Iterator[Html]:
    """Tabular agents, then deep ones."""
    groups = _same_tasks([run for run in runs if run.curves is not None])
    if groups:
        yield element("h2", "Learning curves")
    for group in groups:
        yield from _learned(group)
    deep = [run for run in runs if run.deep is not None and len(run.deep)]
    if deep:
        yield element("h2", "Learning curves of deep agents")
        yield from _deep(deep)


def _same_tasks(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs whose baseline is the same to the bit: the same tasks and the same agents, so that all can be compared."""
    groups: list[list[Run]] = []
    for run in runs:
        home = next((group for group in groups if _alike(_curves(group[0]), _curves(run))), None)
        if home is None:
            groups.append([run])
        else:
            home.append(run)
    return groups


def _curves(run: Run) -> LearningCurves:
    assert run.curves is not None
    return run.curves


def _alike(one: LearningCurves, other: LearningCurves) -> bool:
    name = one.names[0]
    return name in other.returns and np.array_equal(one[name], other[name])


def _learned(group: Sequence[Run]) -> Iterator[Html]:
    curves, window = _joined(group), max(run.window for run in group)
    content = group[0].comparison if len(group) == 1 else None
    bootstrap = _bootstrap(curves)
    yield element("h3", ", ".join(run.name for run in group))
    if bootstrap is None:
        curves, bootstrap = _twice(curves), Bootstrap("seeds")
        yield element("p", "One agent: there is no interval.", kind="note")
    elif content is None:
        content = compare(curves, curves.names[0], bootstrap=bootstrap).to_json()
    drawn = plot_learning_curves(curves, window=min(window, curves.episodes), bootstrap=bootstrap)
    yield element("figure", Html(svg_of(drawn)))
    if content is not None:
        yield from _compared(content)


def _joined(group: Sequence[Run]) -> LearningCurves:
    """The curves of runs in the same tasks; conditions of one name that differ are told apart by their run."""
    if len(group) == 1:
        return _curves(group[0])
    returns: dict[str, Any] = {}
    for run in group:
        for name, array in _curves(run).returns.items():
            if name in returns and not np.array_equal(returns[name], array):
                name = f"{name}, {run.name}"
            returns[name] = array
    return LearningCurves(returns)


def _bootstrap(curves: LearningCurves) -> Bootstrap | None:
    if curves.mazes > 1:
        return Bootstrap("both")
    return Bootstrap("seeds") if curves.seeds > 1 else None


def _twice(curves: LearningCurves) -> LearningCurves:
    """One run as two, for an interval of no width."""
    return LearningCurves({name: np.repeat(array, 2, axis=1) for name, array in curves.returns.items()})


def _compared(content: Mapping[str, Any]) -> Iterator[Html]:
    """The comparison with the baseline, from its JSON."""
    rows, threshold = content["conditions"], content.get("threshold")
    header = ["condition", "mean return", "IQM", f"ratio to {content['baseline']}", "P(improvement)"]
    header += ["reached", "episodes to threshold"] if threshold else []
    cells = []
    for name, row in rows.items():
        cell = [name, _estimate(row["area"], 3), _estimate(row["area_iqm"], 3)]
        cell += [_estimate(row["ratio"], 2), _estimate(row["improvement"], 2)]
        if threshold:
            median = row["episodes_to_threshold"]
            cell += [f"{row['share_reached']:.0%}", "not reached" if median is None else f"{median:,.0f}"]
        cells.append(cell)
    yield table(header, cells)
    bootstrap = content["bootstrap"]
    size = f"{content['mazes']:,} mazes x {content['seeds']:,} seeds x {content['episodes']:,} {content['unit']}"
    notes = [
        f"{size}; unshaped discounted return, mean over training, then over runs.",
        f"{bootstrap['confidence']:.0%} bootstrap intervals, {bootstrap['draws']:,} draws.",
        *([f"Threshold: {threshold}; median over all runs."] if threshold else []),
    ]
    yield element("p", " ".join(notes), kind="note")


def _estimate(content: Mapping[str, float | None] | None, digits: int) -> str:
    """An estimate in words, from its JSON; what is not there is undefined, or a bound that does not exist."""
    if content is None:
        return ""
    value, low, high = (content[name] for name in ("value", "low", "high"))
    bounds = (np.inf if bound is None else bound for bound in (low, high))
    told = Estimate(np.nan if value is None else value, *bounds)
    return f"{told:.{digits}f}"


def _deep(runs: Sequence[Run]) -> Iterator[Html]:
    """A figure for all agents that were tested at the same steps; runs that differ in their seed alone are one."""
    by_steps: dict[tuple[int, ...], dict[str, list[Run]]] = {}
    for run in runs:
        assert run.deep is not None
        settings = {name: value for name, value in run.settings.items() if name != "seed"}
        same = by_steps.setdefault(tuple(run.deep.steps.tolist()), {})
        same.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    for steps, groups in by_steps.items():
        panels, rows = {}, []
        for group in groups.values():
            name = group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more seeds"
            curves = LearningCurves({name: _agents(group)})
            panels[name] = _twice(curves) if curves.seeds == 1 else curves
            means = curves[name][0].mean(0)  # (tests,)
            rows.append([name, str(len(group)), f"{means.mean():.3f}", f"{means[-1]:.3f}"])
        together: Any = panels
        if len({curves.seeds for curves in panels.values()}) == 1:
            together = LearningCurves({name: curves[name] for name, curves in panels.items()})
        drawn = plot_learning_curves(
            together, bootstrap=Bootstrap("seeds"), spacing=list(steps), xlabel="environment steps"
        )
        yield element("figure", Html(svg_of(drawn)))
        yield table(["agent", "seeds", "mean return", "final return"], rows)
    yield element(
        "p", "Unshaped discounted returns in tests, mean over all tests and in the last one. Intervals: 95% bootstrap "
        "over seeds; of a single agent, over the episodes of a test.", kind="note",
    )  # fmt: skip


def _agents(group: Sequence[Run]) -> Any:
    """(1, runs, tests) mean returns of agents; of a single agent (1, episodes of a test, tests)."""
    deep = [run.deep for run in group if run.deep is not None]
    if len(deep) == 1:
        return deep[0].discounted.T[None]
    return np.stack([curve.discounted.mean(1) for curve in deep])[None]
