"""Attention over a map of keys and doors, of all times that one door was opened (appendix, attention heat map)."""

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

import secret_rl as srl
from paper import keys_doors_credit
from paper.credit_runs import RESULTS, machine
from paper.keys_doors_map import draw_map
from secret_rl.atomic import replace_text
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import COLOURS, PRESETS, Wanderer, generate
from secret_rl.envs.keys_doors.env import STATE_CELL
from secret_rl.envs.keys_doors.puzzle import CELL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP = 2_000_000  # the layout seed of a map that no credit was learned on
PIXELS = 24  # of a cell in the picture


@dataclass(frozen=True)
class HeatResult:
    """A map, and whose credit falls on it."""

    name: str
    credit: keys_doors_credit.Result
    label: str
    episodes: int

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"


def result(quick: bool) -> HeatResult:
    """The full size, or a small one for a quick look."""
    credit = keys_doors_credit.result(quick)
    if quick:
        return HeatResult("keys_doors_heat-quick", credit, "2x2", 10)
    return HeatResult("keys_doors_heat", credit, "3x3", 300)


def run(result: HeatResult, command: str, device: str = "auto") -> Path:
    """Play on the map, and gather the attention of the door that was opened most often."""
    model = result.credit.model(result.label, seed=0)
    if not model.is_file():
        keys_doors_credit.run(result.credit, command, only=result.label, device=device)
    secret = srl.Secret.load(model, device=device)
    world = {**result.credit.task(result.label).held_out.world, "layout_seed": MAP}
    data = srl.collect(
        KEYS_DOORS_ID, result.episodes, Wanderer, MAP, env_options=world, workers=os.cpu_count() or 1, progress=False
    )
    attributions = secret.attribute(data, rewards="positive", tolerance=keys_doors_credit.TOLERANCE)
    opened = np.asarray(data.annotations["door_opened"])
    door_of_row = opened[data.offsets[attributions.episode] + attributions.step]
    doors = np.bincount(door_of_row, minlength=len(COLOURS) + 1)[1:]
    if not doors.any():
        raise ValueError(f"no opened door is predicted by {model}: its credit cannot be drawn")
    door = int(doors.argmax()) + 1
    puzzle = _puzzle(result)
    shape = puzzle.width * CELL // STATE_CELL, puzzle.height * CELL // STATE_CELL
    before = np.asarray(data.states)[:, :2]
    heat = attention_by_place(attributions, before, shape, door_of_row == door)
    replace_text(result.path, json.dumps({
        "settings": _settings(result), "door": COLOURS[door - 1], "rows": int(doors[door - 1]),
        "opened": int((opened == door).sum()), "heat": [[None if np.isnan(v) else round(v, 5) for v in row]
                                                         for row in heat.tolist()],
        "machine": machine(torch.device(secret.device)), "command": command,
        "date": datetime.now(UTC).date().isoformat(),
    }) + "\n")  # fmt: skip
    return result.path


def _puzzle(result: HeatResult) -> Any:
    world = result.credit.task(result.label).held_out.world
    preset = PRESETS[world["preset"]]
    return generate(replace(preset, **{name: world[name] for name in vars(preset) if name in world}), MAP)


def _settings(result: HeatResult) -> dict[str, Any]:
    return {"map": MAP, "maps": result.label, "episodes": result.episodes, "model": result.credit.name, "seed": 0}


def figure(result: HeatResult) -> list[Path]:
    """The heat over the map, and a page that says what it shows."""
    from secret_rl.report import save_figure  # so that runs need no pictures

    if not result.path.is_file():
        raise FileNotFoundError(f"{result.path} is not there: run it first, without --analyse")
    record = json.loads(result.path.read_text(encoding="utf-8"))
    heat = np.array([[np.nan if v is None else v for v in row] for row in record["heat"]])
    picture = draw_map(_puzzle(result), pixels=PIXELS)
    drawing = plot_heat(heat.T[::-1], picture, f"what opened the {record['door']} door")
    files = save_figure(drawing, RESULTS / result.name)
    page = RESULTS / f"{result.name}.md"
    replace_text(page, "\n".join([
        "# Attention over a map", "",
        f"![Attention over the map]({files[0].name})", "",
        f"The mean attention of a step by where it was taken, of the {record['rows']} times that the "
        f"{record['door']} door was opened and its reward predicted ({record['opened']} times in all), in "
        f"{result.episodes} episodes of a wanderer on a map that no credit was learned on (`layout_seed` {MAP}). Keys "
        "are discs, doors bars, the goal a diamond. The paper shows the same for a map of its own: attention "
        "concentrates around the key that opens the door.", "",
        f"`{record['command']}`, {record['date']}, {record['machine']}.", "",
    ]))  # fmt: skip
    return [page, *files]


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Run, and draw."""
    made = result(quick)
    if not analyse_only:
        run(made, command)
    return [str(path) for path in figure(made)]


def attention_by_place(
    attributions: srl.Attributions, places: NDArray[np.int64], shape: tuple[int, int], rows: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """``shape``: the mean attention that some rows pay to a step in each place; NaN where no step was.

    ``places`` (steps, 2) are those of the steps of all trajectories, end to end.
    """
    row, step = attributions.places()
    kept = rows[row]
    flat = np.ravel_multi_index(tuple(places[step[kept]].T), shape)
    visits = np.bincount(flat, minlength=shape[0] * shape[1])
    total = np.bincount(flat, weights=attributions.weights[kept].astype(np.float64), minlength=len(visits))
    return np.asarray((total / np.where(visits, visits, np.nan)).reshape(shape))


def plot_heat(heat: NDArray[np.float64], picture: NDArray[np.uint8], title: str = "") -> "Figure":
    """A heat map over a picture: the higher, the redder and the less transparent; NaN shows the picture alone.

    ``heat`` is (rows, columns) from top to bottom, spread over the whole of ``picture`` (height, width, RGB).
    """
    from secret_rl.report import figures

    heat = np.asarray(heat, np.float64)
    if heat.ndim != 2 or picture.ndim != 3:
        raise ValueError(f"expected heat (rows, columns) and a picture (height, width, 3), got {heat.shape} and "
                         f"{picture.shape}")  # fmt: skip
    highest = np.nanmax(heat) if np.isfinite(heat).any() else 0.0
    with figures.rc_settings():
        figure, (axes,), _ = figures.panels(1, 1, width=4.0, height=4.0 * picture.shape[0] / picture.shape[1])
        extent = (0.0, float(picture.shape[1]), float(picture.shape[0]), 0.0)
        axes.imshow(picture, extent=extent)
        if highest > 0:
            alpha = 0.85 * np.nan_to_num(heat) / highest
            shown = axes.imshow(
                heat, cmap="Reds", vmin=0.0, vmax=highest, extent=extent, alpha=alpha, interpolation="nearest"
            )
            figure.colorbar(shown, ax=axes, label="mean attention", shrink=0.8)
        axes.set(title=title, xticks=[], yticks=[])
    return figure
