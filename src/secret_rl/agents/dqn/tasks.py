"""Finite tasks as tensors, and the steps that many learners take in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.agents.dqn.networks import Shape, first_patches
from secret_rl.envs.tabular import TabularModel, check, distinct_credit


class Tasks:
    """Models end to end: state ``s`` of model ``m`` is state ``m * states + s`` of all."""

    def __init__(self, models: Sequence[TabularModel], device: torch.device) -> None:
        self.states = max(len(model.next_states) for model in models)
        self.actions = models[0].next_states.shape[1]
        self.max_steps = models[0].max_steps
        images = np.asarray(models[0].observations)
        self.shape = Shape(-(-images.shape[1] // 2), images.shape[3], self.actions)
        first = np.arange(len(models)) * self.states

        def joined(columns: list[NDArray[Any]], dtype: Any) -> Tensor:
            rows = np.zeros((len(models), self.states, *columns[0].shape[1:]), dtype)
            for row, column in zip(rows, columns, strict=True):
                row[: len(column)] = column
            return torch.as_tensor(rows.reshape(len(models) * self.states, *columns[0].shape[1:]), device=device)

        moves = [2 * (f + m.next_states.astype(np.int64)) + m.terminated for f, m in zip(first, models, strict=True)]
        self.moves = joined(moves, np.int64).view(-1)  # (all states * actions) 2 * next state + whether it terminates
        self.rewards = joined([m.rewards for m in models], np.float32).view(-1)
        self.potential = joined([m.scale * m.potential for m in models], np.float32)
        earned = [m.scale * distinct_credit(m.credit)[:, 0][m.pairs] for m in models]
        self.credit = joined(earned, np.float32).view(-1)  # what a pair adds to the running sum
        once = [m.once for m in models]
        self.once = torch.tensor(once, device=device) if any(once) else None
        self.credit_rows = joined([m.pairs for m in models], np.int64).view(-1)
        self.most_rows = max(len(m.credit) for m in models)
        self.patches = joined([first_patches(np.asarray(m.observations)) for m in models], np.float32)
        self.caps = torch.tensor([min(m.scale * m.cap, 1e9) for m in models], device=device)
        self.starts = torch.tensor([f + m.start for f, m in zip(first.tolist(), models, strict=True)], device=device)
        keep = [m.keep_on_truncation for m in models]
        self.keep_on_truncation = torch.tensor(keep, device=device)

    def model_of(self, states: Tensor) -> Tensor:
        """Which model each state belongs to."""
        return states // self.states


def check_models(models: Sequence[TabularModel], discounts: Sequence[float]) -> None:
    """An error where tasks do not fit together, or were shaped for another discount."""
    if not models:
        raise ValueError("nothing to learn: give at least one model")
    for number, (model, discount) in enumerate(zip(models, discounts, strict=True)):
        check(model)
        images = np.asarray(model.observations)
        square = images.ndim == 4 and images.shape[1] == images.shape[2]
        if not square:
            raise ValueError(
                f"model {number} observes {images.shape[1:]}, expected square images (side, side, channels): make the "
                "environment with window=None, or see it through a view"
            )
        if images.shape[1:] != np.shape(models[0].observations)[1:] or (
            (model.next_states.shape[1], model.max_steps) != (models[0].next_states.shape[1], models[0].max_steps)
        ):
            raise ValueError(
                f"model {number} has images of {images.shape[1:]}, {model.next_states.shape[1]} actions and "
                f"{model.max_steps} steps, other than model 0: learn tasks of different sizes in different calls"
            )
        credit = distinct_credit(model.credit)
        if not (credit == credit[:, :1]).all():
            raise ValueError(f"the credit of model {number} depends on the time of a step: expected one for each pair")
        if model.discount is not None and model.discount != discount:
            raise ValueError(
                f"model {number} is shaped with discount {model.discount}, but the agent's is {discount}: use the same"
            )
