"""Weights of policies: files without pickles, and the start of one agent from what another has learned."""

from pathlib import Path

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor, nn

from secret_rl.files import FileFormat

_FORMAT = FileFormat("secret-rl policy weights", remedy="restore it or save the weights again")
_TARGET = "_target"


def save_weights(model: BaseAlgorithm, path: str | Path) -> Path:
    """Write the parameters of a model's policy to a safetensors file, whole or not at all."""
    arrays = {name: value.detach().cpu().numpy() for name, value in model.policy.state_dict().items()}
    about = {"algorithm": type(model).__name__, "policy": type(model.policy).__name__}
    return _FORMAT.write_arrays(path, about, arrays)


def load_weights(model: BaseAlgorithm, weights: BaseAlgorithm | str | Path) -> None:
    """Give a model the policy parameters of another, or of a file that ``save_weights`` wrote.

    Target networks start as copies of the networks they follow, as they do in a new agent; optimisers stay as they are.
    """
    if isinstance(weights, BaseAlgorithm):
        origin, tensors = f"a trained {type(weights).__name__}", weights.policy.state_dict()
    else:
        origin, tensors = str(weights), _read(Path(weights))
    mine = model.policy.state_dict()
    wrong = [f"{name} is missing there" for name in mine.keys() - tensors.keys()]
    wrong += [f"{name} is not in this one" for name in tensors.keys() - mine.keys()]
    wrong += [
        f"{name} is {tuple(tensors[name].shape)} there and {tuple(mine[name].shape)} here"
        for name in mine.keys() & tensors.keys()
        if tensors[name].shape != mine[name].shape
    ]
    if wrong:
        raise ValueError(
            f"the weights of {origin} do not fit {type(model).__name__} with {type(model.policy).__name__}: "
            f"{'; '.join(sorted(wrong))}. Train both with the same algorithm, policy, policy_kwargs and spaces"
        )
    model.policy.load_state_dict(tensors)
    for name, target in model.policy.named_children():
        followed = getattr(model.policy, name.removesuffix(_TARGET), None)
        if name.endswith(_TARGET) and isinstance(followed, nn.Module):
            target.load_state_dict(followed.state_dict())


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected weights written by save_weights")
    return {name: torch.from_numpy(array) for name, array in _FORMAT.read_arrays(path)[1].items()}
