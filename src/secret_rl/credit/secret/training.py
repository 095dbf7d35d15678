"""Updates of the reward predictor, on any device, a pure function of the seed and the number of the update.

Everything random in update ``n`` comes from ``(seed, n)``, so training can stop after any update and go on later
to the same weights.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.report import Confusion
from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.credit.secret.model import Dropout, RewardPredictor, weighted_loss
from secret_rl.credit.secret.options import TrainingOptions
from secret_rl.credit.secret.tokens import Batch, Tokens

_EVALUATION_BATCH_STEPS = 1 << 16  # steps per evaluation batch: bounds memory for long episodes
_MOST_PAIRS = 1 << 25  # pairs of steps that attend to each other in an update: bounds its time
_MOST_GRADIENT = 1.0  # norm
_WINDOW = 32  # updates whose episodes are drawn together
_COOLING, _LEAST_COOLING = 0.7, 150  # updates of the cooling down: a share of those before it, but so many at least
_HIDING = 0.5  # share of the episodes in which steps are hidden, at first
_TEACH_UPDATES, _TEACH_BATCH, _TEACH_RATE = 400, 512, 2e-3
_TEACH_COOLING = 0.3  # share of the updates in which the learning rate falls


class Evaluation(NamedTuple):
    """Predictions on held-out trajectories."""

    confusion: Confusion
    log_probabilities: NDArray[np.float32]  # (steps of these trajectories,) of each reward's class


def at_a_time(longest: int) -> int:
    """Episodes of so many steps that an update takes: memory grows with their length, time with its square."""
    return max(1, _MOST_PAIRS // longest**2)


def update_seed(seed: int, step: int) -> int:
    """The seed of everything random in update ``step``, whatever came before it."""
    return (seed * 1_000_003 + step) % 2**63


def on_cpu(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Copies of tensors, by name."""
    return {name: torch.as_tensor(value).detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


class Trainer:
    """One initialisation of the predictor, its optimiser and the trajectories it learns from.

    The processes of a ``group`` make each update together: a batch has as many episodes as one process takes alone.
    """

    def __init__(
        self,
        model: RewardPredictor,
        tokens: Tokens,
        episodes: NDArray[np.int64],
        draw: NDArray[np.float64],
        options: TrainingOptions,
        seed: int,
        device: torch.device,
        group: Group = ALONE,
    ) -> None:
        self.model, self.group = model.to(device), group
        group.agree(self.model)
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
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=options.learning_rate,
            fused=device.type == "cuda" or None,
        )
        self._batches: tuple[int, list[NDArray[np.int64]]] = (-1, [])

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
        episodes = map(self._episodes_of, range(self.step, self.step + updates))
        part = self.group.part
        for batch in self.tokens.ahead(lambda drawn: self.tokens.batch(drawn, self.device, part), episodes):
            for group in self.optimiser.param_groups:
                group["lr"] = self.learning_rate(self.step)
            generator = torch.Generator(self.device).manual_seed(update_seed(self.seed, self.step))
            loss = self.loss(batch, generator)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.group.add_up_gradients(self.model.parameters())
            nn.utils.clip_grad_norm_(self.model.parameters(), _MOST_GRADIENT)
            self.optimiser.step()
            losses.append(loss.detach())
            self.step += 1
        mean = torch.stack(losses).mean()
        self.group.add_up(mean)
        return float(mean)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The training loss of a batch, with dropout; of a part of a batch, what it adds to that."""
        dropout = Dropout(generator, self.hiding(self.step), batch.part)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bf16"):
            prediction = self.model.predict(self.model.encode(batch.rows, dropout), batch.index, dropout)
        loss = weighted_loss(prediction, batch.classes, batch.weights, self.attention_penalty(self.step))
        return loss * batch.share

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
        """Go on from ``state`` and ``counters``."""
        vars(self).update(counters)
        self.model.load_state_dict({n.removeprefix("model."): v for n, v in tensors.items() if n.startswith("model.")})
        self.optimiser.state.clear()
        for name, parameter in self.model.named_parameters():
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if (value := tensors.get(f"optimiser.{key}.{name}")) is not None:  # none before the first update
                    on_host = key == "step" and self.device.type != "cuda"
                    where = "cpu" if on_host else self.device
                    self.optimiser.state[parameter][key] = value.to(where, copy=True)


@torch.no_grad()
def evaluate(
    model: RewardPredictor,
    tokens: Tokens,
    episodes: NDArray[np.int64],
    device: torch.device,
    *,
    swap_pasts: bool = False,
    look_back: bool = True,
    group: Group = ALONE,
) -> Evaluation:
    """Predictions on some episodes, without dropout; where pasts are swapped, each looks at that of another one.

    The processes of a ``group`` share the batches, and all of them have all predictions.
    """
    model.eval()
    classes = model.head.out_features
    counts = np.zeros((classes, classes), np.int64)
    ends = np.cumsum(tokens.lengths[episodes])
    log_probabilities = np.zeros(int(ends[-1]), np.float32)
    parts = _evaluation_batches(tokens.lengths[episodes], tokens.at_a_time(_EVALUATION_BATCH_STEPS, device), swap_pasts)
    for part, batch in tokens.ahead(lambda part: (part, tokens.batch(episodes[part], device)), group.share(parts)):
        encoded = model.encode(batch.rows, Dropout(None))
        lengths, times = tokens.lengths[episodes[part]], np.arange(batch.index.shape[1])
        if look_back:
            past = None
            if swap_pasts:  # of a shorter episode, the last step goes on
                until = np.minimum(times, lengths[:, None] - 1)
                past = batch.index.gather(1, torch.from_numpy(until).to(device)).roll(1, 0)
            logits = model.predict(encoded, batch.index, past=past).logits
        else:
            logits = model.predict_alone(nn.functional.embedding(batch.index, encoded[:, : model.options.units]))
        real = times < lengths[:, None]
        chosen = logits.log_softmax(-1).gather(-1, batch.classes[..., None])[..., 0].cpu().numpy()
        places = (ends[part] - lengths)[:, None] + times
        log_probabilities[places[real]] = chosen[real]
        pairs = (batch.classes * classes + logits.argmax(-1)).cpu().numpy()[real]
        counts += np.bincount(pairs, minlength=counts.size).reshape(counts.shape)
    group.add_up_array(counts)
    group.add_up_array(log_probabilities)
    return Evaluation(Confusion(counts), log_probabilities)


def _evaluation_batches(lengths: NDArray[np.int64], steps: int, swap_pasts: bool) -> list[NDArray[np.int64]]:
    longest = int(lengths.max())
    size = min(max(1, steps // longest), at_a_time(longest))
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
