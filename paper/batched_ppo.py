"""PPO on finite tasks: tasks x seeds in one batch, every learner with a network and random numbers of its own."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.batched_networks import Layer, linear
from paper.batched_tasks import (
    Curves,
    Environments,
    Spending,
    Tasks,
    device_of,
    learn_all,
    one_each,
    per_learner,
    shaped,
)
from secret_rl.envs.tabular import TabularModel, TabularShaping


@dataclass(frozen=True, kw_only=True)
class PpoOptions(Spending):
    """The numbers of PPO, and what credit is spent on."""

    learning_rate: float = 0.001
    """Of Adam."""
    side_by_side: int = 32
    """Environments of each learner."""
    rollout: int = 128
    """Steps in each of them between two rounds of updates."""
    decay: float = 0.95
    """Lambda of the advantages."""
    epochs: int = 4
    """How often each step is learned from."""
    batches: int = 4
    """Into which the steps of an epoch are split."""
    clip: float = 0.2
    """How far the ratio of probabilities may move from 1 to any gain."""
    entropy: float = 0.05
    """Weight of the policy's entropy. With 0.03, some agents settle before they find a prize behind three switches."""
    value_weight: float = 0.25
    """Of the squared error of values."""
    largest_gradient: float = 0.5
    """Norm that gradients are scaled down to."""
    units: int = 128
    """Of each of two hidden layers, shared by policy and values."""


_SHARED = tuple(name for name in PpoOptions.__dataclass_fields__ if name not in Spending.__dataclass_fields__)


def ppo_many(
    models: Sequence[TabularModel],
    seeds: int,
    steps: int,
    options: PpoOptions | Sequence[PpoOptions] = PpoOptions(),  # noqa: B008  frozen
    *,
    shapings: Sequence[TabularShaping | None] | None = None,
    seed: int | Sequence[int] = 0,
    test_every: int = 20_480,
    test_episodes: int = 16,
    test_discount: float = 0.99,
    device: str = "auto",
    progress: bool | None = None,
) -> Curves:
    """Let ``seeds`` learners learn each model for at least ``steps`` steps, all of them in one batch.

    What a learner does depends on its seed and, up to rounding, not on the others in the batch. The same call
    gives the same result on a CPU; a GPU adds up gradients in any order.

    >>> import gymnasium as gym, secret_rl
    >>> maze = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, window=None, layout_seed=1).unwrapped.tabular()
    >>> few = PpoOptions(side_by_side=4, rollout=16)
    >>> ppo_many([maze], 2, 128, few, test_every=64, device="cpu", progress=False).returns.shape
    (1, 2, 3)

    Args:
        models: Finite tasks with observations of one shape.
        seeds: Learners of each model.
        steps: Environment steps of each learner; the last rollout is finished.
        options: For all models, or one for each; those that are not of ``Spending``, and the discount, must be the
            same for all.
        shapings: One for each model, or None where rewards are not shaped.
        seed: Of the first learner, for all models or one for each; those after it have the seeds that follow.
        test_every: Steps between two tests, of ``test_episodes`` episodes each. Actions are drawn as in training.
        test_episodes: See above.
        test_discount: Of the returns in ``discounted``.
        device: Where to learn; by default a GPU if there is one.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    each = one_each(options, len(models), (*_SHARED, "discount"))
    every_shaping = [own for (own,) in shaped([[model] for model in models], shapings, each)]
    first = [seed] * len(models) if isinstance(seed, int) else seed
    own_seeds = [number + learner for number, _ in zip(first, models, strict=True) for learner in range(seeds)]
    learners = _Learners(models, every_shaping, own_seeds, each, device_of(device))
    return learn_all(learners, (len(models), seeds), steps, test_every, test_episodes, test_discount, progress)


class _Learners:
    """The state of all learners, and what happens in a rollout and in an update."""

    def __init__(
        self,
        models: Sequence[TabularModel],
        shapings: Sequence[TabularShaping],
        seeds: Sequence[int],
        options: Sequence[PpoOptions],
        device: torch.device,
    ) -> None:
        self._device, self._common = device, options[0]
        self._tasks = tasks = Tasks(models, shapings, lambda images: images.reshape(len(images), -1), device)
        each = len(seeds) // len(models)
        self._environments = Environments(
            tasks, [1] * len(models), each, self._common.side_by_side, per_learner(options, each, device)
        )
        self._first_states = self._environments.first * tasks.states
        # There are fewer states than rows in a batch: networks read every state once, and rows look up their own.
        self._inputs = tasks.inputs[self._first_states + torch.arange(tasks.states, device=device)]
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        units = self._common.units
        sizes = [(tasks.inputs.shape[1], units), (units, units), (units, tasks.actions + 1)]
        bounds = [*(math.sqrt(6 / sum(size)) for size in sizes[:2]), 0.01]  # so that all actions are as likely at first
        self._layers = [
            Layer(
                (bound * (2 * self._random(inputs * outputs) - 1)).view(-1, inputs, outputs).requires_grad_(),
                torch.zeros(len(seeds), 1, outputs, device=device, requires_grad=True),
            )
            for (inputs, outputs), bound in zip(sizes, bounds, strict=True)
        ]
        self._parameters = [part for layer in self._layers for part in layer]
        self._adam = torch.optim.Adam(self._parameters, self._common.learning_rate, eps=1e-5, fused=True)

    @property
    def weights(self) -> Tensor:
        """(learners, parameters) of the networks."""
        return torch.cat([part.detach().flatten(1) for part in self._parameters], 1)

    def learn(self, steps: int, test_every: int) -> Iterator[int]:
        """Take steps and update; gives the number of steps whenever it is time for a test."""
        now, test = 0, 0
        while True:
            if now >= test or now >= steps:
                yield now
                test += test_every
            if now >= steps:
                return
            taken = self._common.side_by_side * self._common.rollout
            # All at once: a GPU starts a kernel for every learner.
            chance, *orders = self._random((1 + self._common.epochs) * taken).split(taken, 1)
            with torch.no_grad():
                rollout = self._rollout(chance)
            learn_from(rollout, self._outputs_of, self._adam, self._common, orders)
            now += taken

    def test(self, episodes: int, discount: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(learners,) mean returns of test episodes: plain, and discounted."""
        logits, _ = self._outputs()
        cumulative = logits.softmax(-1).cumsum(-1)
        chance = self._random(self._tasks.max_steps * episodes).view(-1, self._tasks.max_steps, episodes)
        start = self._tasks.starts[self._environments.first.expand(-1, episodes)]
        return self._tasks.play(start, lambda state, time: self._drawn(cumulative, state, chance[:, time]), discount)

    def _random(self, count: int) -> Tensor:
        """(learners, count) from 0 to 1, each row of its learner's own generator."""
        found = torch.empty(len(self._generators), count, device=self._device)
        for row, generator in zip(found, self._generators, strict=True):
            row.uniform_(generator=generator)
        return found

    def _outputs(self) -> tuple[Tensor, Tensor]:
        """(learners, states, actions) logits of the policy and (learners, states) values."""
        seen = self._inputs
        for layer in self._layers[:-1]:
            seen = linear(seen, layer).tanh()
        found = linear(seen, self._layers[-1])
        return found[..., :-1], found[..., -1]

    def _outputs_of(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Those of (learners, rows) states, numbered within their task."""
        logits, values = self._outputs()
        return _of_states(logits, state), values.gather(1, state)

    def _drawn(self, cumulative: Tensor, state: Tensor, chance: Tensor) -> Tensor:
        """(learners, rows) actions, from (learners, states, actions) probabilities added up."""
        own = _of_states(cumulative, state - self._first_states)
        return (chance[..., None] >= own[..., :-1]).sum(-1)

    def _rollout(self, chance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(learners, steps) state, action, its log-probability, advantage and what the value should have been."""
        common, environments = self._common, self._environments
        logits, values = self._outputs()  # the network does not change in a rollout
        log_probabilities = logits.log_softmax(-1)
        cumulative = log_probabilities.exp().cumsum(-1)
        shape = (-1, common.rollout, common.side_by_side)
        chance = chance.view(shape)
        nothing = torch.zeros_like(chance[:, 0])  # every learner has one task
        taken, actions = [], []
        for time in range(common.rollout):
            actions.append(self._drawn(cumulative, environments.state, chance[:, time]))
            taken.append(environments.step(actions[-1], nothing))
        state, following, _, paid, _, terminated, ended = (torch.stack(part, 1) for part in zip(*taken, strict=True))
        action = torch.stack(actions, 1).flatten(1)
        local = (state.flatten(1) - self._first_states, following.flatten(1) - self._first_states)
        value, following_value = (values.gather(1, states) for states in local)
        advantage = advantages(
            paid, value.view(shape), following_value.view(shape), terminated, ended, common.discount, common.decay
        ).flatten(1)
        log_probability = _of_states(log_probabilities, local[0]).gather(-1, action[..., None])[..., 0]
        return local[0], action, log_probability, advantage, advantage + value


def learn_from(
    rollout: Sequence[Tensor],
    outputs: Callable[[Tensor], tuple[Tensor, Tensor]],
    adam: torch.optim.Optimizer,
    options: PpoOptions,
    orders: Iterable[Tensor],
) -> None:
    """Learn from every step of a rollout as often as there are orders, each learner in an order of its own.

    ``rollout`` holds (learners, steps) what was seen, actions, their log-probabilities, advantages and what values
    should have been; ``outputs`` gives logits and values of what was seen. Each of ``orders`` is (learners, steps)
    numbers from 0 to 1, which are sorted.
    """
    parameters = [part for group in adam.param_groups for part in group["params"]]
    learner = torch.arange(len(rollout[1]), device=rollout[1].device)[:, None]
    for order in orders:
        for rows in order.argsort(dim=1, stable=True).chunk(options.batches, 1):
            seen, action, log_probability, advantage, target = (part[learner, rows] for part in rollout)
            with torch.enable_grad():
                losses = ppo_losses(*outputs(seen), action, log_probability, advantage, target, options)
                gradients = torch.autograd.grad(losses.sum(), parameters)
            norm = torch.stack([gradient.square().sum((1, 2)) for gradient in gradients]).sum(0).sqrt()
            scale = (options.largest_gradient / (norm + 1e-6)).clamp(max=1)[:, None, None]
            for part, gradient in zip(parameters, gradients, strict=True):
                part.grad = gradient * scale
            adam.step()


def advantages(
    rewards: Tensor,
    values: Tensor,
    following: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: float,
    decay: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016); all (learners, steps, environments).

    ``following`` are the values of the states that steps led to. They count unless a step terminated the episode: one
    that was truncated would have gone on.
    """
    errors = rewards + discount * following * ~terminated - values
    found, last = torch.empty_like(errors), torch.zeros_like(errors[:, 0])
    for time in reversed(range(errors.shape[1])):
        last = errors[:, time] + discount * decay * last * ~ended[:, time]
        found[:, time] = last
    return found


def ppo_losses(
    logits: Tensor,
    value: Tensor,
    action: Tensor,
    log_probability: Tensor,
    advantage: Tensor,
    target: Tensor,
    options: PpoOptions,
) -> Tensor:
    """(learners,) the clipped loss (Schulman et al. 2017) of a batch; (learners, rows), with actions for ``logits``."""
    now = logits.log_softmax(-1)
    ratio = (now.gather(-1, action[..., None])[..., 0] - log_probability).exp()
    advantage = (advantage - advantage.mean(1, keepdim=True)) / (advantage.std(1, keepdim=True) + 1e-8)
    clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean(1)
    entropy = -(now.exp() * now).sum(-1).mean(1)
    return options.value_weight * (value - target).square().mean(1) - gain - options.entropy * entropy


def _of_states(table: Tensor, state: Tensor) -> Tensor:
    """(learners, rows, numbers) rows of (learners, states, numbers)."""
    return table.gather(1, state[..., None].expand(-1, -1, table.shape[-1]))
