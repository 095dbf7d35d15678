"""Training on disk: one file that is whole at every moment, and the weights of policies. Nothing is ever pickled."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor, nn

from secret_rl.atomic import Lock, folder_lock, sweep
from secret_rl.files import Arrays, FileFormat, check_same
from secret_rl.sb3.curves import DeepCurve
from secret_rl.sb3.shaping import CreditBonusVecEnv, layers
from secret_rl.shaping.wrappers import BonusShaper

TRAINING = "training.safetensors"
_FORMAT = FileFormat("secret-rl deep training", remedy="delete the folder and train again")
_WEIGHTS = FileFormat("secret-rl policy weights", remedy="restore it or save the weights again")

_MODEL_NUMBERS = (
    "num_timesteps", "_current_progress_remaining", "_n_updates", "_n_calls", "_episode_num", "exploration_rate",
)  # fmt: skip
"""What learning counts in algorithms of Stable-Baselines3 and sb3-contrib; nothing else is set from a file."""
_BUFFER_NUMBERS = ("pos", "full")
_LONG = 200  # characters of a description; longer ones are hashed


class TrainingFile:
    """What a training resumes from, and is kept in once it is finished."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = json.loads(json.dumps({name: described(value) for name, value in settings.items()}))
        self.part, self.finished = 0, False
        """How many parts of the training are done, and whether those are all."""
        self._state: Any = None

    def read(self) -> "TrainingFile":
        """Read what is there, if anything; an error if that is another training."""
        if self._path.is_file():
            about, arrays = _FORMAT.read_arrays(self._path)
            with _FORMAT.reading(self._path):
                check_same(self._path.parent, "a training", about["settings"], self._settings)
                self.part, self.finished, self._state = about["part"], about["finished"], (about["state"], arrays)
        return self

    def save(self, model: BaseAlgorithm, curve: DeepCurve, part: int, *, finished: bool) -> None:
        """Keep everything that the next part needs; of a finished training, the agent and its curve."""
        buffer = None if finished else getattr(model, "replay_buffer", None)
        state = model_state(model)
        state["curve"] = vars(curve)
        if buffer is not None:
            state["replay"] = {"numbers": _numbers_of(buffer, _BUFFER_NUMBERS), "arrays": _buffer_arrays(buffer)}
        arrays: Arrays = {}
        about = {"settings": self._settings, "part": part, "finished": finished, "state": _packed(state, "", arrays)}
        _FORMAT.write_arrays(self._path, about, arrays, finite=False)

    def load(self, model: BaseAlgorithm) -> DeepCurve:
        """Restore a model as it was at the last save; returns the curve up to there."""
        with _FORMAT.reading(self._path):
            state, self._state = _unpacked(*self._state), None  # it may be large
            set_model_state(model, state)
            if "replay" in state:
                buffer = model.replay_buffer  # type: ignore[attr-defined]
                _set_numbers(buffer, state["replay"]["numbers"], _BUFFER_NUMBERS)
                for name, own in _buffer_arrays(buffer).items():
                    own[...] = state["replay"]["arrays"][name]
            return DeepCurve(**state["curve"])


@contextmanager
def training_file(folder: Path, settings: dict[str, Any]) -> Iterator[TrainingFile]:
    """The training in a folder, which no other process may go on with meanwhile; anyone may read a finished one."""
    file = TrainingFile(folder / TRAINING, settings)
    lock: Lock | nullcontext[None] = nullcontext()
    try:
        lock = folder_lock(folder)
    except OSError:
        if not file.read().finished:
            raise
    with lock:
        sweep(folder)
        yield file.read()


def read_training(folder: Path) -> tuple[dict[str, Any], bool, DeepCurve]:
    """The settings of the training in a folder, whether it is finished, and its curve."""
    about, arrays = _FORMAT.read_arrays(folder / TRAINING)
    curve = DeepCurve(**_unpacked(about["state"], arrays)["curve"])
    return about["settings"], about["finished"], curve


def save_weights(model: BaseAlgorithm, path: str | Path) -> Path:
    """Write the parameters of a model's policy to a safetensors file, whole or not at all."""
    arrays = {name: value.cpu().numpy() for name, value in model.policy.state_dict().items()}
    return _WEIGHTS.write_arrays(path, {"algorithm": type(model).__name__}, arrays)


def load_weights(model: BaseAlgorithm, weights: BaseAlgorithm | str | Path) -> None:
    """Give a model the policy parameters of another, or of a file that ``save_weights`` wrote.

    Target networks start as copies of the networks they follow, as they do in a new agent; optimisers stay as they are.
    """
    if isinstance(weights, BaseAlgorithm):
        origin, tensors = f"a trained {type(weights).__name__}", weights.policy.state_dict()
    else:
        origin, arrays = str(weights), _WEIGHTS.read_arrays(weights)[1]
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        model.policy.load_state_dict(tensors)
    except RuntimeError as wrong:
        raise ValueError(
            f"the weights of {origin} do not fit {type(model).__name__}: {' '.join(str(wrong).split())} "
            "Train both with the same algorithm, policy, policy_kwargs and spaces"
        ) from None
    for name, target in model.policy.named_children():
        followed = getattr(model.policy, name.removesuffix("_target"), None)
        if name.endswith("_target") and isinstance(followed, nn.Module):
            target.load_state_dict(followed.state_dict())
    if hasattr(model, "acting_policy"):  # of ExploringDQN
        model.acting_policy.load_state_dict(model.policy.state_dict())


def described(value: Any) -> Any:
    """JSON values that are equal for equal settings of a training.

    Arrays and weights count by content; classes and functions by name; potentials and shapings by what is public of
    them, credit models by their weights; other objects by their type.
    """
    description = _described(value)
    if len(str(description)) <= _LONG:
        return description
    return f"{type(value).__name__} {_hash(str(description).encode())}"


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)} {_hash(value.tobytes())}"
    if isinstance(value, Mapping):
        return {str(key): _described(part) for key, part in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, list | tuple):
        return [_described(part) for part in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    name, parts = type(value).__name__, None
    weights = getattr(value, "policy", getattr(value, "model", value))  # of an agent, or of a credit model
    if isinstance(weights, nn.Module):
        parts = weights.state_dict()
    elif isinstance(getattr(value, "values", None), Mapping):  # a table
        parts = value.values
    elif is_dataclass(value) or hasattr(value, "init") or hasattr(value, "potential"):
        parts = {part: content for part, content in vars(value).items() if not part.startswith("_")}
    return f"{type(value).__module__}.{name}" if parts is None else {name: _described(parts)}


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def model_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Parameters, optimisers, loose tensors, counters, running statistics and bonuses."""
    return {
        "parameters": model.get_parameters(),
        "tensors": {name: value.detach() for name, value in vars(model).items() if isinstance(value, Tensor)},
        "numbers": _numbers_of(model, _MODEL_NUMBERS),
        "normaliser": {
            name: [np.asarray(one.mean), np.asarray(one.var), one.count] for name, one in _statistics(model)
        },
        "bonuses": [bonus.state() for bonus in _bonuses(model)],
    }


def set_model_state(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Restore what ``model_state`` gave."""
    model.set_parameters(state["parameters"])
    with torch.no_grad():
        for name, value in state["tensors"].items():
            vars(model)[name].copy_(value)  # in place: an optimiser may hold it
    _set_numbers(model, state["numbers"], _MODEL_NUMBERS)
    for name, one in _statistics(model):
        one.mean, one.var, one.count = state["normaliser"][name]
    for bonus, kept in zip(_bonuses(model), state["bonuses"], strict=True):
        bonus.restore(kept)


def _bonuses(model: BaseAlgorithm) -> list[BonusShaper]:
    """The bonuses that an agent is paid: what they have counted belongs to its training."""
    envs = () if model.env is None else layers(model.env)
    return [layer.bonus for layer in envs if isinstance(layer, CreditBonusVecEnv)]


def _statistics(model: BaseAlgorithm) -> list[tuple[str, RunningMeanStd]]:
    """The running statistics of a model's ``VecNormalize``, by name; none without one."""
    normaliser = model.get_vec_normalize_env()
    if normaliser is None:
        return []
    seen = getattr(normaliser, "obs_rms", None)  # there is none without observations to normalise
    parts = seen if isinstance(seen, dict) else {"": seen}
    return [*((f"observations.{key}", one) for key, one in parts.items() if one), ("returns", normaliser.ret_rms)]


def _numbers_of(owner: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: vars(owner)[name] for name in names if name in vars(owner)}


def _set_numbers(owner: Any, numbers: dict[str, Any], names: tuple[str, ...]) -> None:
    vars(owner).update({name: numbers[name] for name in names if name in numbers})


def _buffer_arrays(buffer: ReplayBuffer) -> Arrays:
    """The arrays of a replay buffer, by reference: of those with a row per transition, the rows in use."""
    found: Arrays = {}
    for name, value in vars(buffer).items():
        for key, array in (value if isinstance(value, dict) else {"": value}).items():
            if isinstance(array, np.ndarray):
                in_use = array[: buffer.size()] if array.shape[:1] == (buffer.buffer_size,) else array
                found[f"{name}.{key}"] = in_use
    return found


def end_running_episodes(model: BaseAlgorithm) -> None:
    """Mark the newest transition of every environment as cut short by a time limit, unless its episode ended there."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None or buffer.size() == 0:
        return
    newest = (buffer.pos - 1) % buffer.buffer_size
    going_on = buffer.dones[newest] == 0
    buffer.dones[newest] = 1
    buffer.timeouts[newest] = np.maximum(buffer.timeouts[newest], going_on)


def _packed(value: Any, path: str, arrays: Arrays) -> Any:
    """A nest of mappings, sequences, numbers and tensors as JSON; the tensors go to ``arrays``, named by their path."""
    if isinstance(value, Tensor | np.ndarray):
        arrays[path] = value.cpu().numpy() if isinstance(value, Tensor) else value
        return {"tensor" if isinstance(value, Tensor) else "array": path}
    if isinstance(value, Mapping):
        return {"dict": [[key, _packed(part, f"{path}.{key}", arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        parts = [_packed(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any, arrays: Arrays) -> Any:
    """What ``_packed`` was given."""
    if isinstance(value, list):
        return [_unpacked(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {key: _unpacked(part, arrays) for key, part in content}
    if kind == "tuple":
        return tuple(_unpacked(content, arrays))
    return torch.from_numpy(arrays[content]) if kind == "tensor" else arrays[content]
