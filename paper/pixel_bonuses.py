"""What PPO on pictures is paid beside the reward: true events, credit as a bonus or a potential, and novelty."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paper.pixel_ppo import Played

EVENTS = ("key_picked", "door_opened")  # infos that a rollout must hold
GOAL, STATE = "goal_reached", "state"
_CLIP = 5.0  # of pixels, in standard deviations (Burda et al. 2019)


@dataclass(eq=False)
class TrueEvents:
    """Pays for the first key and the first door of each colour in an episode: a bound for credit."""

    key: float = 0.5
    door: float = 0.5
    _met: NDArray[np.bool_] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        colours = [rollout.infos[name].astype(np.int64) for name in EVENTS]
        steps, n = colours[0].shape
        if self._met is None:
            self._met = np.zeros((len(EVENTS), n, 256), np.bool_)
        found, rows = np.zeros((steps, n), np.float32), np.arange(n)
        for step in range(steps):
            for met, worth, colour in zip(self._met, (self.key, self.door), colours, strict=True):
                now = colour[step]
                found[step] += worth * ((now > 0) & ~met[rows, now])
                met[rows, now] = True
            self._met[:, rollout.ended[step]] = False
        return found


@dataclass(eq=False)
class StepCredit:
    """Pays ``scale`` times the credit of each step with what it led to, in all at most ``cap`` an episode.

    What a step led to counts: in front of a key, every action that reaches it has credit, and looking at it must not
    pay. So the model must be one of transitions.

    With a ``discount``, what was paid so far is a potential instead: it is 0 once the goal is reached.
    """

    secret: Any
    """A ``Secret`` that was fitted with ``transitions=True``."""
    scale: float
    threshold: float
    """No more credit than this is not paid."""
    cap: float
    discount: float | None = None
    _earned: NDArray[np.float64] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        credit = self.scale * self.credit(rollout)
        first = np.zeros(credit.shape[1]) if self._earned is None else self._earned
        earned, before = np.zeros(credit.shape), first
        for step, new in enumerate(credit):
            earned[step] = np.minimum(before + new, self.cap)
            before = np.where(rollout.ended[step], 0.0, earned[step])
        self._earned = before
        if self.discount is None:
            return (earned - _before(first, earned, rollout)).astype(np.float32)
        return _shaped(self.discount, first, earned, rollout)

    def credit(self, rollout: Played) -> NDArray[np.float64]:
        """(steps, environments) what is worth paying; 0 where what follows is not known."""
        steps, n = rollout.actions.shape
        seen = rollout.observations.cpu().numpy()
        before, after = (part.reshape(-1, *seen.shape[2:]) for part in (seen[:-1], seen[1:]))
        found = self.secret.step_credit(before, rollout.actions[:-1].ravel(), after).reshape(steps - 1, n)
        credit = np.zeros((steps, n))
        credit[:-1] = np.where(rollout.ended[:-1] | (found <= self.threshold), 0.0, found)
        return credit


@dataclass(eq=False)
class StatePotential:
    """Pays the difference that a step makes to a potential of states, which is 0 before the first step of an episode.

    Once the goal is reached it is 0, too.
    """

    potential: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    """Of (rows, ...) states, as ``info["state"]`` gives them."""
    discount: float
    _last: NDArray[np.float64] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        steps, n = rollout.actions.shape
        states = rollout.infos[STATE].astype(np.int64)
        values = self.potential(states.reshape(steps * n, -1)).reshape(steps, n)
        first = np.zeros(n) if self._last is None else self._last
        self._last = np.where(rollout.ended[-1], 0.0, values[-1])
        return _shaped(self.discount, first, values, rollout)


def _shaped(
    discount: float, first: NDArray[np.float64], after: NDArray[np.float64], rollout: Played
) -> NDArray[np.float32]:
    """The difference that each step makes to a potential, of its values ``after`` the steps of a rollout."""
    left = np.where(rollout.infos[GOAL] > 0, 0.0, after)
    return (discount * left - _before(first, after, rollout)).astype(np.float32)


def _before(first: NDArray[np.float64], after: NDArray[np.float64], rollout: Played) -> NDArray[np.float64]:
    """(steps, environments) what was before each step: 0 where an episode begins."""
    return np.concatenate([first[None], np.where(rollout.ended[:-1], 0.0, after[:-1])])


class Novelty:
    """Random network distillation (Burda et al. 2019): pays for pictures that the agent has rarely seen.

    A network learns to give what a random one gives; where it errs, the picture is new. Deviations from the paper: one
    stream of rewards, with episodes, and errors are divided by their own running deviation.

    Args:
        scale: Times the error, in units of its deviation.
        seed: Of both networks.
        device: Where they are computed.
    """

    def __init__(self, scale: float = 0.01, seed: int = 0, device: str = "cpu") -> None:
        self._scale, self._device = scale, torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)
        self._networks: tuple[nn.Module, nn.Module] | None = None
        self._moments: list[Tensor] = []  # count, mean and mean square of pixels
        self._error = torch.zeros(2, device=self._device)  # sums: count, squares

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        shape = rollout.actions.shape
        pixels = rollout.observations.to(self._device).reshape(shape[0] * shape[1], -1).float()
        seen = self._normalised(pixels)
        if self._networks is None:
            self._networks = self._made(pixels.shape[1])
            self._adam = torch.optim.Adam(self._networks[1].parameters(), 1e-4)
        target, learned = self._networks
        with torch.no_grad():
            goal = target(seen)
            error = (learned(seen) - goal).square().mean(1)
        order = torch.randperm(len(seen), generator=self._generator).to(self._device)
        for rows in order.chunk(4):
            with torch.enable_grad():
                loss = (learned(seen[rows]) - goal[rows]).square().mean()
                self._adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            self._adam.step()
        self._error += torch.stack([torch.tensor(float(len(error)), device=self._device), error.square().sum()])
        deviation = (self._error[1] / self._error[0]).sqrt() + 1e-8
        return (self._scale * error / deviation).view(shape).cpu().numpy()

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Pixels over their running deviation."""
        new = [torch.tensor(float(len(pixels)), device=self._device), pixels.sum(0), pixels.square().sum(0)]
        self._moments = [old + more for old, more in zip(self._moments, new, strict=True)] if self._moments else new
        count, total, squares = self._moments
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=1).sqrt()
        return ((pixels - mean) / deviation).clamp(-_CLIP, _CLIP)

    def _made(self, inputs: int) -> tuple[nn.Module, nn.Module]:
        """The random network, and the one that learns it, which is deeper."""

        def layers(*sizes: int) -> nn.Module:
            found: list[nn.Module] = []
            for number, (before, after) in enumerate(pairwise(sizes)):
                layer = nn.Linear(before, after)
                nn.init.orthogonal_(layer.weight, 2**0.5, generator=self._generator)
                nn.init.zeros_(layer.bias)
                found += [nn.ReLU(), layer] if number else [layer]
            return nn.Sequential(*found).to(self._device)

        return layers(inputs, 128, 64), layers(inputs, 128, 128, 64)
