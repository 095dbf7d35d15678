"""Minari data sets, read and written without an environment."""

import json
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl.trajectories.nested import Array, map_arrays
from secret_rl.trajectories.store import save_blocks
from secret_rl.trajectories.types import Episode, Trajectories

try:
    import minari
    from minari.data_collector import EpisodeBuffer
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('Minari data sets need the minari extra: pip install "secret-rl[minari]"') from missing

_META = "secret_rl"  # data-set metadata: where our data came from, and whether it had final observations
_PER_EPISODE = "secret_rl_episode"  # info group that holds our episode annotations
_EPISODES_AT_A_TIME = 256


def to_minari(data: Trajectories, dataset_id: str, **metadata: Any) -> Any:
    """Write a Minari data set, losslessly: ``minari.load_dataset(dataset_id)`` reads it, ``from_minari`` too.

    States and annotations become infos, with a row for the reset first, as Minari has it. Data without final
    observations repeats the last one, since Minari asks for one. ``metadata`` (author, description, env, ...) is passed
    on to Minari.
    """
    for path in data.columns():
        if "%2F" in path or "." in path.split("/"):
            raise ValueError(f"Minari cannot store {path!r}, which is a path in HDF5: rename the entry")
    final = {name: getattr(data, name) is not None for name in ("final_observations", "final_states")}
    ours = json.dumps({"meta": dict(data.meta), **final})
    if dataset_id in minari.list_local_datasets():
        raise FileExistsError(f"Minari has a data set {dataset_id!r} already: choose another id or delete that one")
    try:
        with warnings.catch_warnings():  # author, environment and the like are the caller's to give or not
            warnings.filterwarnings("ignore", category=UserWarning, module="minari")
            dataset = minari.create_dataset_from_buffers(
                dataset_id, (_buffer(episode) for episode in data), observation_space=data.observation_space,
                action_space=data.action_space, data_format="hdf5", jpeg_encoding=False, **metadata,
            )  # fmt: skip
    except BaseException:
        if dataset_id in minari.list_local_datasets():
            minari.delete_dataset(dataset_id)
        raise
    dataset.storage.update_metadata({_META: ours})
    return dataset


def from_minari(dataset: Any, *, out: str | Path | None = None, overwrite: bool = False) -> Trajectories:
    """Read a Minari data set, given itself or by the id of a local one.

    ``infos["state"]`` becomes the states, other numeric infos with a row per step become annotations. ``out``
    writes to that path as it reads, in bounded memory, and returns the data memory-mapped.
    """
    if isinstance(dataset, str):
        dataset = minari.load_dataset(dataset)
    ours = json.loads(dataset.storage.metadata.get(_META, "{}"))
    meta = ours.get("meta", {"minari_id": dataset.spec.dataset_id})
    blocks = _blocks(dataset, ours)
    if out is None:
        return Trajectories.concatenate(list(blocks)).with_meta(**meta)
    return Trajectories.load(save_blocks(blocks, meta, out, overwrite=overwrite), verify=False)


def _buffer(episode: Episode) -> Any:
    """An episode as Minari takes it: one more observation and state than steps."""

    def joined(rows: Array, last: Any) -> Array:
        return np.concatenate([rows, np.asarray(last, rows.dtype)[None]])

    final = episode.final_observation
    if final is None:
        final = map_arrays(lambda rows: rows[-1], episode.observations)
    infos: dict[str, Any] = {}
    if episode.states is not None:
        last = episode.states[-1] if episode.final_state is None else episode.final_state
        infos["state"] = joined(episode.states, last)
    for name, rows in episode.annotations.items():
        infos[name] = np.concatenate([np.zeros_like(rows[:1]), rows])
    if episode.episode_annotations:
        infos[_PER_EPISODE] = {name: np.asarray(v)[None] for name, v in episode.episode_annotations.items()}
    seed = episode.episode_annotations.get("seed")
    at_the_end = np.arange(len(episode)) == len(episode) - 1
    return EpisodeBuffer(
        seed=None if seed is None else int(seed),
        observations=map_arrays(joined, episode.observations, final),
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=at_the_end & episode.terminated,
        truncations=at_the_end & episode.truncated,
        infos=infos or None,
    )


def _blocks(dataset: Any, ours: Mapping[str, Any]) -> Iterator[Trajectories]:
    spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
    episodes = iter(dataset.iterate_episodes())
    names: set[str] | None = None
    while block := list(islice(episodes, _EPISODES_AT_A_TIME)):
        if names is None:
            names = {name for name, rows in (block[0].infos or {}).items() if _is_per_step(rows, len(block[0]))}
            left_out = sorted((block[0].infos or {}).keys() - names - {_PER_EPISODE})
            if left_out:
                warnings.warn(f"infos without a number per step are left out: {left_out}", stacklevel=3)
        yield Trajectories.from_episodes([_episode(episode, names, ours) for episode in block], **spaces)


def _is_per_step(rows: Any, steps: int) -> bool:
    """Whether an info holds numbers: T rows, or T + 1 with the reset's first."""
    return isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and rows.shape[:1] in ((steps,), (steps + 1,))


def _episode(episode: Any, names: set[str], ours: Mapping[str, Any]) -> dict[str, Any]:
    steps, infos = len(episode), episode.infos or {}
    kept = {name: rows for name, rows in infos.items() if name in names and _is_per_step(rows, steps)}
    observations, states = episode.observations, kept.pop("state", None)
    if not ours.get("final_observations", True):
        observations = map_arrays(lambda rows: rows[:steps], observations)
    if states is not None and not ours.get("final_states", True):
        states = states[:steps]
    return {
        "observations": observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminated": episode.terminations.astype(np.bool_),
        "truncated": episode.truncations.astype(np.bool_),
        "states": states,
        "annotations": {name: rows[len(rows) - steps :] for name, rows in kept.items()},
        "episode_annotations": {name: rows[0] for name, rows in infos.get(_PER_EPISODE, {}).items()},
    }
