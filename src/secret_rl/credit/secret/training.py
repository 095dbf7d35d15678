"""Updates of the reward predictor, on any device, a pure function of the seed and the number of the update.

Everything random in update ``n`` comes from ``(seed, n)``, so training can stop after any update and go on later
to the same weights.
"""

import gc
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.report import Confusion
from secret_rl.credit.secret.model import Dropout, RewardPredictor, weighted_loss
from secret_rl.credit.secret.options import TrainingOptions
from secret_rl.credit.secret.tokens import Batch, Tokens

_EVALUATION_BATCH_STEPS = 1 << 16  # steps per evaluation batch: bounds memory for long episodes
_MOST_PAIRS = 1 << 25  # pairs of steps that attend to each other at a time
_MOST_GRADIENT = 1.0  # norm
_WINDOW = 32  # updates whose episodes are drawn together
_COOLING, _LEAST_COOLING = 0.7, 150  # updates of the cooling down: a share of those before it, but so many at least
_HIDING = 0.5  # share of the episodes in which steps are hidden, at first
_GRAPH_TABLE = 1 << 14  # tokens up to which a whole table is encoded at each update on a GPU
_TEACH_UPDATES, _TEACH_BATCH, _TEACH_RATE = 400, 512, 2e-3
_TEACH_COOLING = 0.3  # share of the updates in which the learning rate falls


class Evaluation(NamedTuple):
    """Predictions on held-out trajectories."""

    confusion: Confusion
    log_probabilities: NDArray[np.float32]  # (steps of these trajectories,) of each reward's class


def at_a_time(longest: int) -> int:
    """Episodes of so many steps whose attention fits in memory together."""
    return max(1, _MOST_PAIRS // longest**2)


def update_seed(seed: int, step: int) -> int:
    """The seed of everything random in update ``step``, whatever came before it."""
    return (seed * 1_000_003 + step) % 2**63


def on_cpu(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Copies of tensors, by name."""
    return {name: torch.as_tensor(value).detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


class Trainer:
    """One initialisation of the predictor, its optimiser and the trajectories it learns from."""

    def __init__(
        self,
        model: RewardPredictor,
        tokens: Tokens,
        episodes: NDArray[np.int64],
        draw: NDArray[np.float64],
        options: TrainingOptions,
        seed: int,
        device: torch.device,
    ) -> None:
        self.model = model.to(device)
        self.tokens, self.episodes, self.options, self.seed, self.device = tokens, episodes, options, seed, device
        self._drawn_up_to = np.cumsum(draw) / np.sum(draw)
        self.planned_steps = options.planned_steps(len(episodes))
        self.batch_size = min(options.batch_size, len(episodes), at_a_time(int(tokens.lengths[episodes].max())))
        self.step = 0
        self.cooling_from: int | None = None
        """The update from which the learning rate falls; None: not yet."""
        self.last_step = self.planned_steps
        self.half_learned_at: int | None = None
        """The update from which fewer and fewer steps are hidden; None: not yet."""
        self._attention_penalty = torch.zeros((), device=device)
        self._hiding = torch.ones((), device=device)
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=torch.tensor(options.learning_rate, device=device) if device.type == "cuda" else options.learning_rate,
            capturable=device.type == "cuda",
            fused=device.type == "cuda" or None,
        )
        self._batches: tuple[int, list[NDArray[np.int64]]] = (-1, [])
        self._graph: _GraphedUpdate | None = None
        if device.type == "cuda" and tokens.ids is not None and len(tokens.first) <= _GRAPH_TABLE:
            self._graph = _GraphedUpdate(self)

    def cool_down(self) -> None:
        """From now on the learning rate falls to 0, and attention is penalised."""
        self.cooling_from = self.step
        self.last_step = min(self.planned_steps, self.step + max(round(_COOLING * self.step), _LEAST_COOLING))

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then constant, then a cosine to 0."""
        warmup = max(1, min(self.options.warmup, self.planned_steps // 10))
        rate = self.options.learning_rate * min(1.0, (step + 1) / warmup)
        return rate * 0.5 * (1 + math.cos(math.pi * self._cooled(step)))

    def attention_penalty(self, step: int) -> float:
        """Nothing while it learns; the full penalty from a third of the cooling down on."""
        return self.options.attention_penalty * min(1.0, 3 * self._cooled(step))

    def hiding(self, step: int) -> float:
        """The share of the episodes in which rows fail to see steps: half until half is learned, then fewer and fewer.

        By then the model knows what to look for in either case. What counts several steps needs to see all, in the
        other episodes from the start.
        """
        if self.half_learned_at is None:
            return _HIDING * (1 - self._cooled(step))
        return _HIDING * max(0.0, 1 - (step - self.half_learned_at) / self.half_learned_at)

    def _cooled(self, step: int) -> float:
        """How far the cooling down has come, from 0 to 1."""
        if self.cooling_from is None:
            return 0.0
        return min(1.0, (step - self.cooling_from) / max(1, self.last_step - self.cooling_from))

    def train(self, updates: int) -> float:
        """Make some updates; give the mean loss."""
        self.model.train()
        losses = []
        for _ in range(updates):
            rate = self.learning_rate(self.step)
            for group in self.optimiser.param_groups:
                group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
            self._attention_penalty.fill_(self.attention_penalty(self.step))
            self._hiding.fill_(self.hiding(self.step))
            update = self._update if self._graph is None else self._graph
            losses.append(update(self._episodes_of(self.step)))
            self.step += 1
        return float(torch.stack(losses).mean())

    def _update(self, episodes: NDArray[np.int64]) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(update_seed(self.seed, self.step))
        return self.descend(self.loss(self.tokens.batch(episodes, self.device), generator))

    def descend(self, loss: Tensor) -> Tensor:
        """One step of the optimiser down the gradient of a loss."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), _MOST_GRADIENT)
        self.optimiser.step()
        return loss.detach()

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The training loss of a batch, with dropout."""
        dropout = Dropout(generator, self._hiding)
        prediction = self.model(self.model.encode(batch.rows, dropout), batch.index, dropout)
        return weighted_loss(prediction, batch.classes, batch.weights, self._attention_penalty)

    def _episodes_of(self, step: int) -> NDArray[np.int64]:
        """The episodes of an update, drawn in proportion to ``draw``, as evenly as chance allows."""
        number, position = divmod(step, _WINDOW)
        if self._batches[0] != number:
            rng = np.random.default_rng([self.seed, number])
            wanted = _WINDOW * self.batch_size
            places = (np.arange(wanted) + rng.random()) / wanted
            chosen = np.minimum(np.searchsorted(self._drawn_up_to, places, side="right"), len(self.episodes) - 1)
            self._batches = (number, self.tokens.by_length(self.episodes[chosen], self.batch_size, rng))
        return self._batches[1][position]

    def counters(self) -> dict[str, int | None]:
        """What ``restore`` needs beside ``state``."""
        return {name: getattr(self, name) for name in ("step", "cooling_from", "last_step", "half_learned_at")}

    def state(self) -> dict[str, Tensor]:
        """Every tensor that updates change, by name."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser.{key}.{name}"] = value
        return on_cpu(tensors)

    def restore(self, tensors: dict[str, Tensor], **counters: int | None) -> None:
        """Go on from ``state`` and ``counters``. Written in place, where a CUDA graph finds it."""
        vars(self).update(counters)
        model = {n.removeprefix("model."): v for n, v in tensors.items() if n.startswith("model.")}
        self.model.load_state_dict(model)
        for name, parameter in self.model.named_parameters():
            current = self.optimiser.state[parameter]
            for key in ("step", "exp_avg", "exp_avg_sq"):
                wanted = tensors.get(f"optimiser.{key}.{name}")  # none before the first update
                if key in current:
                    current[key].zero_() if wanted is None else current[key].copy_(wanted)
                elif wanted is not None:
                    on_host = key == "step" and self.device.type != "cuda"
                    current[key] = wanted.to("cpu" if on_host else self.device, copy=True)


@torch.no_grad()
def evaluate(
    model: RewardPredictor,
    tokens: Tokens,
    episodes: NDArray[np.int64],
    device: torch.device,
    *,
    swap_pasts: bool = False,
    look_back: bool = True,
) -> Evaluation:
    """Predictions on some episodes, without dropout; where pasts are swapped, each looks at that of another one."""
    model.eval()
    classes = model.head.out_features
    counts = np.zeros((classes, classes), np.int64)
    ends = np.cumsum(tokens.lengths[episodes])
    log_probabilities = np.empty(int(ends[-1]), np.float32)
    for part in _evaluation_batches(tokens.lengths[episodes], swap_pasts):
        batch = tokens.batch(episodes[part], device)
        encoded = model.encode(batch.rows, Dropout(None))
        lengths, times = tokens.lengths[episodes[part]], np.arange(batch.index.shape[1])
        if look_back:
            past = None
            if swap_pasts:  # of a shorter episode, the last step goes on
                until = np.minimum(times, lengths[:, None] - 1)
                past = batch.index.gather(1, torch.from_numpy(until).to(device)).roll(1, 0)
            logits = model(encoded, batch.index, past=past).logits
        else:
            logits = model.predict_alone(nn.functional.embedding(batch.index, encoded[:, : model.options.units]))
        real = times < lengths[:, None]
        chosen = logits.log_softmax(-1).gather(-1, batch.classes[..., None])[..., 0].cpu().numpy()
        places = (ends[part] - lengths)[:, None] + times
        log_probabilities[places[real]] = chosen[real]
        pairs = (batch.classes * classes + logits.argmax(-1)).cpu().numpy()[real]
        counts += np.bincount(pairs, minlength=counts.size).reshape(counts.shape)
    return Evaluation(Confusion(counts), log_probabilities)


def _evaluation_batches(lengths: NDArray[np.int64], swap_pasts: bool) -> list[NDArray[np.int64]]:
    longest = int(lengths.max())
    size = min(max(1, _EVALUATION_BATCH_STEPS // longest), at_a_time(longest))
    if swap_pasts:  # with at least one other, whatever its length: how an episode ends shows in its length
        return np.array_split(np.arange(len(lengths)), max(1, len(lengths) // max(2, size)))
    by_length = np.argsort(lengths, kind="stable")
    return [by_length[first : first + size] for first in range(0, len(lengths), size)]


def teach_encoder(model: RewardPredictor, teacher: RewardPredictor, tokens: Tokens, seed: int) -> None:
    """Give ``model`` the weights of a teacher that learned by name, and its encoder what the names came to mean."""
    model.load_state_dict({name: value for name, value in teacher.state_dict().items() if name != "names.weight"})
    generator = torch.Generator().manual_seed(seed % 2**63)
    optimiser = torch.optim.AdamW(model.encoder.parameters(), lr=_TEACH_RATE)
    model.train()
    teacher.eval()
    for update in range(_TEACH_UPDATES):
        optimiser.param_groups[0]["lr"] = _TEACH_RATE * min(1.0, (1 - update / _TEACH_UPDATES) / _TEACH_COOLING)
        some = torch.randperm(len(tokens.first), generator=generator)[:_TEACH_BATCH]
        rows = tokens.table(teacher.head.weight.device, some.numpy())
        with torch.no_grad():
            target = teacher.encode(rows, Dropout(None))
        loss = nn.functional.mse_loss(model.encode(rows, Dropout(None)), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


class _GraphedUpdate:
    """A whole update as one CUDA graph: the table of tokens stays on the GPU, an update receives its episodes.

    A model this small is bound by the time it takes to launch kernels; replaying a graph launches them all at once.
    Where there is no CUDA the update is run in place of the graph, so that everything else can be tested there.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        device, tokens = trainer.device, trainer.tokens
        assert tokens.ids is not None
        self.table = tokens.table(device)
        arrays = tokens.ids, tokens.classes, tokens.weights, tokens.offsets[:-1].copy(), tokens.lengths
        self.ids, self.classes, self.weights, self.starts, self.lengths = (
            torch.from_numpy(array).to(device) for array in arrays
        )
        self.time = torch.arange(int(tokens.lengths[trainer.episodes].max()), device=device)
        self.episodes = torch.zeros(trainer.batch_size, dtype=torch.int64, device=device)
        self.generator = torch.Generator(device)
        self.graph: Any = None
        self.result = torch.zeros((), device=device)

    def __call__(self, episodes: NDArray[np.int64]) -> Tensor:
        if len(episodes) < len(self.episodes):  # the last batch of a pass: fill it up
            episodes = np.resize(episodes, len(self.episodes))
        self.episodes.copy_(torch.from_numpy(episodes), non_blocking=True)
        if self.graph is None:  # record an update; the ones that warm it up are undone
            before = self.trainer.state()
            self.graph = self._recorded()
            self.trainer.restore(before)
        # After warming up, which draws too. A graph reads its generator's seed and offset whenever it is replayed.
        self.generator.manual_seed(update_seed(self.trainer.seed, self.trainer.step))
        self.graph.replay()
        return self.result.clone()

    def _recorded(self) -> Any:
        if self.trainer.device.type != "cuda":
            self._run()
            return SimpleNamespace(replay=self._run)
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
        weights = self.weights[rows] * (self.time < lengths[:, None])
        batch = Batch(self.table, self.ids[rows].long(), self.classes[rows].long(), weights)
        self.result.copy_(self.trainer.descend(self.trainer.loss(batch, self.generator)))
