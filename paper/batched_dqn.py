"""The paper's DQN on finite tasks: tasks x seeds in one batch, every learner with a network and a replay of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.batched_networks import Networks, Shape, first_patches, initial
from secret_rl.envs.tabular import TabularModel, TabularShaping, check_model, check_shaping
from secret_rl.progress import progress_bar

_SIDE_BY_SIDE = 8  # environments of each learner
_FITTING = 3_000  # updates that fit values to a potential before learning
_RISE = 1e-3  # of a potential that counts as credit
_SHARED = ("random_steps", "batch_size", "train_every", "clip", "epsilon_test", "replay")


@dataclass(frozen=True, kw_only=True)
class DqnOptions:
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

    shaping: bool = True
    """Add the potential's shaping to the rewards, where a task has a potential."""
    priority: float = 0.0
    """Share of each batch drawn among transitions that raised the potential or were rewarded."""
    bootstrap: float = 0.0
    """How much of the bootstrapped value is the potential itself at first; falls to 0 over ``fade_steps``."""
    bonus: float = 0.0
    """Times the rise of the potential, added to the reward at first. Until it has faded, over ``fade_steps``, other
    policies may be optimal."""
    fade_steps: int = 100_000
    start_from_potential: bool = False
    """Fit all values of a state to its potential before learning (Wiewiora 2003: what shaping amounts to)."""


@dataclass(frozen=True, eq=False)
class DqnCurves:
    """How well every learner did, tested without shaping and with hardly any exploration."""

    steps: NDArray[np.int64]
    """(tests,) steps taken before each test."""
    returns: NDArray[np.float32]
    """(models, seeds, tests) mean undiscounted return of the test episodes."""
    discounted: NDArray[np.float32]
    """(models, seeds, tests) the same, discounted by ``test_discount``."""
    weights: NDArray[np.float32]
    """(models, seeds, parameters) the networks in the end, for ``initial`` of another call."""


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
) -> DqnCurves:
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
    each = [options] * len(lists) if isinstance(options, DqnOptions) else list(options)
    if len(each) != len(lists):
        raise ValueError(f"{len(lists)} models but {len(each)} options: give one, or one for each model")
    for name in _SHARED:
        if len({getattr(option, name) for option in each}) > 1:
            raise ValueError(f"{name} must be the same for all models: learn them in different calls")
    if each and _SIDE_BY_SIDE % each[0].train_every:
        raise ValueError(f"train_every must divide {_SIDE_BY_SIDE}, got {each[0].train_every}")
    shaped = [
        [TabularShaping.of(model, option.discount) if shaping is None else shaping for model in listed]
        for listed, shaping, option in zip(lists, shapings or [None] * len(lists), each, strict=True)
    ]
    _check(lists, shaped, each)
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    learners = _Learners(lists, shaped, seeds, steps, each, seed, initial, where)
    tests, tested = [], []
    with torch.no_grad(), progress_bar(progress, "steps") as tick:
        for now in learners.learn(steps, test_every):
            tested.append(now)
            tests.append(learners.test(test_episodes, test_discount))
            tick(f"return {tests[-1][0].mean():.2f}", min(now, steps), steps)
    shape = (len(lists), seeds)
    returns, discounted = (np.stack(column, -1).reshape(*shape, -1) for column in zip(*tests, strict=True))
    weights = learners.online.cpu().numpy().reshape(*shape, -1)
    return DqnCurves(np.array(tested), returns, discounted, weights)


def _check(
    models: list[list[TabularModel]], shapings: list[list[TabularShaping]], options: Sequence[DqnOptions]
) -> None:
    """Raise where tasks do not fit together, or were shaped for another discount."""
    expected = None
    for number, (listed, shaped, option) in enumerate(zip(models, shapings, options, strict=True)):
        for model, shaping in zip(listed, shaped, strict=True):
            check_model(model)
            check_shaping(shaping, model)
            sizes = (*np.shape(model.observations)[1:], model.next_states.shape[1], model.max_steps)
            expected = expected or sizes
            if sizes != expected or len(sizes) != 5 or sizes[0] != sizes[1]:
                raise ValueError(
                    f"model {number} has (side, side, channels, actions, steps) {sizes}, expected square images and "
                    f"the sizes {expected} of the first model: learn tasks of different sizes in different calls"
                )
            if shaping.discount != option.discount:
                raise ValueError(
                    f"model {number} is shaped with discount {shaping.discount}, but the agent's is {option.discount}"
                )


class Tasks:
    """Models and shapings end to end: state ``s`` of model ``m`` is state ``m * states + s`` of all."""

    def __init__(
        self, models: Sequence[TabularModel], shapings: Sequence[TabularShaping], device: torch.device
    ) -> None:
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
        self.potential = joined([s.scale * s.potential for s in shapings], np.float32)
        earned = [s.scale * s.credit[s.pairs] for s in shapings]
        self.credit = joined(earned, np.float32).view(-1)  # what a pair adds to the running sum
        once = [s.once for s in shapings]
        self.once = torch.tensor(once, device=device) if any(once) else None
        self.credit_rows = joined([s.pairs for s in shapings], np.int64).view(-1)
        self.most_rows = max(len(s.credit) for s in shapings)
        self.patches = joined([first_patches(np.asarray(m.observations)) for m in models], np.float32)
        self.caps = torch.tensor([min(s.scale * s.cap, 1e9) for s in shapings], device=device)
        self.starts = torch.tensor([f + m.start for f, m in zip(first.tolist(), models, strict=True)], device=device)
        self.keep_on_truncation = torch.tensor([s.keep_on_truncation for s in shapings], device=device)

    def model_of(self, states: Tensor) -> Tensor:
        """Which model each state belongs to."""
        return states // self.states


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
            [m for listed in models for m in listed], [s for listed in shapings for s in listed], device
        )
        self._n = n = len(models) * seeds
        self._common = options[0]
        self._options = {
            field.name: torch.tensor([float(getattr(o, field.name)) for o in options], device=device)
            .repeat_interleave(seeds)[:, None]
            for field in fields(DqnOptions)
        }  # fmt: skip
        firsts = np.concatenate([[0], np.cumsum([len(listed) for listed in models])])
        self._first = torch.as_tensor(firsts[:-1], device=device).repeat_interleave(seeds)[:, None]
        self._several = torch.as_tensor(np.diff(firsts), device=device).repeat_interleave(seeds)[:, None]
        torch.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        self._networks = Networks(tasks.shape, device)
        # Networks first, then the copies that values are bootstrapped from: one product serves both.
        parameters = initial(tasks.shape, n, torch.Generator(device).manual_seed(seed))
        for number, weights in enumerate(given or ()):
            if weights is not None:
                parameters[number * seeds : (number + 1) * seeds] = torch.as_tensor(weights, device=device)
        self._parameters = torch.cat([parameters, parameters])
        self._both = tasks.shape.views(self._parameters)
        self._layers = tasks.shape.views(self.online)
        self._gradient = torch.zeros_like(parameters)
        self._gradients = tasks.shape.views(self._gradient)
        self._squares = torch.zeros_like(parameters)
        self._capacity = min(self._common.replay, steps + _SIDE_BY_SIDE) // _SIDE_BY_SIDE * _SIDE_BY_SIDE
        # A transition in one word: state, next state, action, whether it terminated.
        self._transitions = torch.zeros(n, self._capacity, dtype=torch.int64, device=device)
        self._rewards = torch.zeros(n, self._capacity, device=device)
        self._some = {name: bool((values != 0).any()) for name, values in self._options.items()}
        self._credited = torch.zeros(
            n, self._capacity + 1 if self._some["priority"] else 1, dtype=torch.int32, device=device
        )
        self._credited_count = torch.zeros(n, 1, dtype=torch.int64, device=device)
        self._taken = torch.zeros((), dtype=torch.int64, device=device)
        self._state = self._drawn_starts()
        self._time = torch.zeros_like(self._state)
        self._sum = torch.zeros(self._state.shape, device=device)
        rows = 0 if tasks.once is None else tasks.most_rows
        self._paid = torch.zeros(*self._state.shape, rows, dtype=torch.bool, device=device)  # rows of credit

    @property
    def online(self) -> Tensor:
        """(learners, parameters) of the networks that act."""
        return self._parameters[: self._n]

    def learn(self, steps: int, test_every: int) -> Any:
        """Take steps and update; gives the number of steps whenever it is time for a test."""
        step, update = self._captured(self._step), self._captured(self._updates)
        if self._some["start_from_potential"]:
            fit = self._captured(self._fit_to_potential)
            for _ in range(_FITTING):
                fit()
            self._squares.zero_()
            self._parameters[self._n :].copy_(self.online)
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
                those = torch.as_tensor(now >= due, device=self._device)[:, None]
                due[now >= due] += every[now >= due]
                self._parameters[self._n :].copy_(torch.where(those, self.online, self._parameters[self._n :]))

    def test(self, episodes: int, discount: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(learners,) mean returns of test episodes: plain, and discounted."""
        state = self._tasks.starts[self._first.expand(-1, episodes)]
        gained = torch.zeros(2, *state.shape, device=self._device)
        running = torch.ones_like(state, dtype=torch.bool)
        epsilon = torch.full((self._n, 1), self._common.epsilon_test, device=self._device)
        for time in range(self._tasks.max_steps):
            pair = state * self._tasks.actions + self._acted(state, epsilon)
            reward = self._tasks.rewards[pair] * running
            gained += torch.stack([reward, discount**time * reward])
            move = self._tasks.moves[pair]
            running &= (move & 1) == 0
            state = move >> 1
        plain, discounted = gained.mean(-1).cpu().numpy()
        return plain, discounted

    def _drawn_starts(self) -> Tensor:
        """(learners, side by side) the first states of new episodes, in one of the learner's tasks."""
        chance = torch.rand(self._n, _SIDE_BY_SIDE, device=self._device)
        return self._tasks.starts[self._first + (chance * self._several).long()]

    def _acted(self, state: Tensor, epsilon: Tensor) -> Tensor:
        chance = torch.rand(2, *state.shape, device=self._device)
        best = self._networks.values(self._layers, self._tasks.patches[state]).argmax(-1)
        return torch.where(chance[0] < epsilon, (chance[1] * self._tasks.actions).long(), best)

    def _step(self) -> None:
        """One step in every environment, into the replays."""
        tasks, options = self._tasks, self._options
        explored = 1 - (1 - options["epsilon_final"]) * self._taken / options["epsilon_steps"]
        epsilon = torch.maximum(explored, options["epsilon_final"])
        action = self._acted(self._state, torch.where(self._taken < options["random_steps"], 1.0, epsilon))
        pair = self._state * tasks.actions + action
        move, reward = tasks.moves[pair], tasks.rewards[pair]
        following, terminated = move >> 1, (move & 1) == 1
        self._time += 1
        ended = terminated | (self._time >= tasks.max_steps)
        model = tasks.model_of(self._state)
        added, cap = tasks.credit[pair], tasks.caps[model]
        if tasks.once is not None:
            row = tasks.credit_rows[pair][..., None]
            added = added * ~(self._paid.gather(2, row)[..., 0] & tasks.once[model])
            self._paid.scatter_(2, row, True)
        earned = self._sum + added
        before = tasks.potential[self._state] + torch.minimum(self._sum, cap)
        known = ~terminated & (~ended | tasks.keep_on_truncation[model])
        after = (tasks.potential[following] + torch.minimum(earned, cap)) * known
        rise = after - before
        credited = (rise > _RISE) | (reward > 0)
        reward = reward + options["shaping"] * (options["discount"] * after - before)
        if self._some["bonus"]:
            reward = reward + options["bonus"] * self._fading() * rise.clamp(min=0)
        places = ((self._taken + torch.arange(_SIDE_BY_SIDE, device=self._device)) % self._capacity).expand(self._n, -1)
        word = ((self._state << 24 | following) << 8) | (action << 1) | terminated
        self._transitions.scatter_(1, places, word)
        self._rewards.scatter_(1, places, reward)
        if self._some["priority"]:
            order = self._credited_count + credited.long().cumsum(1) - 1
            self._credited.scatter_(1, torch.where(credited, order % self._capacity, self._capacity), places.int())
            self._credited_count += credited.sum(1, keepdim=True)
        self._taken += _SIDE_BY_SIDE
        self._state.copy_(torch.where(ended, self._drawn_starts(), following))
        self._time *= ~ended
        self._sum.copy_(torch.where(ended, 0.0, earned))
        self._paid &= ~ended[..., None]

    def _updates(self) -> None:
        for _ in range(max(1, _SIDE_BY_SIDE // self._common.train_every)):
            self._update()

    def _update(self) -> None:
        """One update of every network, on a batch of its own replay."""
        options, n = self._options, self._n
        word, reward = self._sampled()
        terminated, action = (word & 1) == 1, (word >> 1) & 127
        following, state = (word >> 8) & (2**24 - 1), word >> 32
        inputs = self._networks.forward(self._both, self._tasks.patches[torch.cat([state, following])])
        value = inputs[-1][n:].max(-1).values
        if self._some["bootstrap"]:
            share = options["bootstrap"] * self._fading()
            value = (1 - share) * value + share * self._tasks.potential[following]
        target = reward + options["discount"] * value * ~terminated
        own = inputs[-1][:n].gather(2, action[..., None])[..., 0]
        error = (own - target).clamp(-1, 1) / self._common.batch_size  # gradient of the Huber loss
        of_values = torch.zeros_like(inputs[-1][:n]).scatter_(2, action[..., None], error[..., None])
        self._descend([layer_inputs[:n] for layer_inputs in inputs], of_values)

    def _sampled(self) -> tuple[Tensor, Tensor]:
        """(learners, batch) transitions and their rewards."""
        size = self._common.batch_size
        chance = torch.rand(self._n, size, device=self._device)
        places = (chance * self._taken.clamp(max=self._capacity)).long()
        if self._some["priority"]:
            known = self._credited_count.clamp(max=self._capacity)
            credited = self._credited.gather(1, (chance * known).long()).long()
            first = torch.arange(size, device=self._device) < size * self._options["priority"]
            places = torch.where(first & (known > 0), credited, places)
        return self._transitions.gather(1, places), self._rewards.gather(1, places)

    def _fit_to_potential(self) -> None:
        """One update towards values that are all the potential of their state."""
        chance = torch.rand(self._n, self._common.batch_size, device=self._device)
        state = (self._first + (torch.rand_like(chance) * self._several).long()) * self._tasks.states
        state = state + (chance * self._tasks.states).long()
        inputs = self._networks.forward(self._layers, self._tasks.patches[state])
        error = (inputs[-1] - self._tasks.potential[state][..., None]).clamp(-1, 1) / self._common.batch_size
        self._descend(inputs, error * self._options["start_from_potential"][..., None])

    def _descend(self, inputs: list[Tensor], of_values: Tensor) -> None:
        """RMSProp, each network by itself."""
        options, gradient = self._options, self._gradient
        self._networks.backward(self._layers, inputs, of_values, self._gradients)
        norm = gradient.square().sum(1, keepdim=True).sqrt()
        gradient *= (self._common.clip / (norm + 1e-6)).clamp(max=1)
        self._squares.mul_(options["decay"]).add_(gradient.square() * (1 - options["decay"]))
        self.online.sub_(options["learning_rate"] * gradient / (self._squares.sqrt() + options["stabiliser"]))

    def _fading(self) -> Tensor:
        """(learners, 1) from 1 to 0."""
        return (1 - self._taken / self._options["fade_steps"]).clamp(min=0)

    def _captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """On a GPU, the same work as one graph: launching its kernels one by one would take longer than they do."""
        if self._device.type != "cuda":
            return work
        changing = (
            self._parameters, self._squares, self._state, self._time, self._sum, self._taken, self._credited_count,
            self._transitions, self._rewards, self._credited, self._paid,
        )  # fmt: skip
        kept = [tensor.clone() for tensor in changing]
        self._taken += _SIDE_BY_SIDE  # so that there is something to learn from
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
