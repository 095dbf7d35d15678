"""The predictor: causal, blind to padding and to the order of a batch, and its loss is the paper's."""

import math
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from secret_rl.credit import ModelOptions, RewardPredictor
from secret_rl.credit.encoders import Flat, ImageEncoder, flat_size, observation_encoder, standardise
from secret_rl.credit.model import Dropout, Prediction, over_steps, positional_encoding, weighted_loss
from secret_rl.credit.tokens import Tokens, as_tensor, map_nest
from secret_rl.testing.strategies import any_space
from secret_rl.trajectories.nested import stack
from secret_rl.trajectories.spaces import to_json

SEEN, DONE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
ragged = st.lists(st.integers(1, 9), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)


def random_tokens(lengths, seed):
    """Episodes of these lengths; every step is a token of its own."""
    rng = np.random.default_rng(seed)
    steps = sum(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    observations = rng.normal(size=(steps, 3)).astype(np.float32)
    return Tokens(observations, rng.integers(0, 4, steps), None, offsets, rng.integers(-1, 2, steps).astype(float))


def predict(model, tokens, episodes=None):
    batch = tokens.batch(np.arange(len(tokens)) if episodes is None else np.asarray(episodes))
    with torch.no_grad():
        return batch, model(model.encode(batch.observations, batch.actions, Dropout(None)), batch.index)


@given(ragged, seeds, st.data())
def test_changing_a_step_leaves_every_earlier_row_as_it_was_to_the_bit(make_model, lengths, seed, data):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    episode = data.draw(st.integers(0, len(lengths) - 1))
    step = data.draw(st.integers(0, lengths[episode] - 1))
    _, before = predict(model, tokens)
    row = tokens.offsets[episode] + step
    tokens.observations[row] += 1
    tokens.actions[row] = (tokens.actions[row] + 1) % 4
    _, after = predict(model, tokens)
    assert torch.equal(before.logits[episode, :step], after.logits[episode, :step])
    assert torch.equal(before.attention[episode, :step], after.attention[episode, :step])
    for other, length in enumerate(lengths):
        if other != episode:
            assert torch.equal(before.logits[other, :length], after.logits[other, :length])
            assert torch.equal(before.attention[other, :length], after.attention[other, :length])


def test_a_step_reaches_its_own_row_and_every_later_one(make_model):
    model, tokens = make_model(SEEN, DONE), random_tokens([9], 0)
    _, before = predict(model, tokens)
    tokens.observations[4] += 1
    _, after = predict(model, tokens)
    changed = (before.logits != after.logits).any(-1)[0]
    assert changed.tolist() == [False] * 4 + [True] * 5


@given(ragged, seeds)
def test_an_episode_alone_and_padded_in_a_batch_are_predicted_alike(make_model, lengths, seed):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    _, together = predict(model, tokens)
    for episode, length in enumerate(lengths):
        _, alone = predict(model, tokens, [episode])
        torch.testing.assert_close(together.logits[episode, :length], alone.logits[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            together.attention[episode, :length, :length], alone.attention[0], rtol=1e-5, atol=1e-6
        )
        assert not together.attention[episode, :length, length:].any()


@given(ragged, seeds)
def test_the_loss_of_a_batch_is_the_mean_of_the_losses_of_its_episodes(make_model, lengths, seed):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    weights, price = torch.tensor([0.3, 0.1, 0.6]), 0.2
    batch, together = predict(model, tokens)
    losses = []
    for episode in range(len(lengths)):
        one, alone = predict(model, tokens, [episode])
        losses.append(weighted_loss(alone, one.classes, one.lengths, weights, price))
    whole = weighted_loss(together, batch.classes, batch.lengths, weights, price)
    torch.testing.assert_close(whole, torch.stack(losses).mean(), rtol=1e-5, atol=1e-6)


@given(ragged, seeds)
def test_padding_adds_nothing_to_the_loss_or_its_gradient(make_model, lengths, seed):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    batch = tokens.batch(np.arange(len(lengths)))
    padding = torch.arange(batch.index.shape[1]) >= batch.lengths[:, None]
    results = []
    for filler in (0, 1):
        index = torch.where(padding, (batch.index + 7 * filler) % sum(lengths), batch.index)
        classes = torch.where(padding, (batch.classes + filler) % 3, batch.classes)
        model.zero_grad()
        prediction = model(model.encode(batch.observations, batch.actions, Dropout(None)), index)
        loss = weighted_loss(prediction, classes, batch.lengths, torch.tensor([0.3, 0.1, 0.6]), 0.2)
        loss.backward()
        results.append((loss.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(*(loss for loss, _ in results), rtol=1e-6, atol=1e-6)
    for one, other in zip(*(gradients for _, gradients in results), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@given(ragged, seeds, st.randoms(use_true_random=False))
def test_the_order_of_a_batch_does_not_matter(make_model, lengths, seed, random):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    order = random.sample(range(len(lengths)), len(lengths))
    _, straight = predict(model, tokens)
    _, shuffled = predict(model, tokens, order)
    for place, episode in enumerate(order):
        real = slice(lengths[episode])
        torch.testing.assert_close(shuffled.logits[place, real], straight.logits[episode, real], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            shuffled.attention[place, real], straight.attention[episode, real], rtol=1e-5, atol=1e-6
        )


@given(ragged, seeds)
def test_attention_rows_are_distributions_over_earlier_steps(make_model, lengths, seed):
    _, prediction = predict(make_model(SEEN, DONE), random_tokens(lengths, seed))
    attention, time = prediction.attention, max(lengths)
    torch.testing.assert_close(attention.sum(-1), torch.ones(len(lengths), time))
    assert (attention >= 0).all()
    own_and_future = torch.triu(torch.ones(time, time, dtype=torch.bool))
    own_and_future[0, 0] = False  # the first step has nothing before it, and stands for itself
    assert not attention[:, own_and_future].any()
    assert (attention[:, 0, 0] == 1).all()
    torch.testing.assert_close(prediction.weights.sum(-1), torch.ones(len(lengths), time))


@pytest.mark.parametrize("sink_score", [-30.0, 0.0, 60.0, 500.0])
def test_attention_over_steps_is_the_softmax_without_the_sink(sink_score):
    scores = torch.tensor([1.0, -0.5, 2.0])
    with_sink = torch.cat([torch.tensor([sink_score]), scores])
    torch.testing.assert_close(over_steps(with_sink), scores.softmax(-1), rtol=1e-6, atol=1e-7)


@given(ragged, seeds, st.sampled_from([0.0, 0.3]))
def test_the_loss_is_the_papers_formula_written_as_a_loop(lengths, seed, price):
    generator = torch.Generator().manual_seed(seed)
    time = max(lengths)
    logits = torch.randn(len(lengths), time, 3, generator=generator, dtype=torch.float64)
    weights = torch.randn(len(lengths), time, 1 + time, generator=generator, dtype=torch.float64).softmax(-1)
    classes = torch.randint(3, (len(lengths), time), generator=generator)
    class_weights = torch.tensor([0.499, 0.02, 0.25], dtype=torch.float64)
    total = 0.0
    for episode, length in enumerate(lengths):
        for t in range(length):
            c = int(classes[episode, t])
            odds = [math.exp(value) for value in logits[episode, t].tolist()]
            surprise = -math.log(odds[c] / sum(odds))
            looked = 1 - float(weights[episode, t, 0])
            total += float(class_weights[c]) * (surprise + price * looked) / length / len(lengths)
    loss = weighted_loss(
        Prediction(logits, weights, weights.log()), classes, torch.tensor(lengths), class_weights, price
    )
    assert float(loss) == pytest.approx(total, rel=1e-9)


@given(ragged, seeds, st.integers(1, 4))
def test_some_rows_alone_are_the_rows_of_the_whole(make_model, lengths, seed, rows):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    batch, whole = predict(model, tokens)
    times = torch.from_numpy(np.random.default_rng(seed).integers(0, np.array(lengths)[:, None], (len(lengths), rows)))
    with torch.no_grad():
        tokens = model.project(model.encode(batch.observations, batch.actions, Dropout(None)))
        part = model.predict_rows(tokens, batch.index, times)
    each = torch.arange(len(lengths))[:, None]
    torch.testing.assert_close(part.logits, whole.logits[each, times], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(part.attention, whole.attention[each, times], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(part.weights, whole.weights[each, times], rtol=1e-5, atol=1e-5)


@given(ragged, seeds)
def test_equal_steps_may_share_a_token(make_model, lengths, seed):
    model, tokens = make_model(SEEN, DONE), random_tokens(lengths, seed)
    rng = np.random.default_rng(seed)
    copies = rng.integers(0, sum(lengths), sum(lengths))  # each step repeats some token
    table = Tokens(tokens.observations, tokens.actions, copies.astype(np.int32), tokens.offsets, tokens.rewards)
    spelled_out = Tokens(tokens.observations[copies], tokens.actions[copies], None, tokens.offsets, tokens.rewards)
    (batch, shared), (_, own) = predict(model, table), predict(model, spelled_out)
    real = torch.arange(batch.index.shape[1]) < batch.lengths[:, None]
    torch.testing.assert_close(shared.logits[real], own.logits[real], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(shared.attention[real], own.attention[real], rtol=1e-5, atol=1e-5)


def samples(space, count, seed):
    space.seed(seed)
    return [space.sample() for _ in range(count)]


@settings(max_examples=100)
@given(any_space(), any_space(), ragged, seeds)
def test_any_spaces_are_predicted_and_give_finite_gradients(make_model, seen, done, lengths, seed):
    model, steps = make_model(seen, done, filters=(2,)), sum(lengths)
    observations, actions = stack(seen, samples(seen, steps, seed)), stack(done, samples(done, steps, seed + 1))
    standardise(model.observation_encoder, map_nest(as_tensor, observations))
    standardise(model.action_encoder, map_nest(as_tensor, actions))
    tokens = Tokens(observations, actions, None, np.cumsum([0, *lengths]), np.zeros(steps))
    batch = tokens.batch(np.arange(len(lengths)))
    prediction = model(model.encode(batch.observations, batch.actions, Dropout(None)), batch.index)
    assert prediction.logits.shape == (len(lengths), max(lengths), 3)
    assert prediction.attention.shape == (len(lengths), max(lengths), max(lengths))
    classes = torch.randint(3, batch.index.shape, generator=torch.Generator().manual_seed(seed))
    weighted_loss(prediction, classes, batch.lengths, torch.ones(3), 0.1).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    assert gradients["head.weight"].any()


@given(any_space(), seeds)
def test_flat_rows_are_those_of_gymnasium(space, seed):
    elements = samples(space, 4, seed)
    expected = np.stack([spaces.flatten(space, element) for element in elements]).astype(np.float32)
    flat = Flat(to_json(space))(map_nest(as_tensor, stack(space, elements)))
    assert flat.shape == (4, flat_size(to_json(space)))
    np.testing.assert_array_equal(flat.numpy(), expected)


def test_numbers_are_standardised_and_constants_become_zero():
    space = spaces.Dict(a=spaces.Box(-1e6, 1e6, (2,), np.float64), b=spaces.Discrete(3))
    numbers = np.stack([np.random.default_rng(0).normal(1000.0, 50.0, 500), np.full(500, 7.0)], 1)
    rows = {"a": torch.from_numpy(numbers), "b": torch.zeros(500, dtype=torch.int64)}
    flat = Flat(to_json(space))
    flat.standardise(rows)
    scaled = flat(rows)[:, :2]
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.tensor([1.0, 0.0]), atol=1e-4, rtol=0)
    encoder = observation_encoder(to_json(space), 8, (4,))
    standardise(encoder, rows)
    assert encoder.encoders[0][0].mean.tolist() == pytest.approx(numbers.mean(0))


def test_a_convolution_over_the_whole_picture_is_one_matrix_product():
    encoder = ImageEncoder(to_json(spaces.Box(0, 255, (3, 3, 2), np.uint8)), units=8, filters=(5,))
    pictures = torch.randint(0, 256, (6, 3, 3, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    kernel = encoder.convolutions.weight.reshape(5, 3, 3, 2).permute(0, 3, 1, 2)
    planes = pictures.permute(0, 3, 1, 2) / 255
    features = torch.nn.functional.conv2d(planes, kernel, encoder.convolutions.bias).relu().flatten(1)
    torch.testing.assert_close(encoder(pictures), encoder.dense(features).relu(), rtol=1e-5, atol=1e-6)


def test_larger_pictures_are_convolved_as_pytorch_does():
    encoder = ImageEncoder(to_json(spaces.Box(0, 255, (5, 4, 2), np.uint8)), units=8, filters=(3, 6))
    pictures = torch.randint(0, 256, (6, 5, 4, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = pictures.permute(0, 3, 1, 2) / 255
    first, second = (layer for layer in encoder.convolutions if isinstance(layer, torch.nn.Conv2d))
    features = torch.nn.functional.conv2d(features, first.weight, first.bias).relu()
    features = torch.nn.functional.conv2d(features, second.weight, second.bias, padding=1).relu().flatten(1)
    torch.testing.assert_close(encoder(pictures), encoder.dense(features).relu(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 1), (3, 20, 3), (16, 16, 3), (17, 20), (84, 84, 4)])
@pytest.mark.parametrize("filters", [(4,), (4, 6), (4, 6, 8)])
def test_pictures_of_any_size_and_any_number_of_convolutions_are_encoded(shape, filters):
    encoder = observation_encoder(to_json(spaces.Box(0, 255, shape, np.uint8)), 8, filters)
    assert isinstance(encoder, ImageEncoder)
    assert encoder(torch.ones(2, *shape, dtype=torch.uint8)).shape == (2, 8)


def test_positions_are_the_sines_and_cosines_of_the_paper():
    encoding = positional_encoding(torch.arange(50), 16)
    for place in (0, 1, 7, 49):
        for i in range(0, 16, 2):
            angle = place / 10_000 ** (i / 16)
            assert float(encoding[place, i]) == pytest.approx(math.sin(angle), abs=1e-4)
            assert float(encoding[place, i + 1]) == pytest.approx(math.cos(angle), abs=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    dropped = Dropout(torch.Generator().manual_seed(0))(torch.ones(200_001), rate)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.005)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.1)
    assert dropped.unique().numel() == (1 if rate == 0 else 2)


def test_dropout_depends_on_its_generator_alone():
    x = torch.ones(64, 3)
    state = torch.get_rng_state()
    first, second = (Dropout(torch.Generator().manual_seed(5))(x, 0.3) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, Dropout(torch.Generator().manual_seed(6))(x, 0.3))
    assert torch.equal(Dropout(None)(x, 0.3), x)
    assert torch.equal(torch.get_rng_state(), state)


def test_credit_needs_pytorch_and_numpy_alone():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    names = {line.replace(">", "[").replace("=", "[").split("[")[0].strip().replace("-", "_") for line in named}
    blocked = sorted((names | {"PIL", "pygame"}) - {"numpy", "torch", "secret_rl"})
    assert {"gymnasium", "numba", "rich", "safetensors", "cloudpickle", "tyro"} <= set(blocked)
    script = f"""
import sys
for name in {blocked}:
    sys.modules[name] = None
import torch
from secret_rl.credit import ModelOptions, RewardPredictor, Secret
from secret_rl.credit.model import Dropout
space = {{"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"}}
model = RewardPredictor(space, space, ModelOptions(units=4))
tokens = model.encode(torch.arange(3), torch.arange(3), Dropout(None))
print(tuple(model(tokens, torch.tensor([[0, 1, 2, 1]])).attention.shape))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 4, 4)", done.stderr


@pytest.mark.parametrize("units", [16, 32])
def test_queries_keys_and_values_of_tokens_and_positions_add_up(units):
    """W(x + PE) = Wx + W PE: the shortcut equals projecting each step with its position."""
    model = RewardPredictor(to_json(DONE), to_json(DONE), ModelOptions(units=units)).eval()
    symbols = torch.tensor([0, 3, 1, 1])
    with torch.no_grad():
        tokens = model.encode(symbols, symbols, Dropout(None))
        _, query, key, value = model.steps(tokens, torch.arange(4)[None])
        place = positional_encoding(torch.arange(4), units) * model.options.position_scale
        expected = model.projections(tokens + place)
    found = torch.cat([query[0], key[0], value[0]], -1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
