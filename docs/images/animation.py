"""The animation at the top of the README: ``secret-rl demo``, then ``python -m docs.images.animation``.

Left, an episode of random play in a maze the demo's model never saw, and the attention of that model; right, the
demo's learning curves. Everything that moves is CSS: where it does not run, or is not wanted, the end is shown.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import secret_rl as srl
from secret_rl.atomic import replace_text
from secret_rl.evaluation.statistics import Bootstrap, aggregate

OUT = Path(__file__).parent / "animation.svg"
SECONDS, BEGIN, STEP = 17.0, 0.8, 0.14  # of all, before the first step, and of each step
WINDOW = 50  # episodes that a point of a learning curve is the mean of
FIRST_SEED = 2_000_000  # mazes that the demo neither learns credit nor judges it in
CELL, LEFT, TOP = 30, 28, 72  # of the maze
LINE = 392  # height of the time line
NAMES = {"none": "without credit", "value": "value of 1,000 trajectories of the maze", "OnlineCredit": "with credit"}
PLOT = (560, 76, 372, 310)  # x, y, width, height of the learning curves

STYLE = """
svg { --paper: #fff; --ink: #1f2328; --quiet: #656d76; --line: #d0d7de; --floor: #f0f2f5; --credit: #c2410c }
@media (prefers-color-scheme: dark) {
  svg { --paper: #161b22; --ink: #e6edf3; --quiet: #9da7b1; --line: #3d444d; --floor: #21262d; --credit: #fb923c }
}
text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink) }
.title { font-size: 16px; font-weight: 600 } .quiet { fill: var(--quiet) } .small { font-size: 12px }
.credit { fill: var(--credit); font-weight: 600 } .end { text-anchor: end } .mid { text-anchor: middle }
.drawn { fill: none; stroke-dasharray: 1 1 } .over { stroke: var(--paper); stroke-width: 4px; paint-order: stroke }
"""


@dataclass
class Episode:
    """What happened, and what earned the reward at its end."""

    size: int
    places: list[tuple[int, int]]
    """(row, column) of the agent before the first step and after each."""
    switches: dict[tuple[int, int], int]
    """The step that activated each."""
    prize: tuple[int, int]
    attention: NDArray[np.float32]
    """(steps,)"""


@dataclass
class Drawing:
    """Parts of the picture, and the moments at which they appear."""

    parts: list[str] = field(default_factory=list)
    rules: dict[str, str] = field(default_factory=dict)

    def add(self, part: str) -> None:
        """Append an element."""
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Append words."""
        self.add(f'<text x="{x:g}" y="{y:g}" class="{kind}">{words}</text>')

    def during(self, start: float, end: float = SECONDS, kept: bool = True) -> str:
        """The class of what is seen between two times; ``kept``: also where nothing moves."""
        name = f"s{start * 100:.0f}-{end * 100:.0f}"
        seen = [(0, 0), (share(start) - 0.4, 0), (share(start), 1)]
        seen += [(share(end), 1), (min(100, share(end) + 0.4), 0), (100, 0)] if end < SECONDS else [(100, 1)]
        frames = " ".join(f"{max(at, 0):.2f}% {{ opacity: {opacity} }}" for at, opacity in seen)
        self._animate(name, frames, "" if kept else "opacity: 0;")
        return name

    def draw(self, name: str, start: float, end: float, lengths: Sequence[float] = (0.0, 1.0)) -> str:
        """The class of a path of ``pathLength`` 1 that is drawn between two times: so much of it at even moments."""
        moments = [0.0, *np.linspace(share(start), share(end), len(lengths)).tolist(), 100.0]
        frames = zip(moments, [0.0, *lengths, 1.0], strict=True)
        self._animate(name, " ".join(f"{at:.2f}% {{ stroke-dashoffset: {1 - drawn:.3f} }}" for at, drawn in frames))
        return f"drawn {name}"

    def _animate(self, name: str, frames: str, otherwise: str = "") -> None:
        self.rules[name] = (
            f".{name} {{ {otherwise} animation: {name} {SECONDS:g}s linear infinite }} @keyframes {name} {{ {frames} }}"
        )

    def svg(self, width: int, height: int, words: str) -> str:
        """The whole file."""
        still = "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }"
        style = "\n".join([STYLE.strip(), *self.rules.values(), still])
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="words">\n'
            f'<title id="words">{words}</title>\n<style>\n{style}\n</style>\n'
            f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="var(--paper)" '
            'stroke="var(--line)"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def share(time: float) -> float:
    """A time in percent of all."""
    return 100 * time / SECONDS


def first_success(secret: srl.Secret, **maze: int) -> Episode:
    """Random play in new mazes until the first success; nothing is chosen."""
    env = gym.make("secret_rl/Triggers-v0", **maze)
    for seed in count(FIRST_SEED):
        recorder, rng = srl.Recorder(env), np.random.default_rng(seed)
        _, info = recorder.reset(seed=seed)
        start = env.unwrapped.contents
        places, switches, over = [start.agent], {}, False
        while not over:
            _, reward, terminated, truncated, info = recorder.step(int(rng.integers(4)))
            places.append(env.unwrapped.contents.agent)
            if info["trigger_activated"]:
                switches[places[-1]] = len(places) - 2
            over = terminated or truncated
        if reward > 0:
            credit = secret.attribute(recorder.trajectories(), rewards="positive")
            return Episode(start.size, places, switches, start.prizes[0], credit.row(0))
    raise AssertionError("unreachable")


def centre(place: tuple[int, int]) -> tuple[float, float]:
    """Where a cell of the maze is in the picture."""
    return LEFT + CELL * (place[1] + 0.5), TOP + CELL * (place[0] + 0.5)


def draw_episode(drawing: Drawing, episode: Episode) -> float:
    """The maze, the time line and the arcs; when they are complete."""
    last = len(episode.places) - 2
    ended = BEGIN + STEP * (last + 1)
    side = CELL * episode.size
    drawing.text(LEFT, 36, "1. Which steps earned the reward?", "title")
    drawing.text(LEFT, 56, "Random play in a maze the model has never seen", "quiet small")
    drawing.add(f'<rect x="{LEFT}" y="{TOP}" width="{side}" height="{side}" fill="var(--floor)" stroke="var(--line)"/>')
    grid = "".join(f"M{LEFT} {TOP + CELL * i}h{side}M{LEFT + CELL * i} {TOP}v{side}" for i in range(1, episode.size))
    drawing.add(f'<path d="{grid}" stroke="var(--paper)" fill="none"/>')
    square = f'width="{CELL - 8}" height="{CELL - 8}" rx="4"'
    for place, step in episode.switches.items():
        x, y = (value - CELL / 2 + 4 for value in centre(place))
        drawing.add(f'<rect x="{x}" y="{y}" {square} fill="none" stroke="#dc2626" stroke-width="2"/>')
        seen = drawing.during(-1, BEGIN + STEP * (step + 1), kept=False)
        drawing.add(f'<rect x="{x}" y="{y}" {square} fill="#dc2626" class="{seen}"/>')
    x, y = centre(episode.prize)
    drawing.add(f'<circle cx="{x}" cy="{y}" r="{CELL / 2 - 4}" fill="#f472b6"/>')
    for step, (here, there) in enumerate(zip(episode.places, episode.places[1:], strict=False)):
        if here != there:
            (x1, y1), (x2, y2) = centre(here), centre(there)
            seen = drawing.during(BEGIN + STEP * (step + 1))
            drawing.add(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#ca8a04" opacity=".5" class="{seen}"/>')
    moves = " ".join(
        f"{share(BEGIN + STEP * step):.2f}% {{ transform: translate({x}px, {y}px) }}"
        for step, (x, y) in enumerate(map(centre, episode.places))
    )
    x, y = centre(episode.places[0])
    drawing.rules["walk"] = (
        f".agent {{ transform: translate({centre(episode.places[-1])[0]}px, {centre(episode.places[-1])[1]}px); "
        f"animation: walk {SECONDS:g}s linear infinite }} "
        f"@keyframes walk {{ 0% {{ transform: translate({x}px, {y}px) }} {moves} }}"
    )
    drawing.add('<circle r="8" fill="#facc15" stroke="#713f12" class="agent"/>')
    return draw_credit(drawing, episode, ended)


def draw_credit(drawing: Drawing, episode: Episode, ended: float) -> float:
    """The time line, and one arc for each step that was credited; when they are complete."""
    attention = episode.attention
    last, width = len(attention) - 1, 470
    at = [LEFT + 8 + (width - 16) * step / last for step in range(last + 1)]
    for step, x in enumerate(at):
        seen = drawing.during(BEGIN + STEP * (step + 1))
        drawing.add(f'<circle cx="{x:.1f}" cy="{LINE}" r="3" fill="var(--quiet)" class="{seen}"/>')
    drawing.text(LEFT, LINE + 28, f"{last + 1} steps", "quiet small")
    reward = drawing.during(ended)
    drawing.add(f'<circle cx="{at[-1]}" cy="{LINE}" r="7" fill="#f472b6" class="{reward}"/>')
    drawing.text(LEFT + width, LINE + 28, "+1", f"end title {reward}")
    x = LEFT + CELL * episode.size + 24
    drawing.text(x, TOP + 16, "Red: three switches.", "small quiet")
    drawing.text(x, TOP + 34, "Pink: the prize. It pays +1", "small quiet")
    drawing.text(x, TOP + 52, "after all switches, else -1.", "small quiet")
    drawing.text(x, TOP + 92, "The reward comes at the end.", f"small {reward}")
    credited = [step for step in np.argsort(-attention).tolist() if attention[step] > 0.05]
    time = ended + 0.6
    said = drawing.during(time)
    drawing.text(x, TOP + 132, "Attention of the model:", f"small {said}")
    for number, step in enumerate(credited):
        far = at[-1] - at[step]
        height = 26 + 56 * far / (at[-1] - at[0])
        arc = f"M{at[-1]:.1f} {LINE - 8}C{at[-1] - far * 0.15:.1f} {LINE - 8 - height:.1f}"
        arc += f" {at[step] + far * 0.15:.1f} {LINE - 8 - height:.1f} {at[step]:.1f} {LINE - 8}"
        kind = drawing.draw(f"arc{number}", time, time + 0.6)
        drawing.add(
            f'<path d="{arc}" pathLength="1" stroke="var(--credit)" stroke-width="{1 + 6 * attention[step]:.1f}" '
            f'class="{kind}"/>'
        )
        seen = drawing.during(time + 0.6)
        drawing.add(f'<circle cx="{at[step]:.1f}" cy="{LINE}" r="5" fill="var(--credit)" class="{seen}"/>')
        drawing.text(at[step], LINE + 24, f"{attention[step]:.0%}", f"mid small credit {seen}")
        x_cell, y_cell = centre(episode.places[step + 1])
        drawing.add(
            f'<rect x="{x_cell - CELL / 2}" y="{y_cell - CELL / 2}" width="{CELL}" height="{CELL}" rx="6" fill="none" '
            f'stroke="var(--credit)" stroke-width="3" class="{seen}"/>'
        )
        what = "a switch" if step in episode.switches.values() else "no switch"
        drawing.text(x, TOP + 152 + 18 * number, f"{attention[step]:.0%} on step {step}, {what}", f"small {seen}")
        time += 0.9
    rest = 1 - float(attention[credited].sum())
    words = f"{rest:.0%} on the {last + 1 - len(credited)} other steps"
    drawing.text(x, TOP + 152 + 18 * len(credited), words, f"small {drawing.during(time)}")
    return time


def draw_curves(drawing: Drawing, curves: srl.LearningCurves, start: float) -> None:
    """Learning curves with their intervals, drawn between ``start`` and the pause before the end."""
    x0, y0, width, height = PLOT
    end = SECONDS - 3.5
    low, high = -0.2, 1.0

    def places(episode: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([x0 + width * episode / curves.episodes, y0 + height * (high - value) / (high - low)])

    def path(points: NDArray[np.float64]) -> str:
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points.tolist())

    drawing.text(x0, 36, "2. With credit, agents learn new mazes", "title")
    words = f"Q-learning, {curves.mazes} held-out mazes, {curves.seeds} agents each: true return"
    drawing.text(x0, 56, words, "quiet small")
    for value in (0.0, 0.5, 1.0):
        y = y0 + height * (high - value) / (high - low)
        drawing.add(f'<line x1="{x0}" x2="{x0 + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        drawing.text(x0 - 8, y + 4, f"{value:g}", "end quiet small")
    drawing.text(x0, y0 + height + 24, "0", "quiet small")
    drawing.text(x0 + width, y0 + height + 24, f"{curves.episodes:,} episodes", "end quiet small")
    colours = {"none": "var(--quiet)", "value": "#3b82f6", "OnlineCredit": "var(--credit)"}
    for name, colour in colours.items():
        band = aggregate(curves[name], window=WINDOW, points=60, bootstrap=Bootstrap(draws=2_000))
        line = places(band.episodes, band.value)
        area = np.concatenate([places(band.episodes, band.low), places(band.episodes, band.high)[::-1]])
        drawing.add(f'<path d="{path(area)}Z" fill="{colour}" fill-opacity=".13" class="{drawing.during(end)}"/>')
        lengths = np.append(0.0, np.hypot(*np.diff(line, axis=0).T).cumsum())
        kind = drawing.draw(f"curve-{name}", start, end, (lengths / lengths[-1]).tolist())
        drawing.add(f'<path d="{path(line)}" pathLength="1" stroke="{colour}" stroke-width="2.5" class="{kind}"/>')
        words = f"{NAMES[name]}: {curves[name].mean():.2f} on average"
        y = line[-1, 1] + (-10 if name != "none" else 24)
        drawing.add(
            f'<text x="{x0 + width}" y="{y:.1f}" class="end small over {drawing.during(end)}" '
            f'style="fill: {colour}">{words}</text>'
        )


def main(folder: Path = Path("runs/demo")) -> None:
    """Draw what a demo left in its folder."""
    if not (folder / "curves.safetensors").is_file():
        sys.exit(f"{folder} holds no finished demo: run `secret-rl demo --out {folder}` first")
    secret = srl.Secret.load(folder / "credit.safetensors")
    curves = srl.LearningCurves.load(folder / "curves.safetensors")
    drawing = Drawing()
    complete = draw_episode(drawing, first_success(secret, size=8, triggers=3, prizes=1))
    draw_curves(drawing, curves, complete + 0.6)
    words = "An episode in which a model credits the switches, and learning curves with and without credit"
    replace_text(OUT, drawing.svg(960, 440, words))
    print(f"saved       {OUT} ({OUT.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
