"""Fitting and attributing episodes of 2,500 to 20,000 steps: memory and time, beside attention to all steps at once.

The peer is this library before attention was worked out in blocks: ``git worktree add FOLDER 9d74bfd``, and that folder
in the environment variable BEFORE. Each measurement has a process of its own, with one thread.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import secret_rl
from benchmarks import limits
from benchmarks.results_file import Row, machine, write

LENGTHS = (2_500, 5_000, 10_000, 20_000)
COMPARED = 10_000  # of this length, credit is compared
EPISODES = 64
TAUGHT_EPISODES, TAUGHT_LENGTH = 1_000, 100
LIMIT = 2 << 30  # of a whole fit
MOST_BEFORE = 14 << 30  # memory that the peer is given
SEED = 0
_OURS = Path(secret_rl.__file__).parent.parent


def run() -> None:
    """Measure and write down."""
    before = os.environ.get("BEFORE")
    if before is None:
        sys.exit("give the library before blocks: git worktree add FOLDER 9d74bfd, and that folder as BEFORE")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), {"before": f"{Path(before).absolute()}/src", "after": str(_OURS)})
    write(
        "long_episodes",
        "Episodes of up to 20,000 steps",
        rows,
        {"machine": machine()["machine"], "command": "BEFORE=FOLDER python -m benchmarks long_episodes"},
    )


def measure(folder: Path, code: dict[str, str]) -> list[Row]:
    """Every figure of this benchmark."""
    model = folder / "model.safetensors"
    for length, episodes in ((TAUGHT_LENGTH, TAUGHT_EPISODES), *((length, EPISODES) for length in LENGTHS)):
        trajectories(episodes, length).save(folder / str(length))
    taught = _child("teach", folder / str(TAUGHT_LENGTH), model, source=code["before"])  # both can read it
    rows = [Row("history gain of the model whose credit is compared", taught.answer["gain"])]
    for length in LENGTHS:
        for job, more in (("update", []), ("attribute", [model])):
            for name, source in code.items():
                if name == "before" and length > COMPARED:
                    continue
                out = folder / f"{name}-{length}.npz"
                limit = MOST_BEFORE if name == "before" else None
                done = _child(job, folder / str(length), *more, out, source=source, limit=limit)
                label = f"{length:,} steps, {job}, {name}"
                if done.answer is None:
                    rows.append(Row(f"{label}: ends within {MOST_BEFORE / 2**30:.0f} GiB", False))
                    continue
                rows.append(Row(f"{label}: peak memory", done.answer["peak"] / 1e6, "MB"))
                rows.append(Row(f"{label}: time", done.answer["seconds"], "s"))
        found = [np.load(path) for name in code if (path := folder / f"{name}-{length}.npz").exists()]
        if len(found) == 2:
            apart = max(float(np.abs(found[0][key] - found[1][key]).max()) for key in found[0])
            rows.append(Row(f"{length:,} steps: rewards attributed", len(found[0]["evidence"])))
            rows.append(Row(f"{length:,} steps: credit differs by at most", apart * 1e6, "millionths", "<= 10"))
    for length in LENGTHS[2:]:
        done = _child("whole", folder / str(length), limit=LIMIT)
        label = f"{length:,} steps: fit and attribute {EPISODES} episodes"
        asked = "yes" if length == COMPARED else ""
        rows.append(Row(f"{label} within 2 GiB (limit enforced)", done.answer is not None, asked=asked))
        if done.answer is not None:
            rows.append(Row(f"{label}: peak memory", done.answer["peak"] / 1e6, "MB", "<= 2,147 MB"))
            rows.append(Row(f"{label}: time", done.answer["seconds"], "s"))
    return rows


def trajectories(episodes: int, length: int) -> Any:
    """In the first half, a switch is seen once; its action decides the last reward. The rest is noise."""
    import secret_rl as srl

    rng = np.random.default_rng([SEED, length])
    made = []
    for _ in range(episodes):
        observations = rng.random((length, 4), np.float32)
        observations[:, 2:] = 0
        at = int(rng.integers(length // 2))
        observations[at, 2] = observations[-1, 3] = 1
        actions, rewards = rng.integers(2, size=length), np.zeros(length)
        rewards[-1] = 1 if actions[at] else -1
        made.append({"observations": observations, "actions": actions, "rewards": rewards, "terminated": True})
    return srl.Trajectories.from_episodes(made)


def _child(job: str, *words: Path, source: Path | str = _OURS, limit: int | None = None) -> limits.Run:
    return limits.run(["-m", "benchmarks.long_episodes", job, *map(str, words)], limit, {"PYTHONPATH": str(source)})


def main(job: str, data_path: str, *paths: str) -> None:
    """One measurement, of the library that is imported here."""
    import secret_rl as srl

    data, answer = srl.Trajectories.load(data_path), {}
    secret = srl.Secret(seed=SEED, device="cpu", steps=2)
    start = time.perf_counter()
    if job == "teach":
        secret = srl.Secret(seed=SEED, device="cpu").fit(data, progress=False)
        answer["gain"] = secret.report.gain.share
        secret.save(paths[0])
    elif job == "update":
        found = secret.estimate(data)
        answer = {"seconds": found.seconds / found.updates / 1.5, "batch": found.batch_size}
    elif job == "attribute":
        credit = srl.Secret.load(paths[0], device="cpu").attribute(data, rewards="positive", progress=False)
        np.savez(paths[1], weights=credit.weights, evidence=credit.evidence, episode=credit.episode, step=credit.step)
    else:
        secret.fit(data, progress=False).attribute(data, rewards="positive", decided=True, progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.perf_counter() - start, **answer, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
