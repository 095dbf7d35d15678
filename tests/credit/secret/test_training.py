"""Updates: a function of the seed and their number alone; evaluation is what a slow loop says."""

import numpy as np
import pytest
import torch
from tests.credit.conftest import cut

from secret_rl.credit import Secret, TrainingOptions
from secret_rl.credit.secret import model as model_module
from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret import training
from secret_rl.credit.secret.model import Dropout
from secret_rl.credit.secret.options import PRECISIONS
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.credit.secret.training import Trainer, evaluate, update_seed

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")


@pytest.fixture
def make_trainer(cues, make_model, signs):
    data = cues(30)

    def make(seed=0, initialisation=0, model_options=None, draw=None, device="cpu", **options):
        model = make_model(data.observation_space, data.action_space, initialisation, **(model_options or {}))
        choices = TrainingOptions(**{"steps": 20, "batch_size": 8, **options})
        draw = np.ones(24) if draw is None else draw
        return Trainer(model, Tokens.of(data, signs), np.arange(24), draw, choices, seed, torch.device(device))

    return make


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("stop", [1, 5, 9])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_training_goes_on_from_its_state_as_if_never_stopped(make_trainer, device, stop):
    whole, part, fresh, used = (make_trainer(initialisation=n, device=device) for n in (0, 0, 1, 2))
    whole.train(10)
    part.train(stop)
    used.train(3)
    for resumed in (fresh, used):
        resumed.restore(part.state(), **part.counters())
        resumed.train(10 - stop)
        assert resumed.step == whole.step
        assert same(resumed.state(), whole.state())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("pairs", [1 << 21, 40])
def test_products_in_bf16_learn_much_the_same_with_weights_in_float32(make_trainer, monkeypatch, device, pairs):
    monkeypatch.setattr(model_module, "PAIRS_AT_A_TIME", pairs)
    exact, rounded = (make_trainer(device=device, precision=precision) for precision in PRECISIONS)
    losses = [(exact.train(1), rounded.train(1)) for _ in range(20)]
    assert 0 < max(abs(a - b) / a for a, b in losses) < 0.05
    assert {parameter.dtype for parameter in rounded.model.parameters()} == {torch.float32}


def test_updates_draw_by_their_number_and_each_number_has_a_seed(make_trainer, monkeypatch):
    real, drawn = Trainer.loss, []

    def loss(self, batch, generator):
        fresh = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        drawn.append((generator.initial_seed(), torch.equal(generator.get_state(), fresh.get_state())))
        return real(self, batch, generator)

    monkeypatch.setattr(Trainer, "loss", loss)
    trainer = make_trainer(seed=3)
    trainer.restore(trainer.state(), step=6)
    trainer.train(4)
    assert drawn[-4:] == [(update_seed(3, step), True) for step in range(6, 10)], "from the beginning of its own stream"
    seeds = {update_seed(seed, step) for seed in (0, 1, 2, 7919, 2**31, 2**64 - 1) for step in range(2_000)}
    assert len(seeds) == 12_000 and min(seeds) >= 0 and max(seeds) < 2**63


def test_schedules_of_the_learning_rate_of_the_penalty_and_of_hidden_steps(make_trainer):
    trainer = make_trainer(steps=400, warmup=4, learning_rate=1.0, attention_penalty=0.2)
    assert [trainer.learning_rate(step) for step in (0, 1, 2, 3, 4, 399)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [trainer.attention_penalty(step) for step in (0, 399)] == [0, 0]
    assert [trainer.hiding(step) for step in (0, 399)] == [0.5, 0.5]
    trainer.step = 100
    trainer.cool_down()
    assert (trainer.cooling_from, trainer.last_step) == (100, 250), "so many updates at least"
    assert [trainer.learning_rate(step) for step in (100, 175, 250)] == pytest.approx([1.0, 0.5, 0.0])
    assert [trainer.attention_penalty(step) for step in (100, 125, 150, 249)] == pytest.approx([0.0, 0.1, 0.2, 0.2])
    assert [trainer.hiding(step) for step in (100, 175, 250)] == [0.5, 0.25, 0]
    trainer.half_learned_at = 100
    assert [trainer.hiding(step) for step in (100, 150, 200, 399)] == [0.5, 0.25, 0, 0]
    for step, last in ((400, 680), (900, 1000)):  # a share of those before it, and no more updates than planned
        late = make_trainer(steps=1000)
        late.step = step
        late.cool_down()
        assert late.last_step == last
    short = make_trainer(steps=20, warmup=200, learning_rate=1.0)
    assert short.learning_rate(2) == 1.0, "a short training warms up for a tenth of it at most"
    warm = make_trainer(steps=40, warmup=4, learning_rate=1.0)
    warm.train(2)
    assert {group["lr"] for group in warm.optimiser.param_groups} == {0.5}, "the rate of the second update"
    decay = [({p.ndim for p in g["params"]}, g["weight_decay"] > 0) for g in warm.optimiser.param_groups]
    assert decay == [({2}, True), ({1}, False)], "weights decay in matrices alone"


def test_episodes_are_drawn_in_proportion_by_seed_and_number(make_trainer):
    draw, updates = np.random.default_rng(0).random(24) ** 3, 320
    trainer, fresh, other = (make_trainer(seed, draw=draw) for seed in (3, 3, 4))
    drawn = np.stack([trainer._episodes_of(step) for step in range(updates)])
    times = np.bincount(drawn.ravel(), minlength=24)
    expected = updates * 8 * draw / draw.sum()
    assert times.sum() == updates * 8
    assert np.abs(times - expected).max() <= updates / 32, "as evenly as chance allows, window by window"
    order = np.random.default_rng(0).permutation(updates)
    np.testing.assert_array_equal([fresh._episodes_of(step) for step in order], drawn[order])
    assert (drawn != [other._episodes_of(step) for step in range(updates)]).any()
    assert (drawn[:32] != drawn[32:64]).any(), "windows differ"


NO_DROPOUT = {"dropout_dense": 0.0, "dropout_block": 0.0, "dropout_steps": 0.0}


@pytest.mark.parametrize("name", [None, *NO_DROPOUT])
def test_dropout_is_what_is_random_in_an_update(make_trainer, name):
    trainer = make_trainer(model_options=NO_DROPOUT | ({} if name is None else {name: 0.3}))
    batch = trainer.tokens.batch(np.arange(8))
    losses = [trainer.loss(batch, torch.Generator().manual_seed(seed)).item() for seed in (0, 0, 1)]
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) == (name is not None)


@pytest.mark.parametrize("steps_at_a_time", [1, 20, 1 << 16])
def test_evaluation_equals_a_loop_over_episodes(cues, make_model, signs, monkeypatch, steps_at_a_time):
    monkeypatch.setattr(training, "_EVALUATION_BATCH_STEPS", steps_at_a_time)
    data = cut(cues(12), lambda i: slice(i % 5, None))
    model = make_model(data.observation_space, data.action_space)
    tokens, episodes = Tokens.of(data, signs), np.array([11, 0, 2, 7, 3])
    counts, said = np.zeros((3, 3), int), []
    with torch.no_grad():
        for number in episodes.tolist():
            batch = tokens.batch(np.array([number]))
            logits = model(model.encode(batch.rows, Dropout(None)), batch.index).logits[0]
            said += logits.log_softmax(-1)[torch.arange(len(logits)), batch.classes[0]].tolist()
            for true, guessed in zip(batch.classes[0].tolist(), logits.argmax(-1).tolist(), strict=True):
                counts[true, guessed] += 1
    model.train()
    found = evaluate(model, tokens, episodes, CPU)
    np.testing.assert_array_equal(found.confusion.counts, counts)
    np.testing.assert_allclose(found.log_probabilities, said, rtol=1e-4, atol=1e-5)


def test_rows_beside_the_model_make_the_same_batches(cues, make_model, signs, monkeypatch):
    monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    monkeypatch.setattr(tokens_module, "_ROWS_AT_A_TIME", 7)
    read = Tokens.of(cut(cues(24), lambda i: slice(i % 5, None)), signs)
    read = read.weighted(np.linspace(0, 1, len(read.first), dtype=np.float32))
    beside = read.moved(CPU)
    here, there = (found.batch(np.array([3, 0, 7])) for found in (read, beside))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(here.rows[:3], there.rows[:3], strict=True))
    assert all(torch.equal(getattr(here, name), getattr(there, name)) for name in ("index", "classes", "weights"))
    rows = np.array([5, 0, 9])
    assert torch.equal(read.rows(rows).observations, beside.rows(rows).observations)
    assert torch.equal(read.table("cpu").observations, beside.table("cpu").observations)
    assert read.to_device(CPU) is read


@pytest.mark.parametrize("pairs", [1 << 25, 1])
def test_swapped_pasts_are_those_of_other_episodes(cues, make_model, signs, monkeypatch, pairs):
    """Also where only one episode at a time fits in memory."""
    monkeypatch.setattr(training, "_MOST_PAIRS", pairs)
    data = cues(9)
    tokens, episodes = Tokens.of(data, signs), np.arange(9)
    model = make_model(data.observation_space, data.action_space)
    own, *others = (
        evaluate(model, tokens, episodes, torch.device("cpu"), **options).log_probabilities
        for options in ({}, {"swap_pasts": True}, {"look_back": False})
    )
    starts = tokens.offsets[:-1]
    for other in others:
        np.testing.assert_allclose(own[starts], other[starts], atol=1e-6)  # a first step has no past
        assert (np.maximum.reduceat(np.abs(own - other), starts) > 1e-6).all()


@needs_cuda
@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_finished_fit_that_is_taken_up_is_where_the_model_is(cues, tmp_path):
    data = cues(60)
    options = {"units": 16, "steps": 12, "evaluate_every": 4, "device": "cuda"}
    fitted, again = (Secret(**options).fit(data, checkpoint=tmp_path / "c") for _ in range(2))
    loaded = Secret.load(fitted.save(tmp_path / "model.safetensors"), device="cuda")
    credit = [secret.attribute(data, rewards="all").weights for secret in (fitted, again, loaded)]
    np.testing.assert_array_equal(credit[0], credit[1])
    np.testing.assert_array_equal(credit[0], credit[2])
