"""Seconds of a whole fit with default settings on all cores, where observations hardly ever repeat."""

import os
import statistics

import torch
from paper.beyond_triggers import DATA, SOURCE, judged

import secret_rl as srl
from benchmarks.results_file import Row, machine, write
from secret_rl.tasks import load_data, task_of

TASK, SEEDS, HELD_OUT_EPISODES = "unlock_clock", 5, 500


def run() -> None:
    """Fit with every seed, judge on held-out episodes, and write both down."""
    torch.set_num_threads(os.cpu_count() or 1)
    task = task_of(TASK)
    data = load_data(task, task.episodes, SOURCE, DATA).trajectories
    seconds, precision = [], []
    for seed in range(SEEDS):
        secret = srl.Secret(seed=seed, device="cpu").fit(data, progress=False)
        assert secret.report is not None
        seconds.append(secret.report.seconds)
        precision.append(judged(secret, task, HELD_OUT_EPISODES)["attention"])
        print(f"  seed {seed}: {seconds[-1]:.0f} s, average precision {precision[-1]:.3f}", flush=True)
    what = f"{TASK}, {len(data):,} episodes of {data.steps / len(data):.0f} steps"
    rows = [
        Row(f"{what}: a fit, median of {SEEDS} seeds", statistics.median(seconds), "s", "<= 60 with 2 cores"),
        Row(f"{what}: the slowest", max(seconds), "s"),
        Row("average precision on held-out episodes, the lowest", min(precision)),
    ]
    all_cores = {"machine": machine()["machine"].replace("one used", "all used")}
    write("fit", "A fit with default settings, observations that hardly repeat", rows, all_cores)
