"""Finite tasks for many learners at once: what is learned together, steps in all of it, what they pay, tests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.envs.tabular import TabularModel, TabularShaping, check_task
from secret_rl.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What an agent does with the potential of its task."""

    discount: float = 0.99
    """Of the agent, and of the shaping."""
    shaping: bool = True
    """Add the potential's shaping to the rewards, where a task has a potential."""
    bonus: float = 0.0
    """Times the rise of the potential, added to the reward at first. Until it has faded, over ``fade_steps``, other
    policies may be optimal."""
    fade_steps: int | None = None
    """Steps of a learner; None: it does not fade."""
    count: float = 0.0
    """Over the root of how often the learner has come to a state, added to the reward of a step into it."""


Options = TypeVar("Options", bound=Spending)


@dataclass(frozen=True, eq=False)
class Curves:
    """How well every learner did, tested without shaping."""

    steps: NDArray[np.int64]
    """(tests,) steps taken before each test."""
    returns: NDArray[np.float32]
    """(models, seeds, tests) mean undiscounted return of the test episodes."""
    discounted: NDArray[np.float32]
    """(models, seeds, tests) the same, discounted by ``test_discount``."""
    weights: NDArray[np.float32]
    """(models, seeds, parameters) the networks in the end."""


class Learners(Protocol):
    """Many learners in one batch."""

    @property
    def weights(self) -> Tensor:
        """(learners, parameters) of the networks that act."""

    def learn(self, steps: int, test_every: int) -> Iterator[int]:
        """Take steps and update; gives the number of steps whenever it is time for a test."""

    def test(self, episodes: int, discount: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(learners,) mean returns of test episodes: plain, and discounted."""


def learn_all(
    learners: Learners,
    shape: tuple[int, int],
    steps: int,
    test_every: int,
    test_episodes: int,
    test_discount: float,
    progress: bool | None,
) -> Curves:
    """Let learners, (models, seeds) of them, learn for so many steps, with tests on the way."""
    tests, tested = [], []
    with torch.no_grad(), progress_bar(progress, "steps") as tick:
        for now in learners.learn(steps, test_every):
            tested.append(now)
            tests.append(learners.test(test_episodes, test_discount))
            tick(f"return {tests[-1][0].mean():.2f}", min(now, steps), steps)
    returns, discounted = (np.stack(column, -1).reshape(*shape, -1) for column in zip(*tests, strict=True))
    return Curves(np.array(tested), returns, discounted, learners.weights.cpu().numpy().reshape(*shape, -1))


def one_each(options: Options | Sequence[Options], models: int, shared: Sequence[str]) -> list[Options]:
    """Options for each model; an error where those that must be shared differ."""
    each = [options] * models if isinstance(options, Spending) else list(options)
    if len(each) != models:
        raise ValueError(f"{models} models but {len(each)} options: give one, or one for each model")
    for name in shared:
        if len({getattr(option, name) for option in each}) > 1:
            raise ValueError(f"{name} must be the same for all models: learn them in different calls")
    return each


def shaped(
    models: Sequence[Sequence[TabularModel]],
    shapings: Sequence[TabularShaping | None] | None,
    options: Sequence[Spending],
) -> list[list[TabularShaping]]:
    """The shaping of every task; an error where tasks do not fit together, or were shaped for another discount."""
    expected, found = None, []
    for number, (listed, shaping, option) in enumerate(
        zip(models, shapings or [None] * len(models), options, strict=True)
    ):
        found.append([TabularShaping.of(m, option.discount) if shaping is None else shaping for m in listed])
        for model, own in zip(listed, found[-1], strict=True):
            check_task(model, own)
            sizes = (*np.shape(model.observations)[1:], model.next_states.shape[1], model.max_steps)
            expected = expected or sizes
            if sizes != expected:
                raise ValueError(
                    f"model {number} has (observation, actions, steps) {sizes}, expected the {expected} of the first "
                    "model: learn tasks of different sizes in different calls"
                )
            if own.discount != option.discount:
                raise ValueError(
                    f"model {number} is shaped with discount {own.discount}, but the agent's is {option.discount}"
                )
    return found


def device_of(name: str) -> torch.device:
    """Where to learn; "auto" is a GPU if there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def per_learner(options: Sequence[Spending], seeds: int, device: torch.device) -> dict[str, Tensor]:
    """Name -> (learners, 1) of every option; what is None is infinite."""

    def column(name: str) -> list[float]:
        values = (getattr(option, name) for option in options)
        return [float("inf") if value is None else float(value) for value in values]

    return {
        field.name: torch.tensor(column(field.name), device=device).repeat_interleave(seeds)[:, None]
        for field in fields(options[0])
    }


class Tasks:
    """Models and shapings end to end: state ``s`` of model ``m`` is state ``m * states + s`` of all.

    ``read`` makes of (states, ...) observations what networks read.
    """

    def __init__(
        self,
        models: Sequence[TabularModel],
        shapings: Sequence[TabularShaping],
        read: Callable[[NDArray[Any]], NDArray[Any]],
        device: torch.device,
    ) -> None:
        self.states = max(len(model.next_states) for model in models)
        self.actions = models[0].next_states.shape[1]
        self.max_steps = models[0].max_steps
        first = np.arange(len(models)) * self.states

        def joined(columns: list[NDArray[Any]], dtype: Any) -> Tensor:
            rows = np.zeros((len(models), self.states, *columns[0].shape[1:]), dtype)
            for row, column in zip(rows, columns, strict=True):
                row[: len(column)] = column
            return torch.as_tensor(rows.reshape(len(models) * self.states, *columns[0].shape[1:]), device=device)

        moves = [2 * (f + m.next_states.astype(np.int64)) + m.terminated for f, m in zip(first, models, strict=True)]
        self.moves = joined(moves, np.int64).view(-1)  # (all states * actions) 2 * next state + whether it terminates
        self.rewards = joined([m.rewards for m in models], np.float32).view(-1)
        self.potential = joined([s.scale * s.potential for s in shapings], np.float32)
        earned = [s.scale * s.credit[s.pairs] for s in shapings]
        self.credit = joined(earned, np.float32).view(-1)  # what a pair adds to the running sum
        once = [s.once for s in shapings]
        self.once = torch.tensor(once, device=device) if any(once) else None
        self.credit_rows = joined([s.pairs for s in shapings], np.int64).view(-1)
        self.most_rows = max(len(s.credit) for s in shapings)
        self.inputs = joined([read(np.asarray(m.observations)) for m in models], np.float32)  # (all states, ...)
        self.caps = torch.tensor([min(s.scale * s.cap, 1e9) for s in shapings], device=device)
        self.starts = torch.tensor([f + m.start for f, m in zip(first.tolist(), models, strict=True)], device=device)
        self.keep_on_truncation = torch.tensor([s.keep_on_truncation for s in shapings], device=device)

    def model_of(self, states: Tensor) -> Tensor:
        """Which model each state belongs to."""
        return states // self.states

    def play(
        self, state: Tensor, act: Callable[[Tensor, int], Tensor], discount: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(learners,) mean returns of episodes from (learners, episodes) states: plain, and discounted."""
        gained = torch.zeros(2, *state.shape, device=state.device)
        running = torch.ones_like(state, dtype=torch.bool)
        for time in range(self.max_steps):
            pair = state * self.actions + act(state, time)
            reward = self.rewards[pair] * running
            gained += torch.stack([reward, discount**time * reward])
            move = self.moves[pair]
            running &= (move & 1) == 0
            state = move >> 1
        plain, discounted = gained.mean(-1).cpu().numpy()
        return plain, discounted


class Steps(NamedTuple):
    """One step in every environment; all (learners, environments)."""

    state: Tensor
    following: Tensor
    reward: Tensor
    """The task's own."""
    paid: Tensor
    """What the agent learns from: with shaping and bonuses."""
    rise: Tensor
    """Of the potential."""
    terminated: Tensor
    ended: Tensor
    """Terminated or truncated."""


class Environments:
    """Environments of many learners, as many for each, and what steps in them pay.

    ``models`` says how many tasks the learners of each model have, ``options`` what ``per_learner`` gives. State is
    changed in place, so that a step can be captured as a graph.
    """

    def __init__(
        self, tasks: Tasks, models: Sequence[int], seeds: int, side_by_side: int, options: Mapping[str, Tensor]
    ) -> None:
        device = tasks.starts.device
        self._tasks, self._options, self._side_by_side = tasks, options, side_by_side
        firsts = np.concatenate([[0], np.cumsum(models)])
        self.first = torch.as_tensor(firsts[:-1], device=device).repeat_interleave(seeds)[:, None]
        self.several = torch.as_tensor(np.diff(firsts), device=device).repeat_interleave(seeds)[:, None]
        self._some = {name: bool((options[name] != 0).any()) for name in ("bonus", "count")}
        shape = len(self.first), side_by_side
        self.taken = torch.zeros((), dtype=torch.int64, device=device)  # steps of each learner
        self.state = self.starts(torch.zeros(shape, device=device))
        self._time = torch.zeros_like(self.state)
        self._sum = torch.zeros(shape, device=device)
        rows = 0 if tasks.once is None else tasks.most_rows
        self._paid = torch.zeros(*shape, rows, dtype=torch.bool, device=device)  # rows of credit
        states = max(models) * tasks.states if self._some["count"] else 0
        self._counts = torch.zeros(len(self.first), states, device=device)  # how often a state was reached

    @property
    def changing(self) -> tuple[Tensor, ...]:
        """All that a step changes."""
        return self.taken, self.state, self._time, self._sum, self._paid, self._counts

    def starts(self, chance: Tensor) -> Tensor:
        """The first states of new episodes; numbers from 0 to 1 draw one of the learner's tasks."""
        return self._tasks.starts[self.first + (chance * self.several).long()]

    def step(self, action: Tensor, chance: Tensor) -> Steps:
        """Take a step everywhere; ``chance`` draws the tasks of new episodes. All (learners, environments)."""
        tasks, options, state = self._tasks, self._options, self.state.clone()
        pair = state * tasks.actions + action
        move, reward = tasks.moves[pair], tasks.rewards[pair]
        following, terminated = move >> 1, (move & 1) == 1
        self._time += 1
        ended = terminated | (self._time >= tasks.max_steps)
        model = tasks.model_of(state)
        added, cap = tasks.credit[pair], tasks.caps[model]
        if tasks.once is not None:
            row = tasks.credit_rows[pair][..., None]
            added = added * ~(self._paid.gather(2, row)[..., 0] & tasks.once[model])
            self._paid.scatter_(2, row, True)
        earned = self._sum + added
        before = tasks.potential[state] + torch.minimum(self._sum, cap)
        known = ~terminated & (~ended | tasks.keep_on_truncation[model])
        after = (tasks.potential[following] + torch.minimum(earned, cap)) * known
        rise = after - before
        paid = reward + options["shaping"] * (options["discount"] * after - before)
        if self._some["bonus"]:
            paid = paid + options["bonus"] * self.fading() * rise.clamp(min=0)
        if self._some["count"]:
            place = following - self.first * tasks.states
            self._counts.scatter_add_(1, place, torch.ones_like(reward))
            paid = paid + options["count"] / self._counts.gather(1, place).sqrt()
        self.taken += self._side_by_side
        self.state.copy_(torch.where(ended, self.starts(chance), following))
        self._time *= ~ended
        self._sum.copy_(torch.where(ended, 0.0, earned))
        self._paid &= ~ended[..., None]
        return Steps(state, following, reward, paid, rise, terminated, ended)

    def fading(self) -> Tensor:
        """(learners, 1) from 1 to 0."""
        return (1 - self.taken / self._options["fade_steps"]).clamp(min=0)
