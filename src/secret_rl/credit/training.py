"""Updates of the reward predictor, on any device, a pure function of the seed and the number of the update.

Everything random in update ``n`` comes from ``(seed, n)``, so training can stop after any update and go on later
to the same weights.
"""

import gc
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.encoders import has_colours, recoloured
from secret_rl.credit.measures import Confusion
from secret_rl.credit.model import Dropout, RewardPredictor, weighted_loss
from secret_rl.credit.options import CLASSES, TrainingOptions
from secret_rl.credit.tokens import Batch, NearTokens, Tokens, as_tensor, map_nest

_EVALUATION_BATCH_STEPS = 1 << 16  # steps per evaluation batch: bounds memory for long episodes
_GRAPH_TABLE = 1 << 14  # tokens up to which a whole table is encoded at each update on a GPU


@dataclass(frozen=True)
class Evaluation:
    """The loss and the predictions on held-out trajectories."""

    loss: float
    confusion: Confusion


def update_seed(seed: int, step: int) -> int:
    """The seed of everything random in update ``step``: what came before it, in this process or another, has no say."""
    return (seed * 1_000_003 + step) % 2**63


class Trainer:
    """One initialisation of the predictor, its optimiser and the trajectories it learns from."""

    def __init__(
        self,
        model: RewardPredictor,
        tokens: Tokens,
        episodes: NDArray[np.int64],
        class_weights: tuple[float, float, float],
        options: TrainingOptions,
        seed: int,
        device: torch.device,
    ) -> None:
        if options.recolour and not has_colours(model.observation_encoder):
            raise ValueError(
                "recolour=True needs pictures of three colours, (height, width, 3), and these observations hold none: "
                "leave it out"
            )
        self.model = model.to(device)
        self.tokens, self.episodes, self.options, self.seed, self.device = tokens, episodes, options, seed, device
        self.class_weights = torch.tensor(class_weights, device=device)
        self.planned_steps = options.planned_steps(len(episodes))
        self.step = 0
        self._looking_cost = torch.zeros((), device=device)
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=torch.tensor(options.learning_rate, device=device) if device.type == "cuda" else options.learning_rate,
            capturable=device.type == "cuda",
            fused=device.type == "cuda" or None,
        )
        self._batches: tuple[int, list[NDArray[np.int64]]] = (-1, [])
        self._reader = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[Batch]] | None = None
        self._graph: _GraphedUpdate | None = None
        if (
            device.type == "cuda"
            and tokens.ids is not None
            and len(next(iter(_leaves(tokens.actions)))) <= _GRAPH_TABLE
        ):
            self._graph = _GraphedUpdate(self)

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine to 0."""
        warmup = min(self.options.warmup, self.planned_steps // 10)
        if step < warmup:
            return self.options.learning_rate * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.planned_steps - warmup)
        return self.options.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def looking_cost(self, step: int) -> float:
        """Nothing until 30 % of the updates are made, then rising to the full price at 60 %."""
        return self.options.looking_cost * min(1.0, max(0.0, (step / self.planned_steps - 0.3) / 0.3))

    def train(self, updates: int) -> float:
        """Make some updates; give the mean loss."""
        self.model.train()
        losses = []
        for _ in range(updates):
            self._set_learning_rate(self.learning_rate(self.step))
            self._looking_cost.fill_(self.looking_cost(self.step))
            episodes = self._episodes_of(self.step)
            update = self._graph if self._graph is not None else self._update
            losses.append(update(episodes))
            self.step += 1
        return float(torch.stack(losses).mean())

    def _update(self, episodes: NDArray[np.int64]) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(update_seed(self.seed, self.step))
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(self._batch(episodes), generator)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def _batch(self, episodes: NDArray[np.int64]) -> Batch:
        """The batch of this update; that of the next one is read meanwhile where reading takes time."""
        if self.tokens.ids is not None or isinstance(self.tokens, NearTokens):
            return self.tokens.batch(episodes, self.device)
        step, reading = self._ahead or (self.step, self._reader.submit(self._read, episodes))
        if step != self.step:  # restored since
            reading = self._reader.submit(self._read, episodes)
        batch = reading.result().to(self.device)
        self._ahead = self.step + 1, self._reader.submit(self._read, self._episodes_of(self.step + 1))
        return batch

    def _read(self, episodes: NDArray[np.int64]) -> Batch:
        batch = self.tokens.batch(episodes)
        return batch.pinned() if self.device.type == "cuda" else batch

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The training loss of a batch, with dropout and shifted positions."""
        dropout = Dropout(generator)
        shift = torch.randint(
            self.model.options.max_position_shift + 1, (len(batch.index),), generator=generator, device=self.device
        )
        observations = batch.observations
        if self.options.recolour:
            observations = recoloured(self.model.observation_encoder, observations, generator)
        tokens = self.model.encode(observations, batch.actions, dropout)
        prediction = self.model(tokens, batch.index, shift, dropout)
        return weighted_loss(prediction, batch.classes, batch.lengths, self.class_weights, self._looking_cost)

    def _episodes_of(self, step: int) -> NDArray[np.int64]:
        size = min(self.options.batch_size, len(self.episodes))
        per_pass = -(-len(self.episodes) // size)
        number, position = divmod(step, per_pass)
        if self._batches[0] != number:
            rng = np.random.default_rng([self.seed, number])
            self._batches = (number, self.tokens.order(self.episodes, size, rng))
        return self._batches[1][position]

    def _set_learning_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def evaluate(self, episodes: NDArray[np.int64]) -> Evaluation:
        """Loss and predictions on some episodes, without dropout."""
        return evaluate(self.model, self.tokens, episodes, self.class_weights, self.device)

    def state(self) -> dict[str, Tensor]:
        """Everything that updates change, by name."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser.{key}.{name}"] = torch.as_tensor(value)
        return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Go on from ``state`` after ``step`` updates. Written in place, where a CUDA graph finds it."""
        self.step = step
        model = {n.removeprefix("model."): v for n, v in tensors.items() if n.startswith("model.")}
        self.model.load_state_dict(model)
        for name, parameter in self.model.named_parameters():
            current = self.optimiser.state[parameter]
            for key in ("step", "exp_avg", "exp_avg_sq"):
                wanted = tensors.get(f"optimiser.{key}.{name}")  # none before the first update
                if key in current:
                    current[key].zero_() if wanted is None else current[key].copy_(wanted)
                elif wanted is not None:
                    on_cpu = key == "step" and self.device.type != "cuda"
                    current[key] = wanted.to("cpu" if on_cpu else self.device, copy=True)


@torch.no_grad()
def evaluate(
    model: RewardPredictor,
    tokens: Tokens,
    episodes: NDArray[np.int64],
    class_weights: Tensor,
    device: torch.device,
) -> Evaluation:
    """Loss and predictions on some episodes, without dropout."""
    model.eval()
    loss, counts = 0.0, np.zeros((len(CLASSES), len(CLASSES)), np.int64)
    for part in _evaluation_batches(tokens, episodes):
        batch = tokens.batch(part, device)
        encoded = model.encode(batch.observations, batch.actions, Dropout(None))
        prediction = model(encoded, batch.index)
        loss += float(weighted_loss(prediction, batch.classes, batch.lengths, class_weights)) * len(part)
        real = torch.arange(batch.index.shape[1], device=device) < batch.lengths[:, None]
        pairs = batch.classes[real] * len(CLASSES) + prediction.logits.argmax(-1)[real]
        counts += torch.bincount(pairs, minlength=counts.size).reshape(counts.shape).cpu().numpy()
    return Evaluation(loss / len(episodes), Confusion(counts))


def _evaluation_batches(tokens: Tokens, episodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    longest = int(tokens.lengths[episodes].max())
    yield from tokens.in_order(episodes, max(1, _EVALUATION_BATCH_STEPS // longest))


class _GraphedUpdate:
    """A whole update as one CUDA graph: the table of tokens stays on the GPU, an update is told its episodes.

    A model this small is bound by the time it takes to launch kernels; replaying a graph launches them all at once.
    Where there is no CUDA the update is run in place of the graph, so that everything else can be tested there.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        device, tokens = trainer.device, trainer.tokens
        assert tokens.ids is not None
        self.observations, self.actions = (
            map_nest(lambda a: as_tensor(np.asarray(a)).to(device), nest)
            for nest in (tokens.observations, tokens.actions)
        )
        self.ids = torch.from_numpy(tokens.ids).to(device)
        self.classes = torch.from_numpy(np.sign(tokens.rewards).astype(np.int8) + np.int8(1)).to(device)
        self.starts = torch.from_numpy(tokens.offsets[:-1].copy()).to(device)
        self.lengths = torch.from_numpy(tokens.lengths).to(device)
        self.time = torch.arange(int(tokens.lengths[trainer.episodes].max()), device=device)
        size = min(trainer.options.batch_size, len(trainer.episodes))
        self.episodes = torch.zeros(size, dtype=torch.int64, device=device)
        self.generator = torch.Generator(device)
        self.loss = torch.compile(trainer.loss, dynamic=False) if trainer.options.compile else trainer.loss
        self.graph: torch.cuda.CUDAGraph | _NoGraph | None = None
        self.result = torch.zeros((), device=device)

    def __call__(self, episodes: NDArray[np.int64]) -> Tensor:
        if len(episodes) < len(self.episodes):  # the last batch of a pass: fill it up
            episodes = np.resize(episodes, len(self.episodes))
        self.episodes.copy_(torch.from_numpy(episodes), non_blocking=True)
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        # After warming up, which draws too. A graph reads its generator's seed and offset whenever it is replayed.
        self.generator.manual_seed(update_seed(self.trainer.seed, self.trainer.step))
        self.graph.replay()
        return self.result.clone()

    def _capture(self) -> None:
        """Record an update; the ones that warm it up are undone."""
        before = self.trainer.state()
        if self.trainer.device.type == "cuda":
            self.graph = self._recorded()
        else:
            self._run()
            self.graph = _NoGraph(self._run)
        self.trainer.restore(before, self.trainer.step)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        gc.collect()  # a graph of an earlier trainer, freed in the middle of recording, would spoil it
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self._run()
        return graph

    def _run(self) -> None:
        lengths = self.lengths[self.episodes]
        rows = self.starts[self.episodes][:, None] + torch.minimum(self.time, lengths[:, None] - 1)
        batch = Batch(self.observations, self.actions, self.ids[rows].long(), self.classes[rows].long(), lengths)
        self.trainer.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(batch, self.generator)
        loss.backward()
        self.trainer.optimiser.step()
        self.result.copy_(loss.detach())


class _NoGraph:
    """Runs what a graph would replay."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.replay = run


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, dict):
        for part in nest.values():
            yield from _leaves(part)
    elif isinstance(nest, tuple):
        for part in nest:
            yield from _leaves(part)
    else:
        yield nest
