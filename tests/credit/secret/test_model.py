"""The predictor: causal, blind to padding, to places and to the order of a batch, and its loss is a weighted sum."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from secret_rl.credit import RewardPredictor
from secret_rl.credit.secret import model as model_module
from secret_rl.credit.secret import pooled as pooled_module
from secret_rl.credit.secret.model import Dropout, Prediction, over_steps, weighted_loss
from secret_rl.credit.secret.pooled import PooledPredictor
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.encoders import as_tensor, standardise
from secret_rl.testing.strategies import any_space
from secret_rl.trajectories.nested import map_arrays, stack

SEEN, DONE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
ragged = st.lists(st.integers(1, 9), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)


both_kinds = pytest.mark.parametrize("transitions", [False, True])


def random_tokens(lengths, seed):
    """Episodes of these lengths; every step is a token of its own, of a random class and weight."""
    rng = np.random.default_rng(seed)
    steps = sum(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    first = np.isin(np.arange(steps), offsets)
    return Tokens(
        rng.normal(size=(steps, 3)).astype(np.float32),
        rng.integers(0, 4, steps),
        first,
        None,
        offsets,
        rng.integers(0, 3, steps).astype(np.int16),
        rng.random(steps).astype(np.float32),
    )


def predict(model, tokens, episodes=None):
    batch = tokens.batch(np.arange(len(tokens)) if episodes is None else np.asarray(episodes))
    with torch.no_grad():
        return batch, model(model.encode(batch.rows, Dropout(None)), batch.index)


@both_kinds
@pytest.mark.parametrize("kind", [RewardPredictor, PooledPredictor])
@given(lengths=ragged, seed=seeds, data=st.data())
def test_changing_a_step_leaves_every_earlier_row_as_it_was_to_the_bit(
    make_model, kind, transitions, lengths, seed, data
):
    model, tokens = make_model(SEEN, DONE, kind=kind, transitions=transitions), random_tokens(lengths, seed)
    episode = data.draw(st.integers(0, len(lengths) - 1))
    step = data.draw(st.integers(0, lengths[episode] - 1))
    _, before = predict(model, tokens)
    row = tokens.offsets[episode] + step
    tokens.observations[row] += 1
    tokens.actions[row] = (tokens.actions[row] + 1) % 4
    _, after = predict(model, tokens)
    assert (before.logits[episode, step : lengths[episode]] != after.logits[episode, step : lengths[episode]]).any()
    assert torch.equal(before.logits[episode, :step], after.logits[episode, :step])
    assert torch.equal(before.weights[episode, :step], after.weights[episode, :step])
    for other, length in enumerate(lengths):
        if other != episode:
            assert torch.equal(before.logits[other, :length], after.logits[other, :length])
            assert torch.equal(before.weights[other, :length], after.weights[other, :length])


@both_kinds
def test_only_distances_matter(make_model, transitions):
    """The same steps later in an episode, behind others that are not looked at: the same scores and predictions."""
    model, tokens = make_model(SEEN, DONE, transitions=transitions), random_tokens([12], 0)
    start = 5
    late = Tokens(
        tokens.observations[start:], tokens.actions[start:], np.zeros(7, bool), None, np.array([0, 7]),
        tokens.classes[start:], tokens.weights[start:],
    )  # fmt: skip
    _, whole = predict(model, tokens)
    _, part = predict(model, late)
    torch.testing.assert_close(whole.scores[0, start:, 1 + start :], part.scores[0, :, 1:], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.scores[0, start:, 0], part.scores[0, :, 0], rtol=1e-5, atol=1e-6)


def test_a_bias_is_learned_for_each_distance(make_model):
    model = make_model(SEEN, DONE)
    distances = torch.arange(1, 5000)
    with torch.no_grad():
        model.distance_bias.copy_(torch.arange(len(model.distance_bias)).float())
        bias = model.bias(distances)
    bias /= bias[0].item()
    assert bias[:31].tolist() == list(range(1, 32)), "each of the first few is its own"
    assert (bias.diff() >= 0).all() and (bias.diff() <= 1).all(), "further ones share, the more the further"
    assert len(set(bias.tolist())) < 64
    assert model.bias(torch.tensor([10**9])) == (len(model.distance_bias) - 1) * model.bias(torch.tensor([1]))


@both_kinds
@given(lengths=ragged, seed=seeds)
def test_an_episode_alone_and_padded_in_a_batch_are_predicted_alike(make_model, transitions, lengths, seed):
    model, tokens = make_model(SEEN, DONE, transitions=transitions), random_tokens(lengths, seed)
    _, together = predict(model, tokens)
    for episode, length in enumerate(lengths):
        _, alone = predict(model, tokens, [episode])
        torch.testing.assert_close(together.logits[episode, :length], alone.logits[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            together.attention[episode, :length, :length], alone.attention[0], rtol=1e-5, atol=1e-6
        )
        assert not together.attention[episode, :length, length:].any()


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
def test_the_loss_is_a_weighted_sum_over_steps_written_as_a_loop(lengths, seed, price):
    generator = torch.Generator().manual_seed(seed)
    time = max(lengths)
    logits = torch.randn(len(lengths), time, 3, generator=generator, dtype=torch.float64)
    attention = torch.randn(len(lengths), time, 1 + time, generator=generator, dtype=torch.float64).softmax(-1)
    classes = torch.randint(3, (len(lengths), time), generator=generator)
    weights = torch.rand(len(lengths), time, generator=generator, dtype=torch.float64)
    weights *= torch.arange(time) < torch.tensor(lengths)[:, None]
    total = 0.0
    for episode, length in enumerate(lengths):
        for t in range(length):
            odds = [math.exp(value) for value in logits[episode, t].tolist()]
            surprise = -math.log(odds[int(classes[episode, t])] / sum(odds))
            looked = 1 - float(attention[episode, t, 0])
            total += float(weights[episode, t]) * (surprise + price * looked) / len(lengths)
    loss = weighted_loss(Prediction(logits, attention, attention.log()), classes, weights, price)
    assert float(loss) == pytest.approx(total, rel=1e-9)


@both_kinds
@given(lengths=ragged, seed=seeds, rows=st.integers(1, 4))
def test_some_rows_alone_are_the_rows_of_the_whole(make_model, transitions, lengths, seed, rows):
    model, tokens = make_model(SEEN, DONE, transitions=transitions), random_tokens(lengths, seed)
    batch, whole = predict(model, tokens)
    times = torch.from_numpy(np.random.default_rng(seed).integers(0, np.array(lengths)[:, None], (len(lengths), rows)))
    with torch.no_grad():
        encoded = model.encode(batch.rows, Dropout(None))
        part, row_x, value = model.predict_rows(model.prepare(encoded), batch.index, times)
        x, _, _, all_values = model.steps(encoded, batch.index)
    each = torch.arange(len(lengths))[:, None]
    for name in ("logits", "attention", "weights", "scores"):
        found, expected = getattr(part, name), getattr(whole, name)[each, times]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, msg=name)
    torch.testing.assert_close(row_x, x[each, times], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(value, all_values, rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(any_space(), any_space(), st.booleans(), ragged, seeds)
def test_any_spaces_are_predicted_and_give_finite_gradients(make_model, seen, done, transitions, lengths, seed):
    model, steps = make_model(seen, done, filters=(2,), transitions=transitions), sum(lengths)
    seen.seed(seed), done.seed(seed + 1)
    observations, actions = (stack(space, [space.sample() for _ in range(steps)]) for space in (seen, done))
    standardise(model.encoder.observation_encoder, map_arrays(as_tensor, observations))
    standardise(model.encoder.action_encoder, map_arrays(as_tensor, actions))
    offsets, classes = np.cumsum([0, *lengths]), np.zeros(steps, np.int16)
    first = np.isin(np.arange(steps), offsets)
    tokens = Tokens(observations, actions, first, None, offsets, classes, np.ones(steps, np.float32))
    batch = tokens.batch(np.arange(len(lengths)))
    prediction = model(model.encode(batch.rows, Dropout(None)), batch.index)
    assert prediction.logits.shape == (len(lengths), max(lengths), 3)
    assert prediction.attention.shape == (len(lengths), max(lengths), max(lengths))
    classes = torch.randint(3, batch.index.shape, generator=torch.Generator().manual_seed(seed))
    weighted_loss(prediction, classes, batch.weights, 0.1).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    assert gradients["head.weight"].any()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    dropped = Dropout(torch.Generator().manual_seed(0))(torch.ones(200_001), rate)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.005)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.1)
    assert dropped.unique().numel() == (1 if rate == 0 else 2)
    hidden = Dropout(torch.Generator().manual_seed(0), rate).hide(torch.zeros(2000, 1, 21), 0.3)
    touched = hidden.isinf().any(-1)
    assert float(touched.float().mean()) == pytest.approx(rate, abs=0.04), "steps are hidden in a share of episodes"
    assert not hidden[..., 0].isinf().any()
    if rate:
        assert float(hidden[touched][:, 1:].isinf().float().mean()) == pytest.approx(0.3, abs=0.02)


def test_credit_needs_pytorch_and_numpy_alone():
    script = """
import sys
for name in "gymnasium numba rich safetensors cloudpickle tyro scipy pandas matplotlib PIL pygame minari".split():
    sys.modules[name] = None
import torch
from secret_rl.credit import ModelOptions, RewardPredictor, Secret, adapt
from secret_rl.credit.secret.model import Dropout
from secret_rl.credit.secret.tokens import Rows
space = {"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"}
model = RewardPredictor(space, space, 3, ModelOptions(units=4))
tokens = model.encode(Rows(torch.arange(3), torch.arange(3), torch.zeros(3)), Dropout(None))
print(tuple(model(tokens, torch.tensor([[0, 1, 2, 1]])).attention.shape))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 4, 4)", done.stderr


@both_kinds
@pytest.mark.parametrize("kind", [RewardPredictor, PooledPredictor])
@given(lengths=ragged, seed=seeds, pairs=st.integers(1, 200), swapped=st.booleans())
def test_rows_in_blocks_give_the_same_predictions_and_gradients(
    make_model, kind, transitions, lengths, seed, pairs, swapped
):
    model, tokens = make_model(SEEN, DONE, kind=kind, transitions=transitions), random_tokens(lengths, seed)
    batch, found = tokens.batch(np.arange(len(tokens))), []
    past = batch.index.roll(1, 0) if swapped else None
    for at_a_time in (pairs, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model_module, "PAIRS_AT_A_TIME", at_a_time)
            patch.setattr(pooled_module, "PAIRS_AT_A_TIME", at_a_time)
            model.zero_grad()
            outcome = model.predict(model.encode(batch.rows, Dropout(None)), batch.index, past=past)
            weighted_loss(outcome, batch.classes, batch.weights, 0.1).backward()
            found.append((*outcome, *(p.grad for p in model.parameters() if p.grad is not None)))
    whole = model(model.encode(batch.rows, Dropout(None)), batch.index, past=past)
    for ours, theirs in zip(found[0][:2], (whole.logits, whole.on_sink), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_blocks_hide_their_share_and_the_same_steps_whenever_they_are_worked_out(make_model, monkeypatch):
    monkeypatch.setattr(model_module, "PAIRS_AT_A_TIME", 4_000)
    model, tokens = make_model(SEEN, DONE, dropout_steps=0.5), random_tokens([200, 200], 0)
    batch, seen = tokens.batch(np.arange(2)), []
    mix = RewardPredictor.mix
    monkeypatch.setattr(RewardPredictor, "mix", lambda self, w, v: seen.append(w.detach()) or mix(self, w, v))
    for seed in (7, 7, 8):
        dropout = Dropout(torch.Generator().manual_seed(seed), torch.tensor([1.0, 0.0])[:, None, None])
        model.predict(model.encode(batch.rows, dropout), batch.index, dropout).on_sink.sum().backward()
    blocks = len(seen) // 6  # forward and backward, three times
    assert blocks > 10
    first, again, same, other = (seen[i * blocks : (i + 1) * blocks] for i in (0, 1, 2, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, reversed(again), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    last = first[-1][..., 1:150]  # before all rows of the block
    assert float((last[0] == 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert (last[1] > 0).all(), "an episode is spared in all its blocks"
    assert not torch.equal(first[-1][0, 0, 1:100] == 0, first[-2][0, 0, 1:100] == 0)
