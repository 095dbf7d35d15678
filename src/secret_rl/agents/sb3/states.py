"""Everything an algorithm and its replay buffer know, as named arrays and JSON values: nothing is ever pickled."""

from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from secret_rl.files import finite_number, whole_number

Arrays = dict[str, NDArray[Any]]
MODEL_NUMBERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_current_progress_remaining", "_n_updates",
    "_n_calls", "_episode_num", "exploration_rate", "start_time",
)  # fmt: skip
"""What learning counts in algorithms of Stable-Baselines3 and sb3-contrib; nothing else is set from a file."""
BUFFER_NUMBERS = ("pos", "full", "_credited_count")
_LONG_ROW = 64  # bytes of a transition: longer ones are observations, written once and never changed


def model_state(model: BaseAlgorithm) -> tuple[dict[str, Any], Arrays]:
    """(JSON values, arrays) of parameters, optimisers, loose tensors, counters and running statistics."""
    arrays: Arrays = {}
    state = {
        "parameters": packed(dict(model.get_parameters()), "parameters", arrays),
        "tensors": packed({k: v for k, v in vars(model).items() if isinstance(v, Tensor)}, "tensors", arrays),
        "numbers": numbers_of(model, MODEL_NUMBERS),
    }
    if (normaliser := model.get_vec_normalize_env()) is not None:
        state["normaliser"] = packed(_statistics(normaliser), "normaliser", arrays)
    return state, arrays


def set_model_state(model: BaseAlgorithm, state: dict[str, Any], arrays: Arrays) -> None:
    """Put back what ``model_state`` gave."""
    parameters = unpacked(state["parameters"], arrays)
    model.set_parameters(parameters)
    for name in parameters:
        _check_optimiser(attrgetter(name)(model))
    with torch.no_grad():
        for name, value in unpacked(state["tensors"], arrays).items():
            own = vars(model)[name]
            if not isinstance(own, Tensor) or own.shape != value.shape:
                raise ValueError(f"{name} is not a tensor of shape {tuple(value.shape)} of {type(model).__name__}")
            own.copy_(value)  # in place: an optimiser may hold it
    set_numbers(model, state["numbers"], MODEL_NUMBERS)
    if (normaliser := model.get_vec_normalize_env()) is not None:
        _set_statistics(normaliser, unpacked(state["normaliser"], arrays))


def _check_optimiser(optimiser: Any) -> None:
    """ValueError where what an optimiser remembers does not fit its parameters; anything else is no optimiser."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        return
    for parameter, memory in optimiser.state.items():
        for name, value in memory.items():
            fits = value.shape in (parameter.shape, ()) and value.is_floating_point()
            counts = name == "step" or name.endswith("_sq")  # steps, and means of squares
            if not fits or (counts and bool((value < 0).any())):
                raise ValueError(f"an optimiser's {name} is {value.dtype} of shape {tuple(value.shape)}, or negative")


def numbers_of(thing: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of some attributes that something has."""
    found = {name: vars(thing)[name] for name in names if name in vars(thing)}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def set_numbers(thing: Any, numbers: dict[str, Any], names: tuple[str, ...]) -> None:
    """Set attributes from a file: only those that ``names`` allows, and only to what is of their kind."""
    for name, value in numbers.items():
        if name not in names or name not in vars(thing):
            raise ValueError(f"{name} is not a number that {type(thing).__name__} counts with")
        own = vars(thing)[name]
        if isinstance(own, bool):
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}, expected true or false")
        elif isinstance(own, int):
            whole_number(value, high=2**63)
        else:
            finite_number(value)
        setattr(thing, name, value)


def buffer_arrays(buffer: ReplayBuffer) -> tuple[Arrays, Arrays]:
    """The arrays of a replay buffer, by reference: (what is written once per transition, all others)."""
    once: Arrays = {}
    others: Arrays = {}
    for name, array in _named_arrays(buffer):
        if array.dtype.hasobject:
            raise TypeError(
                f"{type(buffer).__name__}.{name} holds Python objects, which checkpoints do not: "
                "leave checkpoint_every out, or use another replay buffer"
            )
        by_transition = array.shape[:2] == (buffer.buffer_size, buffer.n_envs)
        row = array.dtype.itemsize * int(np.prod(array.shape[2:]))
        (once if by_transition and row > _LONG_ROW else others)[name] = array
    return once, others


def end_running_episodes(model: BaseAlgorithm) -> None:
    """Mark the newest transition of every environment as cut short by a time limit, unless its episode ended there."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None or buffer.size() == 0:
        return
    newest = (buffer.pos - 1) % buffer.buffer_size
    going_on = buffer.dones[newest] == 0
    buffer.dones[newest] = 1
    buffer.timeouts[newest] = np.maximum(buffer.timeouts[newest], going_on)


def packed(value: Any, path: str, arrays: Arrays) -> Any:
    """A nest of mappings, sequences, numbers and tensors as JSON; the tensors go to ``arrays``, named by their path."""
    if isinstance(value, Tensor | np.ndarray):
        # not ascontiguousarray, which makes a vector of a single number
        arrays[path] = np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, order="C")
        return {"tensor" if isinstance(value, Tensor) else "array": path}
    if isinstance(value, dict):
        return {"dict": [[key, packed(part, f"{path}.{key}", arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [packed(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{path} is a {type(value).__name__}, which checkpoints cannot hold: leave checkpoint_every out")


def unpacked(value: Any, arrays: Arrays) -> Any:
    """What ``packed`` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return torch.from_numpy(arrays[content].copy())
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: unpacked(part, arrays) for key, part in content}
    parts = [unpacked(part, arrays) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def _named_arrays(buffer: ReplayBuffer) -> list[tuple[str, NDArray[Any]]]:
    found: list[tuple[str, NDArray[Any]]] = []
    for name, value in vars(buffer).items():
        if isinstance(value, np.ndarray):
            found.append((name, value))
        elif isinstance(value, dict) and value and all(isinstance(part, np.ndarray) for part in value.values()):
            found += [(f"{name}.{key}", part) for key, part in value.items()]
    return found


def _statistics(normaliser: VecNormalize) -> dict[str, Any]:
    seen = getattr(normaliser, "obs_rms", None)  # without observations to normalise there is none
    of = seen if isinstance(seen, dict) else {"": seen}
    return {
        "observations": {key: _moments(moments) for key, moments in of.items() if moments is not None},
        "returns": _moments(normaliser.ret_rms),
    }


def _set_statistics(normaliser: VecNormalize, statistics: dict[str, Any]) -> None:
    seen = getattr(normaliser, "obs_rms", None)
    for key, values in statistics["observations"].items():
        _set_moments(seen[key] if isinstance(seen, dict) else seen, values)
    _set_moments(normaliser.ret_rms, statistics["returns"])


def _moments(moments: RunningMeanStd) -> dict[str, Any]:
    return {"mean": np.asarray(moments.mean), "var": np.asarray(moments.var), "count": float(moments.count)}


def _set_moments(moments: Any, values: dict[str, Any]) -> None:
    if np.shape(values["mean"]) != np.shape(moments.mean) or np.shape(values["var"]) != np.shape(moments.var):
        raise ValueError(f"running statistics of shape {np.shape(values['mean'])}, expected {np.shape(moments.mean)}")
    moments.mean, moments.var, moments.count = values["mean"], values["var"], values["count"]
