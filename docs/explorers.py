"""Credit explorer pages of four tasks, in ``runs/explorers``: ``make explorers``.

``--gallery`` writes smaller pages into ``docs/gallery``, for the site; ``--pictures`` takes screenshots. Data and
models are small and made in minutes on two cores, unless models of the paper's results are on this machine: these pages
show the explorer, not how good credit can be.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from gallery.garden import Garden
from gymnasium.wrappers import FilterObservation

import secret_rl as srl
from secret_rl.report import Explored, explore

OUT = Path("runs/explorers")
GALLERY, IN_GALLERY = Path(__file__).parent / "gallery", 16  # trajectories
PAPER = Path("runs/paper/models")
IMAGES = Path(__file__).parent / "images"
MEMORY = "minigrid:MiniGrid-MemoryS7-v0"


def triggers(folder: Path, shown: int) -> Explored:
    """The paper's mazes: three switches, then the prize."""
    mazes = {"size": 8, "triggers": 3, "prizes": 1}
    data = srl.collect("secret_rl/Triggers-v0", 20_000, seed=0, success_share=0.25, env_options=mazes)
    found = PAPER / "residual-8x8-3t1p-w3-n40000-s1907-first40000-seed0.safetensors"
    model = fitted("triggers", data, found, steps=3_000, batch_size=128)
    held_out = srl.collect("secret_rl/Triggers-v0", 2_000, seed=1, success_share=0.25, env_options=mazes)
    title = "Triggers, three switches and a prize"
    return explore(model, held_out, folder / "triggers.html", trajectories=shown, title=title)


def minigrid(folder: Path, shown: int) -> Explored:
    """MiniGrid: remember the object at the start. The mission, a text that never changes, is left out."""

    def make() -> gym.Env[Any, Any]:
        return FilterObservation(gym.make(MEMORY, max_steps=80), ["image", "direction"])

    data = srl.collect(make, 2_500, seed=1)
    model = fitted("minigrid", data)
    page = folder / "minigrid.html"
    return explore(model, data, page, trajectories=shown, env=MEMORY, title="MiniGrid memory")


def keys_doors(folder: Path, shown: int) -> Explored:
    """The task in 3D: keys that pay nothing, doors that do."""
    from secret_rl.envs.keys_doors import Wanderer

    options = {"preset": "2x2-easy", "core": 2, "size": (40, 30), "frame_skip": 8, "max_steps": 300}
    data = srl.collect("secret_rl/KeysDoors-v0", 12, Wanderer, seed=2_000, env_options=options)
    data = replace(data, annotations={**data.annotations, "key_taken": data.annotations["key_picked"] > 0})
    how = {"steps": 8, "batch_size": 2, "units": 16, "filters": (4, 4), "evaluate_every": 4}
    found = next(PAPER.glob("keys_doors_credit-2x2-longer-actions-0-*.safetensors"), None)
    model = fitted("keys_doors", data, found, validation=0.2, **how)
    page = folder / "keys_doors.html"
    return explore(model, data, page, trajectories=shown, annotation="key_taken", title="Keys and doors")


def garden(folder: Path, shown: int) -> Explored:
    """A task that somebody wrote in an hour."""
    data = srl.collect(Garden, 4_000, seed=0, success_share=0.3)
    model = fitted("garden", data, steps=1_000, batch_size=64)
    held_out = srl.collect(Garden, 400, seed=1, success_share=0.3)
    page, title = folder / "garden.html", "A garden: fill the can, water the flower"
    return explore(model, held_out, page, trajectories=shown, env=lambda: Garden("rgb_array"), title=title)


def fitted(name: str, data: srl.Trajectories, found: Path | None = None, **options: Any) -> srl.Secret:
    """The model of a paper result if it is on this machine, that of an earlier call, or a new one."""
    path = OUT / f"{name}.safetensors"
    for there in (found, path):
        if there is not None and there.exists():
            return srl.Secret.load(there)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits this short warn
        model = srl.Secret(seed=0, **options).fit(data)
    model.save(path)
    return model


def take_pictures(pages: list[Path]) -> None:
    """Screenshots for the README, as PNGs of 256 colours."""
    import shutil
    from io import BytesIO

    from PIL import Image
    from playwright.sync_api import sync_playwright

    looks = [(page, "light", 1180) for page in pages]
    looks += [(page, *look) for page in pages if page.stem == "triggers" for look in (("dark", 1180), ("light", 360))]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path, scheme, width in looks:
            view = {"width": width, "height": 900 if width > 500 else 1500}
            context = browser.new_context(viewport=view, color_scheme=scheme)
            page = context.new_page()
            page.goto(path.resolve().as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            page.locator("#overview").evaluate("(overview) => { overview.open = false; }")  # what is below fits then
            page.wait_for_timeout(1000)
            name = f"explorer-{path.stem}{'-dark' if scheme == 'dark' else ''}{'-phone' if width < 500 else ''}.png"
            picture = Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT)
            picture.save(IMAGES / name, optimize=True)
            print(f"picture     {IMAGES / name}")
            context.close()
        browser.close()


def main(arguments: list[str]) -> None:
    """All pages, or those that are named."""
    tasks: dict[str, Callable[[Path, int], Explored]] = {
        "triggers": triggers,
        "minigrid": minigrid,
        "keys_doors": keys_doors,
        "garden": garden,
    }
    OUT.mkdir(parents=True, exist_ok=True)
    folder, shown = (GALLERY, IN_GALLERY) if "--gallery" in arguments else (OUT, 50)
    named = [argument for argument in arguments if not argument.startswith("--")] or list(tasks)
    pages = []
    for name in named:
        made = tasks[name](folder, shown)
        pages.append(made.path)
        print(f"saved       {made.path} ({made.bytes / 1e6:.2f} MB, {len(made.episodes)} trajectories)", flush=True)
        for note in made.notes:
            print(f"note        {note}")
    if "--pictures" in arguments:
        take_pictures(pages)


if __name__ == "__main__":
    main(sys.argv[1:])
