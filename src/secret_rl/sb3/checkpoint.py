"""Training on disk: a folder that is whole at every moment, and the weights of policies. Nothing is ever pickled."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor, nn

from secret_rl.atomic import Lock, folder_lock, is_locked_or_left, sweep_folder
from secret_rl.files import Arrays, FileFormat, check_same, finite_number, whole_number
from secret_rl.sb3.buffers import unflattened
from secret_rl.sb3.curves import DeepCurve
from secret_rl.sb3.envs import layers
from secret_rl.sb3.exploring import ExploringDQN
from secret_rl.sb3.shaping import CreditBonusVecEnv
from secret_rl.shaping.bonus import BonusShaper
from secret_rl.trajectories.spaces import problem_with_rows

STATE = "state.json"
_REMEDY = "delete the folder and train again"
FORMAT = FileFormat("secret-rl deep training", remedy=_REMEDY)
_ARRAYS = FileFormat("secret-rl deep training's arrays", remedy=_REMEDY)
_WEIGHTS = FileFormat("secret-rl policy weights", remedy="restore it or save the weights again")

MODEL_NUMBERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_current_progress_remaining", "_n_updates",
    "_n_calls", "_episode_num", "exploration_rate", "start_time",
)  # fmt: skip
"""What learning counts in algorithms of Stable-Baselines3 and sb3-contrib; nothing else is set from a file."""
BUFFER_NUMBERS = ("pos", "full", "_credited_count")
_LONG = 200  # characters of a description; longer ones are hashed


class TrainingFolder:
    """Files that training resumes from; ``state.json`` is replaced last, and only the files it names count.

    One process at a time holds the folder of an unfinished training, until the block ends.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self._settings = json.loads(json.dumps({name: described(value) for name, value in settings.items()}))
        self._state = self._open()
        self._lock: Lock | None = None
        if not self.finished:
            self._lock = folder_lock(folder)
            self._state = self._open()  # now that nobody else writes there
        elif is_locked_or_left(folder):  # whoever finished it was killed while cleaning up
            with suppress(OSError), folder_lock(folder):
                self._sweep()

    @property
    def part(self) -> int:
        """How many parts of the training are done."""
        return int(self._state.get("part", 0))

    @property
    def finished(self) -> bool:
        """Whether training is over."""
        return bool(self._state.get("finished", False))

    def save(self, model: BaseAlgorithm, curve: DeepCurve, part: int, *, finished: bool) -> None:
        """Keep everything that the next part needs; of a finished training, the agent and its curve."""
        buffer = None if finished else getattr(model, "replay_buffer", None)
        kinds = ("model", "curve") if buffer is None else ("model", "curve", "replay")
        files = {kind: f"{kind}-{part}.safetensors" for kind in kinds}
        state, arrays = model_state(model)
        bonuses = _packed([bonus.state() for bonus in _bonuses(model)], "bonuses", arrays)
        _ARRAYS.write_arrays(self.folder / files["model"], {}, arrays, finite=False)
        curve.save(self.folder / files["curve"])
        if buffer is not None:
            _ARRAYS.write_arrays(self.folder / files["replay"], {}, _buffer_arrays(buffer), finite=False)
        self._state = {
            "fingerprint": self._settings, "part": part, "finished": finished, "files": files, "model": state,
            "replay": None if buffer is None else _numbers_of(buffer, BUFFER_NUMBERS),
            "bonuses": bonuses,
        }  # fmt: skip
        FORMAT.write_json(self.folder / STATE, self._state)
        self._sweep()

    def load(self, model: BaseAlgorithm) -> DeepCurve:
        """Restore a model as it was at the last save; returns the curve up to there."""
        with FORMAT.reading(self.folder / STATE):
            of_model = _ARRAYS.read_arrays(self._file("model"))[1]
            set_model_state(model, self._state["model"], of_model)
            curve = DeepCurve.load(self._file("curve"))
            if self._state["replay"] is not None:
                arrays = _ARRAYS.read_arrays(self._file("replay"), finite=False)[1]
                _set_buffer(model.replay_buffer, self._state["replay"], arrays)  # type: ignore[attr-defined]
            for bonus, state in zip(_bonuses(model), _unpacked(self._state["bonuses"], of_model), strict=True):
                bonus.restore(state)
        return curve

    def __enter__(self) -> "TrainingFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def _file(self, kind: str) -> Path:
        """A file that the state names, if it is there."""
        path = self.folder / Path(self._state["files"][kind]).name
        if not path.is_file():
            raise ValueError(f"{path} is gone")
        return path

    def _sweep(self) -> None:
        """Remove what the newest state does not name, and what a killed process left half written."""
        sweep_folder(self.folder)
        for path in list(self.folder.iterdir()):
            ours = path.name.startswith(("model-", "curve-", "replay-"))
            if ours and path.name not in self._state["files"].values():
                path.unlink(missing_ok=True)

    def _open(self) -> dict[str, Any]:
        path = self.folder / STATE
        if not path.is_file():
            return {}
        state = FORMAT.read_json(path)
        with FORMAT.reading(path):
            check_same(self.folder, "a training", dict(state["fingerprint"]), self._settings)
            whole_number(state["part"])
            _true_or_false("finished", state["finished"])
        return state


def _bonuses(model: BaseAlgorithm) -> list[BonusShaper]:
    """The bonuses that an agent is paid: what they have counted belongs to its training."""
    envs = () if model.env is None else layers(model.env)
    return [layer.bonus for layer in envs if isinstance(layer, CreditBonusVecEnv)]


def save_weights(model: BaseAlgorithm, path: str | Path) -> Path:
    """Write the parameters of a model's policy to a safetensors file, whole or not at all."""
    arrays = {name: value.detach().cpu().numpy() for name, value in model.policy.state_dict().items()}
    about = {"algorithm": type(model).__name__, "policy": type(model.policy).__name__}
    return _WEIGHTS.write_arrays(path, about, arrays)


def load_weights(model: BaseAlgorithm, weights: BaseAlgorithm | str | Path) -> None:
    """Give a model the policy parameters of another, or of a file that ``save_weights`` wrote.

    Target networks start as copies of the networks they follow, as they do in a new agent; optimisers stay as they are.
    """
    if isinstance(weights, BaseAlgorithm):
        origin, tensors = f"a trained {type(weights).__name__}", weights.policy.state_dict()
    elif Path(weights).is_file():
        origin, arrays = str(weights), _WEIGHTS.read_arrays(weights)[1]
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    else:
        raise FileNotFoundError(f"{weights} is not a file: expected weights written by save_weights")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    try:
        model.policy.load_state_dict(tensors)
    except RuntimeError as wrong:  # by then PyTorch has loaded what fits
        model.policy.load_state_dict(before)
        raise ValueError(
            f"the weights of {origin} do not fit {type(model).__name__}: {' '.join(str(wrong).split())} "
            "Train both with the same algorithm, policy, policy_kwargs and spaces"
        ) from None
    for name, target in model.policy.named_children():
        followed = getattr(model.policy, name.removesuffix("_target"), None)
        if name.endswith("_target") and isinstance(followed, nn.Module):
            target.load_state_dict(followed.state_dict())
    if isinstance(model, ExploringDQN):
        model.acting_policy.load_state_dict(model.policy.state_dict())


def described(value: Any) -> Any:
    """JSON values that are equal for equal settings of a training.

    Arrays and weights count by content; classes and functions by name; other objects by their type.
    """
    description = _described(value)
    if len(str(description)) <= _LONG:
        return description
    return f"{type(value).__name__} {_hash(str(description).encode())}"


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {_hash(value.tobytes())}"
    if isinstance(value, Mapping):
        return {str(key): _described(part) for key, part in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, list | tuple | set | frozenset):
        return [_described(part) for part in (value if isinstance(value, list | tuple) else sorted(value, key=str))]
    name = type(value).__name__
    if isinstance(value, BaseAlgorithm | nn.Module):
        network = value if isinstance(value, nn.Module) else value.policy
        return {name: _described(dict(network.state_dict()))}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: {field.name: _described(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(getattr(value, "values", None), Mapping):  # a table
        return {name: _described(value.values)}
    if hasattr(value, "potential"):  # a shaping
        return {name: [_described(getattr(value, part, None)) for part in ("potential", "discount", "scale")]}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def model_state(model: BaseAlgorithm) -> tuple[dict[str, Any], Arrays]:
    """(JSON values, arrays) of parameters, optimisers, loose tensors, counters and running statistics."""
    arrays: Arrays = {}
    statistics = _statistics(model).items()
    state = {
        "parameters": _packed(dict(model.get_parameters()), "parameters", arrays),
        "tensors": _packed({k: v for k, v in vars(model).items() if isinstance(v, Tensor)}, "tensors", arrays),
        "numbers": _numbers_of(model, MODEL_NUMBERS),
        "normaliser": _packed(
            {k: [np.asarray(v.mean), np.asarray(v.var), v.count] for k, v in statistics}, "normaliser", arrays
        ),
    }
    return state, arrays


def set_model_state(model: BaseAlgorithm, state: dict[str, Any], arrays: Arrays) -> None:
    """Restore what ``model_state`` gave."""
    parameters = _unpacked(state["parameters"], arrays)
    model.set_parameters(parameters)
    for name in parameters:
        _check_optimiser(attrgetter(name)(model))
    with torch.no_grad():
        for name, value in _unpacked(state["tensors"], arrays).items():
            own = vars(model)[name]
            if not isinstance(own, Tensor) or own.shape != value.shape:
                raise ValueError(f"{name} is not a tensor of shape {tuple(value.shape)} of {type(model).__name__}")
            own.copy_(value)  # in place: an optimiser may hold it
    _set_numbers(model, state["numbers"], MODEL_NUMBERS)
    statistics = _unpacked(state["normaliser"], arrays)
    for name, one in _statistics(model).items():
        mean, var = (np.asarray(part, np.float64) for part in statistics[name][:2])
        if mean.shape != np.shape(one.mean) or var.shape != np.shape(one.var):
            raise ValueError(f"running statistics of shape {mean.shape}, expected {np.shape(one.mean)}")
        one.mean, one.var, one.count = mean, var, finite_number(statistics[name][2])


def _statistics(model: BaseAlgorithm) -> dict[str, RunningMeanStd]:
    """The running statistics of a model's ``VecNormalize``, by name; none without one."""
    normaliser: VecNormalize | None = model.get_vec_normalize_env()
    if normaliser is None:
        return {}
    seen = getattr(normaliser, "obs_rms", None)  # there is none without observations to normalise
    parts = seen if isinstance(seen, dict) else {"": seen}
    of_observations = {f"observations.{key}": one for key, one in parts.items() if one is not None}
    return of_observations | {"returns": normaliser.ret_rms}


def _check_optimiser(optimiser: Any) -> None:
    """ValueError where the memory of an optimiser does not fit its parameters; other things pass."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        return
    for parameter, memory in optimiser.state.items():
        for name, value in memory.items():
            fits = value.shape in (parameter.shape, ()) and value.is_floating_point()
            counts = name == "step" or name.endswith("_sq")  # steps, and means of squares
            if not fits or (counts and bool((value < 0).any())):
                raise ValueError(f"an optimiser's {name} is {value.dtype} of shape {tuple(value.shape)}, or negative")


def _numbers_of(owner: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: vars(owner)[name] for name in names if name in vars(owner)}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def _set_numbers(owner: Any, numbers: dict[str, Any], names: tuple[str, ...]) -> None:
    """Set attributes from a file: only those in ``names``, and only to values of their type."""
    for name, value in numbers.items():
        if name not in names or name not in vars(owner):
            raise ValueError(f"{name} is not a number that {type(owner).__name__} counts with")
        own = vars(owner)[name]
        if isinstance(own, bool):
            _true_or_false(name, value)
        elif isinstance(own, int):
            whole_number(value, high=2**63)
        else:
            finite_number(value)
        setattr(owner, name, value)


def _true_or_false(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, expected true or false")


def _buffer_arrays(buffer: ReplayBuffer) -> Arrays:
    """The arrays of a replay buffer, by reference: of those with a row per transition, the rows in use."""
    found: Arrays = {}
    for name, value in vars(buffer).items():
        for key, array in (value if isinstance(value, dict) else {"": value}).items():
            if not isinstance(array, np.ndarray):
                continue
            if array.dtype.hasobject:
                raise TypeError(
                    f"{type(buffer).__name__}.{name} holds Python objects, which checkpoints do not: "
                    "leave checkpoint_every out, or use another replay buffer"
                )
            in_use = array[: buffer.size()] if array.shape[:1] == (buffer.buffer_size,) else array
            found[f"{name}.{key}" if key else name] = in_use
    return found


def _set_buffer(buffer: Any, numbers: dict[str, Any], arrays: Arrays) -> None:
    whole_number(numbers["pos"], high=buffer.buffer_size - 1)
    _set_numbers(buffer, numbers, BUFFER_NUMBERS)
    own = _buffer_arrays(buffer)
    if own.keys() != arrays.keys():
        raise ValueError(f"the replay buffer was {sorted(arrays)}, expected {sorted(own)}")
    for name, values in arrays.items():
        if (values.dtype, values.shape) != (own[name].dtype, own[name].shape):
            expected = f"{own[name].dtype}{own[name].shape}"
            raise ValueError(f"{name} is {values.dtype}{values.shape}, expected {expected}")
        own[name][...] = values
    actions = buffer.actions[: buffer.size()].reshape(-1, *buffer.actions.shape[2:])
    problem = problem_with_rows(buffer.action_space, unflattened(buffer.action_space, actions))
    if problem is not None:
        raise ValueError(f"an action {problem[1]}")
    if not np.isfinite(buffer.rewards[: buffer.size()]).all():
        raise ValueError("a reward is not finite")
    for name in ("dones", "timeouts"):
        if not np.isin(getattr(buffer, name), (0, 1)).all():
            raise ValueError(f"{name} holds more than 0 and 1")


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
        # not ascontiguousarray, which makes a vector of a single number
        arrays[path] = np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, order="C")
        return {"tensor" if isinstance(value, Tensor) else "array": path}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(part, f"{path}.{key}", arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_packed(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{path} is a {type(value).__name__}, which checkpoints cannot hold: leave checkpoint_every out")


def _unpacked(value: Any, arrays: Arrays) -> Any:
    """What ``_packed`` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in ("tensor", "array"):
        return torch.from_numpy(arrays[content].copy()) if kind == "tensor" else arrays[content]
    if kind == "dict":
        return {key: _unpacked(part, arrays) for key, part in content}
    parts = [_unpacked(part, arrays) for part in content]
    return tuple(parts) if kind == "tuple" else parts
