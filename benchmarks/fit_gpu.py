"""Updates and fits on a GPU: how much of an update is kernels, and whether bf16 costs credit quality.

In three steps, of which only the second needs a GPU, and there only Python, PyTorch and NumPy:

    python -m benchmarks.fit_gpu --prepare fit_gpu.npz           # data, and the pure Python packages that are imported
    OUT=. PYTHONPATH=src python -m benchmarks.fit_gpu --data fit_gpu.npz --limit 70     # writes $OUT/fit_gpu.json
    python -m benchmarks.fit_gpu --render fit_gpu.json           # writes benchmarks/results/fit_gpu.{json,md}

In the results, kernels_ms is the time of the kernels of an update, and kernel_share that over the time of the update
without a profiler; GFLOP are the products of an update, beside what two large matrices reach; peak_MB is the memory of
tensors on the GPU.

What is measured is written down at once: whatever ends the second step early, what was measured before stays. Fits run
beside each other, one process each, after everything that is timed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.bounds import flop_of, gemm_peak

Array = NDArray[Any]
Cell = dict[str, Any]

NAME = "fit_gpu"
PACKAGES = ("gymnasium", "cloudpickle", "farama_notifications", "lazy_loader")  # pure Python; read out of the archive
EPISODES, ASIDE = 4_000, 500
TRIGGERS = {"triggers": 3, "prizes": 1}
DATA_SEED, ASIDE_SEED = 0, 1_000_000
SIDE, NOISE = 16, 40  # pixels that a cell is drawn with, and shades of noise
PICTURE_EPISODES = 1_500
MODELS: dict[str, dict[str, Any]] = {"default": {}, "pictures": {"filters": (16, 16)}}
PRECISIONS = ("float32", "bf16")
SEEDS, UPDATES, PICTURE_UPDATES = 3, 1_500, 1_000
UPDATES_TIMED = 30, 200, 20  # to warm up, timed, profiled
LONG_EPISODES, LONG_STEPS, LONG_UPDATES = 4, 10_000, 5
AT_ONCE = 6  # fits
_GEMM = 8192  # rows and columns of the matrices of the GEMM peak


def prepare(path: Path) -> None:
    """Write the trajectories, true triggers included, and the packages to one archive."""
    import secret_rl as srl

    arrays: dict[str, Array] = {}
    for name, count, seed in (("source", EPISODES, DATA_SEED), ("aside", ASIDE, ASIDE_SEED)):
        data = srl.collect(
            "secret_rl/Triggers-v0", count, seed=seed, success_share=0.25, env_options=TRIGGERS, progress=False
        )
        columns = {
            "observations": data.observations, "actions": data.actions, "rewards": data.rewards,
            "terminated": data.terminated, "truncated": data.truncated, "offsets": data.offsets,
            "truth": data.annotations["trigger_activated"],
        }  # fmt: skip
        arrays |= {f"{name}.{key}": np.asarray(value) for key, value in columns.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            folder = Path(str(import_module(package).__file__)).parent
            for source in sorted(folder.rglob("*.py")):
                archive.write(source, source.relative_to(folder.parent))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def read(path: Path, name: str, pictures: bool, episodes: int | None = None) -> Any:
    """Trajectories of the archive, the first ``episodes``; as pictures, each cell is a noisy square of pixels."""
    from gymnasium import spaces

    from secret_rl.trajectories import Trajectories

    with np.load(path, allow_pickle=False) as stored:
        columns = {key.removeprefix(f"{name}."): stored[key] for key in stored.files if key.startswith(f"{name}.")}
    offsets, truth, seen = columns.pop("offsets"), columns.pop("truth"), columns.pop("observations")
    offsets = offsets[: None if episodes is None else episodes + 1]
    steps = int(offsets[-1])
    shape, high = seen.shape[1:], 1
    if pictures:
        seen, shape, high = drawn(seen[:steps]), (3 * SIDE, 3 * SIDE, 3), 255
    space = spaces.Box(0, high, shape, np.uint8)
    rest = {key: column[:steps] for key, column in columns.items()}
    return Trajectories(
        observations=seen[:steps], **rest, offsets=offsets, observation_space=space,
        action_space=spaces.Discrete(4), annotations={"truth": truth[:steps]},
    )  # fmt: skip


def drawn(seen: Array) -> Array:
    """(steps, 3, 3, 3) cells as noisy pictures."""
    pictures = (seen * np.uint8(255 - NOISE)).repeat(SIDE, 1).repeat(SIDE, 2)
    pictures += np.random.default_rng(DATA_SEED).integers(0, NOISE, pictures.shape, np.uint8)
    return pictures


def long_data() -> Any:
    """Episodes of 10,000 steps: whether an early cue was there decides rewards from then on."""
    from gymnasium import spaces

    from secret_rl.trajectories import Trajectories

    rng, episodes = np.random.default_rng(DATA_SEED), []
    for number in range(LONG_EPISODES):
        seen = rng.integers(2, 60, LONG_STEPS)
        seen[LONG_STEPS // 10] = number % 2
        paid = rng.random(LONG_STEPS) < 0.01
        paid[: LONG_STEPS // 5] = False
        seen[paid] = 60
        rewards = np.where(paid, 1.0 - 2 * (number % 2), 0.0)
        episodes.append({"observations": seen, "actions": rng.integers(0, 4, LONG_STEPS), "rewards": rewards})
    return Trajectories.from_episodes(episodes, observation_space=spaces.Discrete(61), action_space=spaces.Discrete(4))


def trainer_of(data: Any, device: torch.device, precision: str, distributed: bool = False, **options: Any) -> Any:
    """A trainer of a new model on some trajectories, all steps weighted alike."""
    from secret_rl.credit.reward_classes import RewardClasses
    from secret_rl.credit.secret.group import Group
    from secret_rl.credit.secret.method import Secret
    from secret_rl.credit.secret.model import RewardPredictor
    from secret_rl.credit.secret.tokens import Tokens
    from secret_rl.credit.secret.training import Trainer
    from secret_rl.trajectories.spaces import to_json

    secret = Secret(precision=precision, device=device.type, **options)
    classes = RewardClasses.of(np.asarray(data.rewards), np.arange(data.steps))
    specs = to_json(data.observation_space), to_json(data.action_space)
    torch.manual_seed(0)
    model = RewardPredictor(*specs, len(classes), secret.model_options)
    tokens = Tokens.of(data, classes).to_device(device)
    everything, evenly = np.arange(len(data)), np.ones(len(data))
    group = Group.join(device, distributed)
    return Trainer(model, tokens, everything, evenly, secret.training_options, 0, device, group)


def speed(data: Any, device: torch.device, model: str, precision: str, updates: tuple[int, int, int]) -> Cell:
    """Seconds of an update, and of the kernels in it."""
    warm_up, timed, profiled = updates
    trainer = trainer_of(data, device, precision, **MODELS[model])
    trainer.train(warm_up)
    update = _timed(lambda: trainer.train(timed), device) / timed
    rows, steps = _sizes(trainer)
    kernels, launches, copies = profile(lambda: trainer.train(profiled), device)
    work = flop_of(lambda: trainer.train(profiled)) / profiled
    on_gpu, bf16 = device.type == "cuda", precision == "bf16"
    peak = gemm_peak(device.type, _GEMM if on_gpu else _GEMM // 16, torch.bfloat16 if bf16 else torch.float32)
    return {
        "model": model, "precision": precision, "batch": trainer.batch_size, "steps": steps, "tokens": rows,
        "update_ms": 1e3 * update, "updates_per_s": 1 / update, "kernels_ms": 1e3 * kernels / profiled,
        "copies_ms": 1e3 * copies / profiled, "kernels": launches / profiled,
        "kernel_share": kernels / profiled / update, "GFLOP": work / 1e9, "GFLOP_per_s": work / update / 1e9,
        "GEMM_peak_GFLOP_per_s": peak / 1e9,
    }  # fmt: skip


def _sizes(trainer: Any) -> tuple[float, float]:
    """Tokens that are encoded and steps that are predicted in an update, on average."""
    batches = [trainer.tokens.batch(trainer._episodes_of(step)) for step in range(4)]
    return (
        statistics.mean(len(batch.rows.first) for batch in batches),
        statistics.mean(batch.index.numel() for batch in batches),
    )


def profile(work: Callable[[], object], device: torch.device) -> tuple[float, int, float]:
    """Seconds of kernels, how many there were, and seconds of copies to and from the GPU; 0 without one."""
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CUDA] if device.type == "cuda" else [ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        work()
        _wait(device)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    kernels = [event["dur"] for event in events if event.get("cat") == "kernel"]
    copies = [event["dur"] for event in events if str(event.get("cat")).startswith("gpu_mem")]
    return sum(kernels) / 1e6, len(kernels), sum(copies) / 1e6


def long_episodes(device: torch.device, precision: str) -> Cell:
    """Seconds and memory of updates on episodes of 10,000 steps, and of reading credit out."""
    data = long_data()
    trainer = trainer_of(data, device, precision)
    trainer.train(1)
    _peak(device)
    update = _timed(lambda: trainer.train(LONG_UPDATES), device) / LONG_UPDATES
    memory = _peak(device)

    def read_out() -> None:
        batch = trainer.tokens.batch(np.arange(1), device)
        times = torch.arange(LONG_STEPS - 100, LONG_STEPS, device=device)[None]
        with torch.no_grad():
            encoded = trainer.model.prepare(trainer.model.encode_steps(batch.rows))
            trainer.model.predict_rows(encoded, batch.index, times)

    read_out()
    rows = _timed(read_out, device)
    return {
        "steps": LONG_STEPS, "precision": precision, "episodes_per_update": trainer.batch_size,
        "update_ms": 1e3 * update, "peak_MB": memory / 1e6, "credit_of_100_rewards_ms": 1e3 * rows,
    }  # fmt: skip


def _peak(device: torch.device) -> int:
    """Bytes that tensors took at most since the last call; 0 without a GPU."""
    if device.type != "cuda":
        return 0
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


def _timed(work: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def quality(path: str, device: str, model: str, precision: str, seed: int, updates: int, episodes: int) -> Cell:
    """Credit on data held aside, after so many updates of a whole fit."""
    from secret_rl.credit.secret.method import Secret
    from secret_rl.evaluation.quality import credit_quality

    torch.set_num_threads(1)
    pictures, start = model == "pictures", time.perf_counter()
    source = read(Path(path), "source", pictures, episodes)
    aside = read(Path(path), "aside", pictures, min(episodes, ASIDE))
    loaded = time.perf_counter() - start
    options = {**MODELS[model], "steps": updates, "precision": precision, "seed": seed, "device": device}
    secret = Secret(**options).fit(source, progress=False)
    assert secret.report is not None
    found = credit_quality(secret.attribute(aside, rewards="positive", progress=False), aside)
    return {
        "model": model, "precision": precision, "seed": seed, "updates": updates, "kept": secret.report.steps,
        "average_precision": found.average_precision, "precision_at_0.2": found.precision, "recall": found.recall,
        "coverage": found.coverage, "rows": found.rows, "gain": secret.report.gain.share,
        "validation_loss": min(entry["validation_loss"] for entry in secret.report.curve),
        "seconds": secret.report.seconds, "reading_s": loaded,
    }  # fmt: skip


def measure(path: Path, limit: float, tiny: bool) -> None:
    """Measure all there is time for."""
    start = time.monotonic() - _age()
    sys.path.append(str(path.resolve()))  # for the packages in it, where they are not installed
    from secret_rl.processes import WorkerPool

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    record = _about(device, limit)
    target = Path(os.environ.get("OUT", ".")) / f"{NAME}.json"

    def keep(part: str, work: Callable[[], Cell]) -> None:
        """Measure, and write down what came of it; what fails leaves the rest to be measured."""
        try:
            cell = work()
            record[part].append(cell)
        except Exception as error:
            cell = {part: f"{type(error).__name__}: {error}"}
            record["failed"].append(cell)
        record["ended_s"] = time.monotonic() - start
        print(f"{record['ended_s']:5.1f} s  {part}: {json.dumps(cell)}", flush=True)
        temporary = target.with_suffix(".writing")
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        temporary.replace(target)

    episodes, picture_episodes = (60, 60) if tiny else (EPISODES, PICTURE_EPISODES)
    for model, count in zip(MODELS, (episodes, picture_episodes), strict=True):
        data = read(path, "source", model == "pictures", count)
        for precision in PRECISIONS:
            keep("speed", partial(speed, data, device, model, precision, (1, 2, 2) if tiny else UPDATES_TIMED))
    if not tiny:
        for precision in PRECISIONS:
            keep("long", partial(long_episodes, device, precision))
    cells = list(_cells(path, device, tiny))
    try:
        with WorkerPool(min(AT_ONCE, os.cpu_count() or 1)) as pool:
            waiting = {pool.submit(quality, *cell): cell for cell in cells}
            for done in as_completed(waiting, timeout=max(1.0, limit - (time.monotonic() - start))):
                keep("quality", done.result)
    except TimeoutError:
        print(f"{limit:.0f} s are over: {len(cells) - len(record['quality'])} of {len(cells)} fits are missing")


def _cells(path: Path, device: torch.device, tiny: bool) -> Iterator[tuple[Any, ...]]:
    """The fits, those of the default model first."""
    sizes = ((20, 60), (20, 60)) if tiny else ((UPDATES, EPISODES), (PICTURE_UPDATES, PICTURE_EPISODES))
    for model, (updates, episodes) in zip(MODELS, sizes, strict=True):
        for seed in range(1 if tiny else SEEDS):
            for precision in PRECISIONS:
                yield str(path), device.type, model, precision, seed, updates, episodes


def _age() -> float:
    """Seconds since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def _about(device: torch.device, limit: float) -> dict[str, Any]:
    from benchmarks.results_file import machine

    on = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    about = {"date": datetime.now(UTC).date().isoformat(), **machine(), "device": on, "cuda": torch.version.cuda}
    about["machine"] = f"{on}; {about['machine'].replace(', one used', '')}"
    return {
        **about,
        "python": platform.python_version(),
        "limit_s": limit,
        "speed": [],
        "long": [],
        "quality": [],
        "failed": [],
    }


def render(path: Path) -> None:
    """Write the record and a page beside the other results."""
    from benchmarks.results_file import RESULTS, Row, write

    record = json.loads(path.read_text(encoding="utf-8"))
    parts = {part: record.pop(part) for part in ("speed", "long", "quality")}
    rows = []
    for cell in parts["speed"]:
        what = f"{cell['model']} model, {cell['precision']}"
        rows.append(Row(f"{what}: an update", cell["update_ms"], "ms", "", cell["kernels_ms"], "its kernels alone"))
        rows.append(Row(f"{what}: share of it that is kernels", cell["kernel_share"]))
        peak = cell["GEMM_peak_GFLOP_per_s"]
        rows.append(Row(f"{what}: products", cell["GFLOP_per_s"], "GFLOP/s", "", peak, "GEMM peak"))
    for model, precision, cells in _by_model(parts["quality"]):
        found = statistics.mean(cell["average_precision"] for cell in cells)
        rows.append(Row(f"{model} model, {precision}: average precision, mean of {len(cells)} seeds", found))
    command = f"python -m benchmarks.{NAME} --data {NAME}.npz --limit {record['limit_s']:.0f}"
    title = f"Updates and fits on a GPU: {record['device']}"
    write(NAME, title, rows, {**record, "command": command, "measured": parts})
    lines = [f"# {title}", "", f"`{command}`, {record['date']}, {record['machine']}, Python {record['python']}, "]
    lines[-1] += f"PyTorch {record['versions']['torch']}; rendered by `python -m benchmarks.{NAME} --render`."
    for part, heading in _HEADINGS.items():
        if parts[part]:
            lines += ["", f"## {heading}", "", *_table(parts[part])]
    (RESULTS / f"{NAME}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


_HEADINGS = {
    "speed": f"Updates: {UPDATES_TIMED[1]} timed, then {UPDATES_TIMED[2]} profiled",
    "long": f"Updates on episodes of {LONG_STEPS:,} steps, memory of tensors on the GPU",
    "quality": f"Credit on {ASIDE} episodes held aside, fits beside each other ({AT_ONCE} at once)",
}


def _by_model(cells: list[Cell]) -> Iterator[tuple[str, str, list[Cell]]]:
    for model in MODELS:
        for precision in PRECISIONS:
            mine = [cell for cell in cells if (cell["model"], cell["precision"]) == (model, precision)]
            if mine:
                yield model, precision, mine


def _table(cells: list[Cell]) -> list[str]:
    order = sorted(cells, key=lambda cell: (cell.get("model", ""), cell["precision"] != PRECISIONS[0]))
    shown = [[f"{v:,.3f}" if isinstance(v, float) else str(v) for v in cell.values()] for cell in order]
    return [f"| {' | '.join(line)} |" for line in ([*cells[0]], ["---"] * len(cells[0]), *shown)]


def main() -> None:
    """Prepare, measure or render."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prepare", type=Path, metavar="FILE", help="write the archive")
    what.add_argument("--data", type=Path, metavar="FILE", help="measure with this archive")
    what.add_argument("--render", type=Path, metavar="JSON", help="write the page")
    parser.add_argument("--limit", type=float, default=70.0, help="seconds after which no more is measured")
    parser.add_argument("--tiny", action="store_true", help="as little as possible, to try it out")
    given = parser.parse_args()
    if given.prepare:
        prepare(given.prepare)
    elif given.data:
        measure(given.data, given.limit, given.tiny)
    else:
        render(given.render)


if __name__ == "__main__":
    main()
