"""Credit: the attention of correctly predicted rewards, however it is computed."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.credit.conftest import episodes_of

from secret_rl.credit import Attributions, RewardClasses
from secret_rl.credit.attributions import REWARD_KINDS
from secret_rl.credit.rivals.readouts import READOUTS, integrated_gradients, read_out
from secret_rl.credit.secret import readout as attribution
from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.model import Dropout, Prediction
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.testing.strategies import trajectories

CPU = torch.device("cpu")
SIGNS = RewardClasses((-1.0, 0.0, 1.0), (-0.05, 0.05))


class Undecided:
    """A predictor without memory that is certain of some symbols and of nothing else."""

    def __init__(self, decided=()):
        self.decided = decided

    def probabilities(self, tokens, folds, device):
        said = np.full((len(tokens.classes), 3), 1 / 3, np.float32)
        if len(self.decided):
            seen = tokens.rows(np.arange(len(tokens.classes))).observations.numpy()
            sure = np.isin(seen, self.decided)
            said[sure] = np.eye(3, dtype=np.float32)[tokens.classes[sure]]
        return said


def attribute(model, data, rewards="all", tolerance=0, *, decided=(), **options):
    return attribution.attribute(model, Undecided(decided), SIGNS, data, CPU, rewards, tolerance, **options)


def equal_credit(one, other, tolerance=1e-5):
    for name in ("episode", "step", "predicted_at", "reward", "offsets", "lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.rewards_seen == other.rewards_seen
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.evidence, other.evidence, rtol=0, atol=10 * tolerance)


def slow_attribute(model, data, signs):
    """Every reward of some signs in turn, with the full prediction of its episode alone; first steps have no past."""
    tokens = Tokens.of(data, SIGNS)
    rows = []
    for number, episode in enumerate(data):
        batch = tokens.batch(np.array([number]))
        with torch.no_grad():
            encoded = model.encode(batch.rows, Dropout(None))
            prediction = model(encoded, batch.index)
            alone = model.predict_alone(encoded[batch.index[0], : model.options.units])
        said, unseen = (logits.log_softmax(-1) for logits in (prediction.logits[0], alone))
        for t in range(1, len(episode)):
            sign = int(np.sign(episode.rewards[t]))
            if sign in signs and int(said[t].argmax()) - 1 == sign:
                evidence = float(said[t, sign + 1] - unseen[t, sign + 1])
                attention = prediction.attention[0, t, : t + 1].numpy()
                rows.append((number, t, float(episode.rewards[t]), evidence, attention))
    return rows


@pytest.mark.parametrize("kind", REWARD_KINDS)
@given(data=trajectories(), seed=st.integers(0, 99), transitions=st.booleans())
@settings(max_examples=40)
def test_credit_is_the_attention_of_correctly_predicted_rewards(make_model, kind, data, seed, transitions):
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,), transitions=transitions)
    credit = attribute(model, data, kind)
    expected = slow_attribute(model, data, REWARD_KINDS[kind])
    assert len(credit) == len(expected)
    for r, (number, step, reward, evidence, row) in enumerate(expected):
        assert (credit.episode[r], credit.step[r], credit.predicted_at[r]) == (number, step, step)
        assert credit.reward[r] == reward
        assert credit.evidence[r] == pytest.approx(evidence, abs=1e-3)
        np.testing.assert_allclose(credit.row(r), row, rtol=0, atol=1e-5)
        assert credit.row(r).sum() == pytest.approx(1, abs=1e-5)
    later = np.setdiff1d(np.arange(data.steps), data.offsets[:-1])
    assert credit.rewards_seen == np.isin(np.sign(data.rewards[later]), REWARD_KINDS[kind]).sum()
    np.testing.assert_array_equal(credit.lengths, data.lengths)


@given(data=trajectories(max_episodes=8), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_credit_adds_up_to_the_rewards_it_is_for(make_model, data, seed):
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,))
    credit = attribute(model, data)
    earned = credit.step_credit()
    assert earned.shape == (data.steps,)
    assert (credit.weights >= 0).all()
    for r in range(len(credit)):
        assert credit.row(r).sum() == pytest.approx(1, abs=1e-5)
        assert credit.row(r)[-1] == 0, "a reward does not earn itself"
    for number in range(len(data)):
        steps = slice(int(data.offsets[number]), int(data.offsets[number + 1]))
        assert earned[steps].sum() == pytest.approx(credit.reward[credit.episode == number].sum(), abs=1e-4)


@given(data=trajectories(), seed=st.integers(0, 99), tolerance=st.integers(0, 2), transitions=st.booleans())
@settings(max_examples=40)
def test_a_table_of_distinct_tokens_changes_nothing(make_model, data, seed, tolerance, transitions):
    data = data[np.arange(12) % len(data)]
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,), transitions=transitions)
    with_table = attribute(model, data, "all", tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        assert Tokens.of(data, SIGNS).ids is None
        equal_credit(attribute(model, data, "all", tolerance), with_table, tolerance=1e-3)


def test_other_readouts_are_what_they_say(learned, cues):
    """Attention times the length of what was attended to, and what the prediction loses without a step; as shares."""
    data, model, score = cues(12, seed=3), learned.model, learned.model.score
    tokens = Tokens.of(data, learned.reward_classes)
    plain = learned.attribute(data)
    by_value, one_out = (read_out(learned, data, plain, name) for name in READOUTS[1:3])
    assert len(plain) > 8

    def said(encoded, batch, step):
        return model(encoded, batch.index).logits[0, step].log_softmax(-1)[batch.classes[0, step]]

    for r, step in enumerate(plain.step.tolist()):
        batch = tokens.batch(plain.episode[r : r + 1])
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            encoded = model.encode(batch.rows, Dropout(None))
            value, whole = model.steps(encoded, batch.index)[3], said(encoded, batch, step)
            weights = model(encoded, batch.index).weights[0, step, 1 : step + 1] * value[0, :step].norm(dim=-1)
            lost = torch.zeros(step)
            for key in range(step):
                left_out = torch.tensor(1 + key)
                patch.setattr(model, "score", lambda *given, key=left_out: score(*given).index_fill(-1, key, -np.inf))
                lost[key] = (whole - said(encoded, batch, step)).clamp(min=0)
        np.testing.assert_allclose(by_value.row(r)[:step], weights / weights.sum(), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(one_out.row(r)[:step], lost / lost.sum(), rtol=1e-2, atol=1e-4)


def test_integrated_gradients_add_up_to_what_the_past_adds(learned, cues):
    data = cues(6, seed=3)
    batch = Tokens.of(data, learned.reward_classes).batch(np.arange(6))
    times = torch.full((6, 1), 7)
    with torch.no_grad():
        encoded = learned.model.prepare(learned.model.encode(batch.rows, Dropout(None)))
        prediction, row_x, value = learned.model.predict_rows(encoded, batch.index, times)
        gained = prediction.logits[:, 0].log_softmax(-1) - learned.model.predict_alone(row_x[:, 0]).log_softmax(-1)
    classes = batch.classes.gather(1, times)[:, 0]
    for row in range(6):
        of_row = row_x[row], prediction.weights[row], value[row], classes[row : row + 1]
        credit = integrated_gradients(learned.model, *of_row, points=200)
        assert credit.sum().item() == pytest.approx(gained[row, classes[row]].item(), rel=0.05, abs=0.02)


def test_rewards_that_the_present_decides_are_left_out_unless_asked_for():
    data = announced(([0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0]), ([0, -1, 0], [0.0, -1.0, 0.0]))
    assert attribute(Clairvoyant(), data).rewards_seen == 5
    credit = attribute(Clairvoyant(), data, decided=[0, 1])  # what is seen before rewards of -1 and 0
    assert (credit.episode.tolist(), credit.step.tolist()) == ([0, 0], [1, 3])
    assert credit.rewards_seen == 2 and credit.coverage == 1
    asked = attribution.attribute(Clairvoyant(), Undecided([0, 1, 2]), SIGNS, data, CPU, decided=True)
    assert len(asked) == 5
    assert len(attribute(Clairvoyant(), data, decided=[0, 1, 2])) == 0


@pytest.mark.parametrize("with_table", [True, False])
@pytest.mark.parametrize("steps_at_a_time", [1, 8, 17, 100])
def test_credit_in_small_blocks_is_that_of_one_block(learned, cues, monkeypatch, steps_at_a_time, with_table):
    data = cues(30, seed=5)
    if not with_table:
        monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    whole = learned.attribute(data, tolerance=1)
    assert len(whole) > 15
    monkeypatch.setattr(attribution, "_STEPS_AT_A_TIME", steps_at_a_time)
    equal_credit(learned.attribute(data, tolerance=1), whole)


@pytest.mark.parametrize("pairs", [1, 30, 100, 700])
def test_rows_of_an_episode_in_several_parts_are_those_of_one(learned, cues, monkeypatch, pairs):
    data = cues(12, seed=5)
    options = {"tolerance": 1, "decided": True}
    whole, inspected = learned.attribute(data, **options), learned.inspector(data)
    assert len(whole) > 50
    probabilities, attention = inspected.probabilities(3), inspected.attention(3, np.arange(8))
    monkeypatch.setattr(attribution, "_PAIRS_AT_A_TIME", pairs)
    equal_credit(learned.attribute(data, **options), whole)
    np.testing.assert_allclose(inspected.probabilities(3), probabilities, atol=1e-5)
    np.testing.assert_allclose(inspected.attention(3, np.arange(8)), attention, atol=1e-5)


class Clairvoyant:
    """Predicts the sign that each observation names (0, 1, 2 for -1, 0, 1) and attends evenly to earlier steps."""

    options = None

    def eval(self):
        return self

    def encode(self, rows, dropout):
        return rows.observations

    def prepare(self, tokens):
        return tokens

    def predict_alone(self, row_x):
        return torch.zeros(len(row_x), 3)

    def predict_rows(self, tokens, index, times):
        own = tokens[index.gather(1, times)]
        earlier = torch.arange(index.shape[1]) < times[..., None]
        weights = torch.cat([torch.ones_like(times)[..., None], earlier], -1).float()
        weights = weights / weights.sum(-1, keepdim=True)
        logits = torch.nn.functional.one_hot(own, 3).float()
        return Prediction(logits, weights, weights.log()), own[..., None].float(), tokens[index][..., None].float()


def announced(*episodes):
    """Episodes given as (predicted signs, signs of the rewards)."""
    predicted, rewards = zip(*episodes, strict=True)
    return episodes_of([np.array(signs) + 1 for signs in predicted], rewards, seen=spaces.Discrete(3))


@pytest.mark.parametrize(("shift", "at"), [(-2, 2), (-1, 3), (0, 4), (1, 5), (2, 6)])
@pytest.mark.parametrize("tolerance", [0, 1, 2, 3])
def test_a_prediction_off_by_some_steps_counts_within_the_tolerance_only(shift, at, tolerance):
    predicted, rewards = np.zeros(8, int), np.zeros(8)
    predicted[4 + shift], rewards[4] = 1, 1
    credit = attribute(Clairvoyant(), announced((predicted, rewards)), "positive", tolerance)
    assert credit.rewards_seen == 1
    assert len(credit) == (abs(shift) <= tolerance)
    assert credit.coverage == float(abs(shift) <= tolerance)
    if len(credit):
        assert (credit.step.tolist(), credit.predicted_at.tolist()) == ([4], [at])
        assert credit.row(0).tolist() == pytest.approx([1 / at] * at + [0])


def test_the_nearest_prediction_is_used_and_the_earlier_of_two():
    data = announced(
        ([1, 0, 1, 1, 0], [0, 0, 0, 1, 0]),  # its own step is right
        ([1, 0, 1, 0, 1], [0, 0, 0, 1, 0]),  # one step before and one after
        ([1, 0, 0, 0, 1], [0, 0, 0, 1, 0]),  # one after is nearer than three before
        ([1, 0, 0, -1, 0], [0, 0, 0, 1, 0]),  # of the other sign, and too early
    )
    credit = attribute(Clairvoyant(), data, "positive", 2)
    assert list(zip(credit.episode, credit.predicted_at, strict=True)) == [(0, 3), (1, 2), (2, 4)]
    assert credit.coverage == 0.75


@pytest.mark.parametrize("with_table", [True, False])
def test_a_tolerance_reaches_past_neither_end_of_an_episode(monkeypatch, with_table):
    if not with_table:
        monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    data = announced(([1, 0], [0, 0]), ([0, 0, 0], [1, 0, 1]), ([1, 1], [0, 0]))
    assert len(attribute(Clairvoyant(), data, "positive", 5)) == 0
    padded = announced(([1, 0, 0], [0, 0, 1]), ([0] * 6, [0, 0, 1, 0, 0, 0]))
    assert len(attribute(Clairvoyant(), padded, "positive", 1)) == 0
    data = announced(([0, 0], [0, 0]), ([0, 0, 1, 0], [0, 1, 0, 1]))
    credit = attribute(Clairvoyant(), data, "positive", 5)
    assert (credit.step.tolist(), credit.predicted_at.tolist()) == ([1, 3], [2, 2])


def test_data_without_rewards_of_the_kind_has_no_rows(tmp_path):
    credit = attribute(Clairvoyant(), announced(([0, 1], [0, 1])), "negative")
    assert (len(credit), credit.rewards_seen, credit.coverage) == (0, 0, 0.0)
    assert credit.step_credit().tolist() == [0, 0]
    assert len(Attributions.load(credit.save(tmp_path / "none.safetensors"))) == 0
    with pytest.raises(ValueError, match="tolerance must not be negative, got -1"):
        attribute(Clairvoyant(), announced(([0, 1], [0, 1])), tolerance=-1)
