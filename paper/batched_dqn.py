"""The paper's DQN on finite tasks: tasks x seeds in one batch, every learner with a network and a replay of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.batched_networks import Layer, Networks, Shape, first_patches, initial
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

_SIDE_BY_SIDE = 8  # environments of each learner
_FITTING = 3_000  # updates that fit values to a potential before learning
_RISE = 1e-3  # of a potential that counts as credit
_SHARED = ("random_steps", "batch_size", "train_every", "clip", "epsilon_test", "replay", "exact")


@dataclass(frozen=True, kw_only=True)
class DqnOptions(Spending):
    """The numbers of the paper's DQN (appendix A), and what credit is spent on; it does not give all of them."""

    learning_rate: float = 0.00025
    """Of RMSProp."""
    decay: float = 0.95
    """Of the mean of squared gradients; not in the paper."""
    stabiliser: float = 1e-6
    """Added to its root; not in the paper. With the 0.01 of other work these small gradients hardly move anything."""
    discount: float = 0.9
    """Not in the paper. With 0.99 this small network overestimates values until agents only walk about."""
    epsilon_steps: int = 250_000
    """Over these, exploration falls from 1 to ``epsilon_final``."""
    epsilon_final: float = 0.01
    epsilon_test: float = 0.001
    random_steps: int = 5_000
    """Transitions of random play before learning begins."""
    target_every: int = 2_000
    """Steps between two copies of the network that values are bootstrapped from."""
    replay: int = 1_000_000
    batch_size: int = 32
    """Not in the paper."""
    train_every: int = 4
    """Steps between two updates; not in the paper."""
    clip: float = 10.0
    """Largest norm of a gradient; not in the paper."""

    priority: float = 0.0
    """Share of each batch drawn among transitions that raised the potential or were rewarded."""
    bootstrap: float = 0.0
    """How much of the bootstrapped value is the potential itself at first; falls to 0 over ``fade_steps``."""
    fade_steps: int | None = 100_000
    exact: bool = False
    """A second network learns the task's own rewards from the same batches, and is the one that is tested; the first
    one only acts."""
    start_from_potential: bool = False
    """Fit all values of a state to its potential before learning (Wiewiora 2003: what shaping amounts to)."""


def dqn_many(
    models: Sequence[TabularModel | Sequence[TabularModel]],
    seeds: int,
    steps: int,
    options: DqnOptions | Sequence[DqnOptions] = DqnOptions(),  # noqa: B008  frozen
    *,
    shapings: Sequence[TabularShaping | None] | None = None,
    seed: int = 0,
    test_every: int = 5_000,
    test_episodes: int = 4,
    test_discount: float = 0.99,
    initial: Sequence[NDArray[Any] | None] | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Curves:
    """Let ``seeds`` learners learn each model for ``steps`` steps, all of them in one batch.

    What one learner does depends on the others in the batch, by the random numbers they share; the same call gives the
    same result on one device.

    >>> import gymnasium as gym, secret_rl
    >>> maze = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, window=None, layout_seed=1).unwrapped.tabular()
    >>> curves = dqn_many([maze], 2, 400, DqnOptions(random_steps=100), test_every=200, device="cpu", progress=False)
    >>> curves.returns.shape
    (1, 2, 3)

    Args:
        models: Finite tasks that observe square images (``TriggersEnv(window=None, layout_seed=...).tabular()``). In
            place of a model, several may be given: every episode of those learners is in one of them at random.
        seeds: Learners of each model.
        steps: Environment steps of each learner.
        options: For all models, or one for each; some must be the same for all.
        shapings: One for each model, or None where rewards are not shaped.
        seed: Of everything random.
        test_every: Steps between two tests, of ``test_episodes`` episodes each.
        test_episodes: See above.
        test_discount: Of the returns in ``discounted``.
        initial: Weights to start from, (seeds, parameters) or None for each model.
        device: Where to learn; by default a GPU if there is one.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    lists = [[model] if isinstance(model, TabularModel) else list(model) for model in models]
    each = one_each(options, len(lists), _SHARED)
    if each and _SIDE_BY_SIDE % each[0].train_every:
        raise ValueError(f"train_every must divide {_SIDE_BY_SIDE}, got {each[0].train_every}")
    if each and each[0].exact and any(own.bootstrap or own.start_from_potential for own in each):
        raise ValueError(
            "exact learns the task's own rewards alone: leave bootstrap and start_from_potential as they are"
        )
    every_shaping = shaped(lists, shapings, each)
    seen = np.shape(lists[0][0].observations)[1:]
    if len(seen) != 3 or seen[0] != seen[1]:
        raise ValueError(f"observations have shape {seen}, expected square images: (side, side, channels)")
    learners = _Learners(lists, every_shaping, seeds, steps, each, seed, initial, device_of(device))
    return learn_all(learners, (len(lists), seeds), steps, test_every, test_episodes, test_discount, progress)


class _Learners:
    """The state of all learners, and what happens in a step and in an update."""

    def __init__(
        self,
        models: list[list[TabularModel]],
        shapings: list[list[TabularShaping]],
        seeds: int,
        steps: int,
        options: list[DqnOptions],
        seed: int,
        given: Sequence[NDArray[Any] | None] | None,
        device: torch.device,
    ) -> None:
        self._device = device
        self._tasks = tasks = Tasks(
            [m for listed in models for m in listed], [s for listed in shapings for s in listed], first_patches, device
        )
        self._n = n = len(models) * seeds
        self._common = options[0]
        self._options = per_learner(options, seeds, device)
        self._environments = Environments(
            tasks, [len(listed) for listed in models], seeds, _SIDE_BY_SIDE, self._options
        )
        torch.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        side, _, channels = np.shape(models[0][0].observations)[1:]
        shape = Shape(-(-side // 2), channels, tasks.actions)
        self._networks = Networks(shape, device)
        parameters = initial(shape, n, torch.Generator(device).manual_seed(seed))
        for number, weights in enumerate(given or ()):
            if weights is not None:
                parameters[number * seeds : (number + 1) * seeds] = torch.as_tensor(weights, device=device)
        # Networks that act, then those that learn the task's own rewards, if any; and then the copies that values are
        # bootstrapped from: one product serves all.
        self._of_each = 2 if self._common.exact else 1
        parameters = parameters.repeat(self._of_each, 1)
        self._learning = len(parameters)
        self._own_options = {name: values.repeat(self._of_each, 1) for name, values in self._options.items()}
        self._parameters = torch.cat([parameters, parameters])
        self._all = shape.views(self._parameters)
        self._layers = shape.views(self._parameters[: self._learning])
        self._acting = shape.views(self._parameters[:n])
        self._tested = shape.views(self.weights)
        self._gradient = torch.zeros_like(parameters)
        self._gradients = shape.views(self._gradient)
        self._squares = torch.zeros_like(parameters)
        self._capacity = min(self._common.replay, steps + _SIDE_BY_SIDE) // _SIDE_BY_SIDE * _SIDE_BY_SIDE
        # A transition in one word: state, next state, action, whether it terminated.
        self._transitions = torch.zeros(n, self._capacity, dtype=torch.int64, device=device)
        self._rewards = torch.zeros(self._learning, self._capacity, device=device)
        self._some = {name: bool((values != 0).any()) for name, values in self._options.items()}
        self._credited = torch.zeros(
            n, self._capacity + 1 if self._some["priority"] else 1, dtype=torch.int32, device=device
        )
        self._credited_count = torch.zeros(n, 1, dtype=torch.int64, device=device)
        self._environments.state.copy_(self._environments.starts(self._chance()))

    @property
    def weights(self) -> Tensor:
        """(learners, parameters) of the networks that are tested."""
        return self._parameters[self._learning - self._n : self._learning]

    def learn(self, steps: int, test_every: int) -> Iterator[int]:
        """Take steps and update; gives the number of steps whenever it is time for a test."""
        step, update = self._captured(self._step), self._captured(self._updates)
        if self._some["start_from_potential"]:
            fit = self._captured(self._fit_to_potential)
            for _ in range(_FITTING):
                fit()
            self._squares.zero_()
            self._parameters[self._learning :].copy_(self._parameters[: self._learning])
        every = self._options["target_every"][:, 0].cpu().numpy()
        due = every.copy()
        now, test = 0, 0
        while True:
            if now >= test or now >= steps:
                yield now
                test += test_every
            if now >= steps:
                return
            step()
            now += _SIDE_BY_SIDE
            if now <= self._common.random_steps:
                continue
            update()
            if (now >= due).any():
                those = torch.as_tensor(now >= due, device=self._device)[:, None].repeat(self._of_each, 1)
                due[now >= due] += every[now >= due]
                now_learned, copies = self._parameters.split(self._learning)
                copies.copy_(torch.where(those, now_learned, copies))

    def test(self, episodes: int, discount: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(learners,) mean returns of test episodes: plain, and discounted."""
        start = self._tasks.starts[self._environments.first.expand(-1, episodes)]
        epsilon = torch.full((self._n, 1), self._common.epsilon_test, device=self._device)
        return self._tasks.play(start, lambda state, _: self._acted(self._tested, state, epsilon), discount)

    def _chance(self) -> Tensor:
        """(learners, environments) from 0 to 1."""
        return torch.rand(self._n, _SIDE_BY_SIDE, device=self._device)

    def _acted(self, layers: list[Layer], state: Tensor, epsilon: Tensor) -> Tensor:
        chance = torch.rand(2, *state.shape, device=self._device)
        best = self._networks.values(layers, self._tasks.inputs[state]).argmax(-1)
        return torch.where(chance[0] < epsilon, (chance[1] * self._tasks.actions).long(), best)

    def _step(self) -> None:
        """One step in every environment, into the replays."""
        options, taken = self._options, self._environments.taken.clone()
        explored = 1 - (1 - options["epsilon_final"]) * taken / options["epsilon_steps"]
        epsilon = torch.maximum(explored, options["epsilon_final"])
        epsilon = torch.where(taken < options["random_steps"], 1.0, epsilon)
        action = self._acted(self._acting, self._environments.state, epsilon)
        steps = self._environments.step(action, self._chance())
        credited = (steps.rise > _RISE) | (steps.reward > 0)
        places = ((taken + torch.arange(_SIDE_BY_SIDE, device=self._device)) % self._capacity).expand(self._n, -1)
        word = ((steps.state << 24 | steps.following) << 8) | (action << 1) | steps.terminated
        self._transitions.scatter_(1, places, word)
        learned = torch.cat([steps.paid, steps.reward]) if self._common.exact else steps.paid
        self._rewards.scatter_(1, places.repeat(self._of_each, 1), learned)
        if self._some["priority"]:
            order = self._credited_count + credited.long().cumsum(1) - 1
            self._credited.scatter_(1, torch.where(credited, order % self._capacity, self._capacity), places.int())
            self._credited_count += credited.sum(1, keepdim=True)

    def _updates(self) -> None:
        for _ in range(max(1, _SIDE_BY_SIDE // self._common.train_every)):
            self._update()

    def _update(self) -> None:
        """One update of every network, on a batch of its own replay."""
        options, n = self._own_options, self._learning
        word, reward = self._sampled()
        terminated, action = (word & 1) == 1, (word >> 1) & 127
        following, state = (word >> 8) & (2**24 - 1), word >> 32
        inputs = self._networks.forward(self._all, self._tasks.inputs[torch.cat([state, following])])
        value = inputs[-1][n:].max(-1).values
        if self._some["bootstrap"]:
            share = options["bootstrap"] * self._environments.fading()
            value = (1 - share) * value + share * self._tasks.potential[following]
        target = reward + options["discount"] * value * ~terminated
        own = inputs[-1][:n].gather(2, action[..., None])[..., 0]
        error = (own - target).clamp(-1, 1) / self._common.batch_size  # gradient of the Huber loss
        of_values = torch.zeros_like(inputs[-1][:n]).scatter_(2, action[..., None], error[..., None])
        self._descend([layer_inputs[:n] for layer_inputs in inputs], of_values)

    def _sampled(self) -> tuple[Tensor, Tensor]:
        """(networks, batch) transitions and their rewards; both networks of a learner have the same."""
        size = self._common.batch_size
        chance = torch.rand(self._n, size, device=self._device)
        places = (chance * self._environments.taken.clamp(max=self._capacity)).long()
        if self._some["priority"]:
            known = self._credited_count.clamp(max=self._capacity)
            credited = self._credited.gather(1, (chance * known).long()).long()
            first = torch.arange(size, device=self._device) < size * self._options["priority"]
            places = torch.where(first & (known > 0), credited, places)
        words = self._transitions.gather(1, places).repeat(self._of_each, 1)
        return words, self._rewards.gather(1, places.repeat(self._of_each, 1))

    def _fit_to_potential(self) -> None:
        """One update towards values that are all the potential of their state."""
        chance = torch.rand(self._n, self._common.batch_size, device=self._device)
        state = self._tasks.model_of(self._environments.starts(torch.rand_like(chance))) * self._tasks.states
        state = state + (chance * self._tasks.states).long()
        inputs = self._networks.forward(self._layers, self._tasks.inputs[state])
        error = (inputs[-1] - self._tasks.potential[state][..., None]).clamp(-1, 1) / self._common.batch_size
        self._descend(inputs, error * self._options["start_from_potential"][..., None])

    def _descend(self, inputs: list[Tensor], of_values: Tensor) -> None:
        """RMSProp, each network by itself."""
        options, gradient = self._own_options, self._gradient
        self._networks.backward(self._layers, inputs, of_values, self._gradients)
        norm = gradient.square().sum(1, keepdim=True).sqrt()
        gradient *= (self._common.clip / (norm + 1e-6)).clamp(max=1)
        self._squares.mul_(options["decay"]).add_(gradient.square() * (1 - options["decay"]))
        learned = self._parameters[: self._learning]
        learned.sub_(options["learning_rate"] * gradient / (self._squares.sqrt() + options["stabiliser"]))

    def _captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """On a GPU, the same work as one graph: launching its kernels one by one would take longer than they do."""
        if self._device.type != "cuda":
            return work
        changing = (
            self._parameters, self._squares, self._credited_count, self._transitions, self._rewards, self._credited,
            *self._environments.changing,
        )  # fmt: skip
        kept = [tensor.clone() for tensor in changing]
        self._environments.taken += _SIDE_BY_SIDE  # so that there is something to learn from
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            work()
        for tensor, before in zip(changing, kept, strict=True):
            tensor.copy_(before)
        return graph.replay
