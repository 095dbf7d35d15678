"""Stores larger than memory: 1 GB and 10 GB of pictures read and learned from by processes that may hold 1 GB.

Reading stands beside a plain sequential read of the same files, each after the page cache was dropped where that is
allowed. And how pictures are compressed: size against speed, of pictures of the 3D world and of MiniGrid.
"""

import io
import json
import lzma
import math
import os
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import secret_rl as srl
from benchmarks import limits
from benchmarks.results_file import Row, machine, write
from secret_rl.credit.secret import memoryless

GIGABYTES = (1, 10)
LIMIT = 1 << 30  # of a process, page cache included
SHARD_BYTES = 250_000_000
PICTURE, LENGTH = (84, 84, 4), 100  # as of Atari games; steps of an episode
BATCH = 16
FIT = {"steps": 20, "batch_size": 8, "units": 16, "filters": (2,), "validation": 0.03}
UPDATES_WITHOUT_MEMORY = 100  # of the predictor without memory; 600 where time does not matter


def run() -> None:
    """Measure and write down."""
    rows = codecs()
    with tempfile.TemporaryDirectory(dir=os.environ.get("STORE_FOLDER")) as folder:
        rows += reading(Path(folder))
    more = {"machine": machine()["machine"].removesuffix(", one used") + ", one used and one that reads"}
    write("large_store", "Stores larger than memory", rows, more)


def reading(folder: Path) -> list[Row]:
    """Figures of reading and fitting."""
    limit = LIMIT if limits.can_limit() else None
    rows = [Row("limit of 1 GiB enforced, page cache included", limit is not None)]
    peaks = []
    for size in GIGABYTES:
        store = folder / str(size)
        made(store, size)
        plain = _cold("plain", store, limit)
        streamed = _cold("stream", store, limit)
        fitted = _cold("fit", store, limit)
        print(size, plain.answer, streamed.answer, fitted.answer, flush=True)
        rows.append(Row(f"{size} GB: fit ends within the limit", fitted.answer is not None, asked="yes"))
        if plain.answer is None or streamed.answer is None or fitted.answer is None:
            continue
        peaks.append((streamed.answer["peak"], fitted.answer["peak"]))
        rows += [
            Row(f"{size} GB: plain sequential read", plain.answer["rate"] / 1e6, "MB/s"),
            Row(f"{size} GB: shuffled batches of {BATCH} episodes", streamed.answer["rate"] / 1e6, "MB/s"),
            Row(f"{size} GB: batches over plain read", streamed.answer["rate"] / plain.answer["rate"], "x"),
            Row(f"{size} GB: batches, peak resident memory", streamed.answer["peak"] / 1e6, "MB"),
            Row(f"{size} GB: fit, peak resident memory", fitted.answer["peak"] / 1e6, "MB"),
            Row(f"{size} GB: fit, wall time", fitted.answer["seconds"], "s"),
            Row(f"{size} GB: fit, processor time", fitted.answer["cpu"], "s"),
            Row(f"{size} GB: fit, bytes read", fitted.answer["read"] / 1e9, "GB"),
        ]
    for name, (small, large) in zip(
        ("batches", "fit"), zip(*peaks, strict=True) if len(peaks) > 1 else (), strict=False
    ):
        grown = large / small
        rows.append(Row(f"{name}: memory at {GIGABYTES[1]} GB over {GIGABYTES[0]} GB", grown, "x", "0.9x to 1.1x"))
    return rows


def made(store: Path, gigabytes: int) -> None:
    """Shards of noise, of which one picture decides the last reward."""
    episodes = gigabytes * 10**9 // (math.prod(PICTURE) * LENGTH)
    spaces = {"observation_space": gym.spaces.Box(0, 255, PICTURE, np.uint8)}
    spaces |= {"action_space": gym.spaces.Discrete(2)}
    each = SHARD_BYTES // (math.prod(PICTURE) * LENGTH)
    for number, first in enumerate(range(0, episodes, each)):
        rng = np.random.default_rng([gigabytes, number])
        batch = []
        for _ in range(min(each, episodes - first)):
            pictures = rng.integers(0, 128, (LENGTH, *PICTURE), np.uint8)
            at, actions, rewards = int(rng.integers(LENGTH // 2)), rng.integers(2, size=LENGTH), np.zeros(LENGTH)
            pictures[at, :8, :8], pictures[-1, -8:, -8:] = 255, 255
            rewards[-1] = 1 if actions[at] else -1
            batch.append({"observations": pictures, "actions": actions, "rewards": rewards, "terminated": True})
        srl.Trajectories.from_episodes(batch, **spaces).save(store / f"noise-{number:05d}")


def _cold(job: str, store: Path, limit: int | None) -> limits.Run:
    """A measurement after what was read before is forgotten."""
    os.sync()
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1")
    return limits.run(["-m", "benchmarks.large_store", job, str(store)], limit)


def main(job: str, store: str) -> None:
    """One measurement."""
    import_module("secret_rl.trajectories.store")
    import_module("secret_rl.trajectories.streaming")
    start, answer = time.perf_counter(), {}
    if job == "plain":
        size = 0
        buffer = bytearray(8 << 20)
        for path in sorted(Path(store).rglob("*.npy")):
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    size += count
        answer = {"rate": size / (time.perf_counter() - start)}
    elif job == "stream":
        data = srl.Trajectories.load(store, verify=False)
        size = sum(sum(a.nbytes for a in batch.columns().values()) for batch in data.batches(BATCH, seed=0))
        answer = {"rate": size / (time.perf_counter() - start)}
    else:
        data = srl.Trajectories.load(store, verify=False)
        memoryless._UPDATES = UPDATES_WITHOUT_MEMORY
        srl.Secret(device="cpu", **FIT).fit(data, progress=False)
        answer = {"cpu": time.process_time()}
        answer["read"] = int(Path("/proc/self/io").read_text().split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.perf_counter() - start, **answer, "peak": peak}))


Codec = tuple[int, Callable[[Any], bytes], Callable[[bytes, tuple[int, ...]], Any]]


def codecs() -> list[Row]:
    """Size and speed of ways to compress pictures; each is (pictures together, pack, unpack)."""
    from PIL import Image

    def png(pictures: Any) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pictures[0]).save(file, "PNG", compress_level=1)
        return file.getvalue()

    def of(raw: bytes, shape: tuple[int, ...]) -> Any:
        return np.frombuffer(raw, np.uint8).reshape(shape)

    def xor(pictures: Any) -> bytes:
        return zlib.compress(np.concatenate([pictures[:1], pictures[1:] ^ pictures[:-1]]).tobytes(), 6)

    unzip = lambda raw, shape: of(zlib.decompress(raw), shape)  # noqa: E731
    ways: dict[str, Codec] = {
        "zlib 1, each": (1, lambda pictures: zlib.compress(pictures.tobytes(), 1), unzip),
        "zlib 6, each (ours)": (1, lambda pictures: zlib.compress(pictures.tobytes(), 6), unzip),
        "zlib 6, eight together": (8, lambda pictures: zlib.compress(pictures.tobytes(), 6), unzip),
        "zlib 6, eight, changes": (8, xor, lambda raw, shape: np.bitwise_xor.accumulate(unzip(raw, shape), 0)),
        "PNG 1, each": (1, png, lambda raw, shape: np.asarray(Image.open(io.BytesIO(raw))).reshape(shape)),
        "lzma 0, eight together": (
            8,
            lambda pictures: lzma.compress(pictures.tobytes(), preset=0),
            lambda raw, shape: of(lzma.decompress(raw), shape),
        ),
    }
    rows = []
    for name, data in pictures().items():
        whole = np.ascontiguousarray(data.observations)
        for way, (together, pack, unpack) in ways.items():
            parts = [whole[i : i + together] for i in range(0, len(whole), together)]
            start = time.process_time()
            packed = [pack(part) for part in parts]
            writing, start = time.process_time() - start, time.process_time()
            equal = all(np.array_equal(unpack(raw, part.shape), part) for raw, part in zip(packed, parts, strict=True))
            assert equal, way
            reading_ = time.process_time() - start
            rows += [
                Row(f"{name}, {way}: smaller by", whole.nbytes / sum(map(len, packed)), "x"),
                Row(f"{name}, {way}: write", whole.nbytes / writing / 1e6, "MB/s"),
                Row(f"{name}, {way}: read and compare", whole.nbytes / reading_ / 1e6, "MB/s"),
            ]
    return rows


def pictures() -> dict[str, Any]:
    """Random play."""
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    def grid() -> Any:
        return ImgObsWrapper(RGBImgPartialObsWrapper(gym.make("MiniGrid-DoorKey-8x8-v0"), tile_size=8))

    return {
        "3D world": srl.collect("secret_rl/KeysDoors-v0", 4, env_options={"max_steps": 300}),
        "MiniGrid": srl.collect(grid, 8, max_episode_steps=150),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
