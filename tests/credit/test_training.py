"""Updates: a function of the seed and their number alone; evaluation is what a slow loop says."""

import numpy as np
import pytest
import torch

from secret_rl.credit import Confusion, TrainingOptions, training
from secret_rl.credit.model import Dropout, weighted_loss
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import Trainer, evaluate, update_seed

WEIGHTS = (0.3, 0.1, 0.6)


@pytest.fixture
def make_trainer(cues, make_model):
    data = cues(30)

    def make(seed=0, initialisation=0, model_options=None, **options):
        model = make_model(data.observation_space, data.action_space, initialisation, **(model_options or {}))
        choices = TrainingOptions(**{"steps": 20, "batch_size": 8, **options})
        return Trainer(model, Tokens.of(data), np.arange(24), WEIGHTS, choices, seed, torch.device("cpu"))

    return make


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_seed_gives_the_same_weights_to_the_bit_and_another_does_not(make_trainer):
    first, second, other = make_trainer(0), make_trainer(0), make_trainer(1)
    losses = [trainer.train(6) for trainer in (first, second, other)]
    assert same(first.state(), second.state())
    assert losses[0] == losses[1] != losses[2]
    assert not same(first.state(), other.state())


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_training_goes_on_from_its_state_as_if_never_stopped(make_trainer, stop):
    whole = make_trainer()
    whole.train(7)
    part = make_trainer()
    part.train(stop)
    resumed = make_trainer(initialisation=1)
    resumed.restore(part.state(), part.step)
    resumed.train(7 - stop)
    assert resumed.step == whole.step
    assert same(resumed.state(), whole.state())


@pytest.fixture
def make_graphed(make_trainer):
    """Trainers on the path of a GPU, the update itself in place of the graph."""

    def make(*args, **options):
        trainer = make_trainer(*args, **options)
        trainer._graph = training._GraphedUpdate(trainer)
        return trainer

    return make


@pytest.mark.parametrize("stop", [1, 5, 9])
def test_graphed_training_goes_on_from_its_state_as_if_never_stopped(make_graphed, stop):
    whole, part, fresh, used = (make_graphed(initialisation=n) for n in (0, 0, 1, 2))
    whole.train(10)
    part.train(stop)
    used.train(3)  # its update is recorded already
    for resumed in (fresh, used):
        resumed.restore(part.state(), part.step)
        resumed.train(10 - stop)
        assert resumed.step == whole.step
        assert same(resumed.state(), whole.state())


def test_graphed_training_can_begin_again(make_graphed):
    trainer = make_graphed()
    start = trainer.state()
    trainer.train(4)
    first = trainer.state()
    trainer.restore(start, 0)
    trainer.train(4)
    assert same(trainer.state(), first)


def test_graphed_updates_draw_by_their_number(make_graphed, monkeypatch):
    real, drawn = Trainer.loss, []

    def loss(self, batch, generator):
        drawn.append((generator.initial_seed(), torch.equal(generator.get_state(), _fresh_state(generator))))
        return real(self, batch, generator)

    monkeypatch.setattr(Trainer, "loss", loss)
    trainer = make_graphed(seed=3)
    trainer.restore(trainer.state(), 6)
    trainer.train(4)
    assert drawn[-4:] == [(update_seed(3, step), True) for step in range(6, 10)], "from the beginning of its own stream"


def _fresh_state(generator):
    return torch.Generator(generator.device).manual_seed(generator.initial_seed()).get_state()


def test_no_two_updates_have_the_same_seed():
    seeds = {update_seed(seed, step) for seed in (0, 1, 2, 7919, 2**31) for step in range(2_000)}
    assert len(seeds) == 10_000
    assert min(seeds) >= 0
    assert max(update_seed(2**64 - 1, step) for step in range(10)) < 2**63


def test_a_state_is_a_copy_that_further_training_leaves_alone(make_trainer):
    trainer = make_trainer()
    trainer.train(2)
    state = trainer.state()
    before = {name: value.clone() for name, value in state.items()}
    trainer.train(2)
    assert same(state, before)
    assert not same(state, trainer.state())


def test_looking_at_the_validation_data_changes_nothing(make_trainer):
    looked, plain = make_trainer(), make_trainer()
    for _ in range(3):
        looked.train(2)
        looked.evaluate(np.arange(24, 30))
        plain.train(2)
    assert same(looked.state(), plain.state())


def test_training_leaves_global_randomness_alone(make_trainer):
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002  what is tested
    make_trainer().train(3)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_the_learning_rate_warms_up_and_falls_along_a_cosine(make_trainer):
    trainer = make_trainer(steps=104, warmup=4, learning_rate=1.0)
    assert [trainer.learning_rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert trainer.learning_rate(54) == pytest.approx(0.5)
    assert trainer.learning_rate(104) == pytest.approx(0.0)
    short = make_trainer(steps=20, warmup=200, learning_rate=1.0)
    assert short.learning_rate(2) == 1.0, "a short training warms up for a tenth of it at most"
    trainer.train(2)
    assert {group["lr"] for group in trainer.optimiser.param_groups} == {0.5}, "the rate of the second update"


def test_looking_back_is_free_until_predictions_work(make_trainer):
    trainer = make_trainer(steps=100, looking_cost=0.2)
    assert [trainer.looking_cost(step) for step in (0, 30)] == [0, 0]
    assert trainer.looking_cost(45) == pytest.approx(0.1)
    assert [trainer.looking_cost(step) for step in (60, 99)] == pytest.approx([0.2, 0.2])


def test_each_pass_trains_on_every_episode_once_in_another_order(make_trainer):
    trainer = make_trainer(batch_size=7)
    passes = [np.concatenate([trainer._episodes_of(4 * n + i) for i in range(4)]).tolist() for n in range(3)]
    assert all(sorted(visited) == list(range(24)) for visited in passes)
    assert passes[0] != passes[1] != passes[2]


def test_weights_decay_only_in_matrices(make_trainer):
    decayed, plain = (group for group in make_trainer(weight_decay=0.1).optimiser.param_groups)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in plain["params"]} == {1}


@pytest.mark.parametrize(
    ("model_options", "varies"),
    [
        ({"dropout_dense": 0.0, "dropout_block": 0.0, "max_position_shift": 0}, False),
        ({"dropout_dense": 0.0, "dropout_block": 0.0}, True),
        ({"dropout_block": 0.0, "max_position_shift": 0}, True),
        ({"dropout_dense": 0.0, "max_position_shift": 0}, True),
        ({"dropout_dense": 0.0, "dropout_block": 0.0, "dropout_attention": 0.2, "max_position_shift": 0}, True),
    ],
)
def test_dropout_and_shifted_positions_are_what_is_random_in_an_update(make_trainer, model_options, varies):
    trainer = make_trainer(model_options=model_options)
    batch = trainer.tokens.batch(np.arange(8))
    losses = [trainer.loss(batch, torch.Generator().manual_seed(seed)).item() for seed in (0, 0, 1)]
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) == varies


def test_every_update_draws_anew(make_trainer, monkeypatch):
    real, drawn = Trainer.loss, []
    monkeypatch.setattr(
        Trainer,
        "loss",
        lambda self, batch, generator: (drawn.append(generator.initial_seed()), real(self, batch, generator))[1],
    )
    for seed in range(3):
        make_trainer(seed).train(8)
    assert len(set(drawn)) == 24


@pytest.mark.parametrize("steps_at_a_time", [1, 20, 1 << 16])
def test_evaluation_equals_a_loop_over_episodes(cues, make_model, monkeypatch, steps_at_a_time):
    monkeypatch.setattr(training, "_EVALUATION_BATCH_STEPS", steps_at_a_time)
    data = cues(12)
    model = make_model(data.observation_space, data.action_space)
    tokens, weights = Tokens.of(data), torch.tensor(WEIGHTS)
    episodes = np.array([0, 2, 3, 7, 11])
    counts, losses = np.zeros((3, 3), int), []
    with torch.no_grad():
        for number in episodes.tolist():
            batch = tokens.batch(np.array([number]))
            prediction = model(model.encode(batch.observations, batch.actions, Dropout(None)), batch.index)
            losses.append(float(weighted_loss(prediction, batch.classes, batch.lengths, weights)))
            for true, guessed in zip(batch.classes[0].tolist(), prediction.logits[0].argmax(-1).tolist(), strict=True):
                counts[true, guessed] += 1
    model.train()
    found = evaluate(model, tokens, episodes, weights, torch.device("cpu"))
    np.testing.assert_array_equal(found.confusion.counts, counts)
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_accuracy_is_the_mean_over_the_classes_that_occur():
    confusion = Confusion(np.array([[0, 0, 0], [1, 8, 1], [3, 0, 1]]))
    assert confusion.present.tolist() == [False, True, True]
    assert np.isnan(confusion.accuracy[0])
    assert confusion.accuracy[1:].tolist() == [0.8, 0.25]
    assert confusion.balanced_accuracy == pytest.approx(0.525)
    assert confusion.never_predicted == ()
    assert confusion.to_json()["accuracy"] == {"zero": 0.8, "positive": 0.25}
    assert str(confusion) == "00.800 +0.250"
    assert Confusion(np.array([[2, 0, 0], [0, 5, 0], [0, 9, 0]])).never_predicted == (1,)
    assert Confusion(np.array([[0, 4, 0], [0, 5, 0], [0, 9, 0]])).never_predicted == (-1, 1)
