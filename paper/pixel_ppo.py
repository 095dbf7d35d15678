"""PPO on pictures of slow environments: many learners in one batch, and workers on all cores that play for them."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from paper.batched_networks import Layer, linear
from paper.batched_ppo import PpoOptions, advantages, learn_from
from paper.batched_tasks import device_of
from paper.parallel_envs import ParallelVectorEnv, cores

PATCH = 5  # side of the squares that a picture is cut into
# Environments are played in groups, which the network acts for in turn. A GPU acts fast, and is slow to be asked: more
# groups play on while one of them waits for the environment that begins a new episode.
_GROUPS, _GROUPS_OF_A_GPU = 2, 4


@dataclass(frozen=True, kw_only=True)
class PixelOptions(PpoOptions):
    """The numbers of PPO for pictures; those that spend credit in finite tasks have no part here."""

    learning_rate: float = 0.0005
    side_by_side: int = 8
    entropy: float = 0.01
    value_weight: float = 0.5
    filters: int = 32
    """Of both convolutions; half as many are enough for one core's worth of learning."""


class Bonus(Protocol):
    """What is paid beside the reward, to one learner or to several."""

    def paid(self, rollout: "Played") -> NDArray[np.float32]:
        """(steps, environments) of a rollout; those that follow go on where it ended."""


@dataclass(frozen=True, eq=False)
class Played:
    """What the environments of some learners gave, one row for each step."""

    observations: Tensor
    """(steps, environments, height, width, channels) pictures, where the learners are."""
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    ended: NDArray[np.bool_]
    infos: Mapping[str, NDArray[Any]]
    """Of the step, also where the episode ended with it."""


@dataclass(frozen=True, eq=False)
class Progress:
    """How learning goes, after a rollout."""

    steps: int
    """Of each learner."""
    success: list[NDArray[np.bool_]]
    """For each learner, (episodes,) which of those that ended in the rollout succeeded."""
    played: float
    """Seconds of the rollout, and"""
    seconds: float
    """of it, the bonuses and the updates."""


def pixel_ppo(
    makers: Sequence[Callable[[], gym.Env[Any, Any]]],
    steps: int,
    options: PixelOptions = PixelOptions(),  # noqa: B008  frozen
    *,
    bonuses: Sequence[Sequence[Bonus]] | None = None,
    success: str,
    infos: Sequence[str] = (),
    seed: int = 0,
    workers: int | None = None,
    device: str = "auto",
) -> Iterator[Progress]:
    """Let one learner learn in each environment for ``steps`` steps; gives how it goes after every rollout.

    Args:
        makers: Make the environment of each learner, which plays ``side_by_side`` of them.
        steps: Environment steps of each learner.
        options: Of all learners.
        bonuses: Those of each learner, added up. One that several learners share is asked for all of them at once.
        success: The name of the info that tells whether an episode succeeded.
        infos: Names of others that bonuses look at.
        seed: Of everything random.
        workers: Processes that play; by default one for each core, but one where a GPU learns: that is left to who
            feeds it.
        device: Where to learn; by default a GPU if there is one.
    """
    names = tuple(dict.fromkeys([success, *infos]))
    learners = _Learners(makers, options, list(bonuses or [()] * len(makers)), names, seed, workers, device)
    try:
        now = 0
        while now < steps:
            began = time.perf_counter()
            succeeded, played = learners.learn()
            now += options.rollout * options.side_by_side
            yield Progress(now, succeeded, played - began, time.perf_counter() - began)
    finally:
        learners.close()


class _Group:
    """A part of the environments, as many of every learner; played while the network acts for the others."""

    def __init__(self, envs: ParallelVectorEnv, names: Sequence[str], seed: int) -> None:
        self.envs = envs
        self.seen, _ = envs.reset(seed=seed)
        self._names = names
        self.begin()

    def begin(self) -> None:
        """A new rollout."""
        self.acted: list[tuple[Tensor, ...]] = []  # pictures, actions, log-probabilities, values
        self.given: list[tuple[NDArray[Any], ...]] = []  # rewards, terminated, ended, and infos by name
        self.last: dict[tuple[int, int], Any] = {}  # what was seen last, by step and environment, where truncated

    def wait(self) -> None:
        """The end of the step that was begun."""
        self.seen, rewards, terminated, truncated, infos = self.envs.step_wait()
        ended = terminated | truncated
        for row in np.flatnonzero(truncated).tolist():
            self.last[len(self.given), row] = infos["final_obs"][row]
        named = []
        for name in self._names:
            column = np.array(infos[name], np.float32) if name in infos else np.zeros(len(ended), np.float32)
            if ended.any():  # of the step, not of the reset that followed it
                column[ended] = infos["final_info"][name][ended]
            named.append(column)
        self.given.append((rewards.astype(np.float32), terminated, ended, *named))


class _Learners:
    """The state of all learners."""

    def __init__(
        self,
        makers: Sequence[Callable[[], gym.Env[Any, Any]]],
        options: PixelOptions,
        bonuses: list[Sequence[Bonus]],
        names: Sequence[str],
        seed: int,
        workers: int | None,
        device: str,
    ) -> None:
        self._device, self._n = device_of(device), len(makers)
        on_gpu = self._device.type != "cpu"
        groups = _GROUPS_OF_A_GPU if on_gpu else _GROUPS
        if options.side_by_side % groups:
            raise ValueError(f"side_by_side must be a multiple of {groups}, got {options.side_by_side}")
        if len(bonuses) != len(makers):
            raise ValueError(f"{len(makers)} learners but bonuses of {len(bonuses)}: give those of each")
        self._options, self._bonuses, self._names = options, bonuses, names
        if workers is None:
            workers = max(1, len(cores()) - on_gpu)
        self._each = options.side_by_side // groups
        every = [make for make in makers for _ in range(self._each)]
        played = ParallelVectorEnv.groups([every] * groups, workers, infos=names, pin=True)
        self._groups = [_Group(envs, names, seed + number * len(every)) for number, envs in enumerate(played)]
        envs = self._groups[0].envs
        assert isinstance(envs.single_observation_space, gym.spaces.Box)
        assert isinstance(envs.single_action_space, gym.spaces.Discrete)
        height, width, self._channels = envs.single_observation_space.shape
        if height % PATCH or width % PATCH:
            raise ValueError(f"pictures of {height} x {width} cannot be cut into squares of {PATCH}")
        self._grid = height // PATCH, width // PATCH
        self._filters = filters = options.filters
        cells = math.prod(-(-side // 2) for side in self._grid)
        sizes = [
            (PATCH * PATCH * self._channels, filters), (9 * filters, filters), (cells * filters, options.units),
            (options.units, int(envs.single_action_space.n) + 1),
        ]  # fmt: skip
        bounds = [*(math.sqrt(6 / inputs) for inputs, _ in sizes[:-1]), 0.01]
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._layers = [
            Layer(
                (bound * (2 * self._random(math.prod(size)) - 1)).view(-1, *size).requires_grad_(),
                torch.zeros(self._n, 1, size[1], device=self._device, requires_grad=True),
            )
            for size, bound in zip(sizes, bounds, strict=True)
        ]
        parameters = [part for layer in self._layers for part in layer]
        self._adam = torch.optim.Adam(parameters, options.learning_rate, eps=1e-5)

    def close(self) -> None:
        """End the workers."""
        for group in self._groups:
            group.envs.close()

    def learn(self) -> tuple[list[NDArray[np.bool_]], float]:
        """A rollout and the updates after it.

        For each learner, which of its episodes that ended succeeded; and the time at which all was played.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # others would wait for work on cores that the environments need
        with torch.no_grad():
            self._play()
            played = time.perf_counter()
            torch.set_num_threads(threads)
            rollout, success = self._rollout()
        orders = (self._random(rollout[1].shape[1]) for _ in range(self._options.epochs))
        learn_from(rollout, self._outputs, self._adam, self._options, orders)
        return success, played

    def _random(self, count: int) -> Tensor:
        """(learners, count) from 0 to 1."""
        return torch.rand(self._n, count, generator=self._generator, device=self._device)

    def _outputs(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """(learners, rows, actions) logits and (learners, rows) values of (learners, rows, ...) pictures."""
        n, rows = pictures.shape[:2]
        (high, wide), filters = self._grid, self._filters
        squares = pictures.view(n, rows, high, PATCH, wide, PATCH, self._channels).transpose(3, 4)
        cut = squares.reshape(n, rows * high * wide, -1).to(torch.float32) / 255
        first = linear(cut, self._layers[0]).relu().view(n, rows, high, wide, filters)
        around = functional.pad(first, (0, 0, 1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 2)  # of every other cell
        second = linear(around.reshape(n, -1, 9 * filters), self._layers[1]).relu().view(n, rows, -1)
        found = linear(linear(second, self._layers[2]).relu(), self._layers[3])
        return found[..., :-1], found[..., -1]

    def _play(self) -> None:
        """All steps of a rollout, in all groups in turn."""
        for group in self._groups:
            group.begin()
        for _ in range(self._options.rollout):
            for group in self._groups:
                if group.acted:
                    group.wait()
                group.acted.append(self._act(group))
        for group in self._groups:
            group.wait()

    def _rollout(self) -> tuple[list[Tensor], list[NDArray[np.bool_]]]:
        """What ``learn_from`` takes of what was played; and for each learner, which episodes that ended succeeded."""
        seen, action, log_probability, value = self._joined(
            [[torch.stack(column, 1) for column in zip(*group.acted, strict=True)] for group in self._groups]
        )
        following = torch.cat([value[:, 1:], self._joined([[self._values(group)] for group in self._groups])[0]], 1)
        self._correct_truncated(following)
        columns = [[np.stack(column, 1) for column in zip(*group.given, strict=True)] for group in self._groups]
        given = [np.concatenate(parts, 2) for parts in zip(*map(self._by_learner, columns), strict=True)]
        rewards, terminated, ended, *named = given
        infos = dict(zip(self._names, named, strict=True))
        paid = self._paid(seen, action, rewards, ended, infos)
        on_device = [torch.as_tensor(part, device=self._device) for part in (paid, terminated, ended)]
        advantage = advantages(
            on_device[0], value, following, *on_device[1:], self._options.discount, self._options.decay
        )
        rollout = [part.flatten(1, 2) for part in (seen, action, log_probability, advantage, advantage + value)]
        return rollout, [named[0][one][ended[one]] > 0 for one in range(self._n)]

    def _joined(self, groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """(learners, steps, environments) of all groups."""
        return [torch.cat(parts, 2) for parts in zip(*groups, strict=True)]

    def _by_learner(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """(environments, steps, ...) of a group -> (learners, steps, environments, ...)."""
        return [column.reshape(self._n, self._each, *column.shape[1:]).swapaxes(1, 2) for column in columns]

    def _act(self, group: _Group) -> tuple[Tensor, ...]:
        seen = self._pictures(group)
        logits, value = self._outputs(seen)
        cumulative = logits.softmax(-1).cumsum(-1)
        action = (self._random(self._each)[..., None] >= cumulative[..., :-1]).sum(-1)
        group.envs.step_async(action.flatten().cpu().numpy())
        return seen, action, logits.log_softmax(-1).gather(-1, action[..., None])[..., 0], value

    def _pictures(self, group: _Group) -> Tensor:
        """(learners, environments, height, width, channels) what is seen now."""
        return torch.as_tensor(group.seen, device=self._device).unflatten(0, (self._n, self._each))

    def _values(self, group: _Group) -> Tensor:
        """(learners, 1, environments) of what is seen now."""
        return self._outputs(self._pictures(group))[1][:, None]

    def _correct_truncated(self, following: Tensor) -> None:
        """Put the values of what was seen last, where episodes were truncated, into (learners, steps, environments)."""
        found = [
            (row // self._each, step, row % self._each + number * self._each, picture)
            for number, group in enumerate(self._groups)
            for (step, row), picture in group.last.items()
        ]
        if not found:
            return
        *places, pictures = zip(*found, strict=True)
        learner, step, env = (torch.tensor(place, device=self._device) for place in places)
        own = [places[0][:number].count(one) for number, one in enumerate(places[0])]  # of its learner, the which
        seen = np.zeros((self._n, max(own) + 1, *pictures[0].shape), np.uint8)  # all networks are asked as often
        seen[places[0], own] = np.stack(pictures)
        values = self._outputs(torch.as_tensor(seen, device=self._device))[1]
        following[learner, step, env] = values[learner, torch.tensor(own, device=self._device)]

    def _paid(
        self, seen: Tensor, action: Tensor, rewards: NDArray[np.float32], ended: NDArray[np.bool_],
        infos: Mapping[str, NDArray[Any]],
    ) -> NDArray[np.float32]:  # fmt: skip
        """Rewards with the bonuses of the learners that have any."""
        paid, columns = rewards.copy(), (action.cpu().numpy(), rewards, ended, *infos.values())
        for bonus in dict.fromkeys(chain.from_iterable(self._bonuses)):
            own = [learner for learner, bonuses in enumerate(self._bonuses) if bonus in bonuses]
            pictures = seen[own].transpose(0, 1).flatten(1, 2)
            actions, received, over, *named = (
                column[own].swapaxes(0, 1).reshape(len(column[0]), pictures.shape[1], *column.shape[3:])
                for column in columns
            )
            played = Played(pictures, actions, received, over, dict(zip(infos, named, strict=True)))
            paid[own] += bonus.paid(played).reshape(len(actions), len(own), -1).swapaxes(0, 1)
        return paid
