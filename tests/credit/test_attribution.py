"""Credit: the attention of correctly predicted rewards, however it is computed."""

import itertools
import os
import pickle
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealing import change_arrays

from secret_rl.credit import Attributions, RewardClasses, attribution
from secret_rl.credit import tokens as tokens_module
from secret_rl.credit.attribution import READOUTS
from secret_rl.credit.model import Dropout, Prediction
from secret_rl.credit.tokens import Tokens
from secret_rl.files import FileFormatError
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import Trajectories

CPU = torch.device("cpu")
SIGNS = RewardClasses((-1.0, 0.0, 1.0), (-0.05, 0.05))


class Undecided:
    """A predictor without memory that leaves everything open, but for symbols that it is told of."""

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


def hand_made():
    """Episodes of 2 and 5 steps; the second has a reward of 2 at step 2 and one of -1 at step 4."""
    return Attributions(
        episode=np.array([1, 1]),
        step=np.array([2, 4]),
        predicted_at=np.array([2, 4]),
        reward=np.array([2.0, -1.0]),
        evidence=np.array([0.5, 0.0], np.float32),
        weights=np.array([0.5, 0.25, 0.25, 0.0, 0.5, 0.0, 0.5, 0.0], np.float32),
        offsets=np.array([0, 3, 8]),
        rewards_seen=4,
        lengths=np.array([2, 5]),
    )


def equal_credit(one, other, tolerance=1e-5):
    for name in ("episode", "step", "predicted_at", "reward", "offsets", "lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.rewards_seen == other.rewards_seen
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.evidence, other.evidence, rtol=0, atol=10 * tolerance)


def test_what_each_step_earned_worked_by_hand():
    credit = hand_made()
    first_episode = [0.0, 0.0]
    second_episode = [2 * 0.5, 2 * 0.25 - 1 * 0.5, 2 * 0.25, -1 * 0.5, 0.0]
    assert second_episode == [1.0, 0.0, 0.5, -0.5, 0.0]
    assert credit.step_credit().tolist() == first_episode + second_episode
    assert credit.step_credit().sum() == credit.reward.sum()
    assert credit.row(0).tolist() == [0.5, 0.25, 0.25]
    assert credit.row(1).tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]
    assert len(credit) == 2 and credit.coverage == 0.5


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


KINDS = {"all": (-1, 0, 1), "positive": (1,), "negative": (-1,)}


@pytest.mark.parametrize("kind", KINDS)
@given(data=trajectories(), seed=st.integers(0, 99), transitions=st.booleans())
@settings(max_examples=40)
def test_credit_is_the_attention_of_correctly_predicted_rewards(make_model, kind, data, seed, transitions):
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,), transitions=transitions)
    credit = attribute(model, data, kind)
    expected = slow_attribute(model, data, KINDS[kind])
    assert len(credit) == len(expected)
    for r, (number, step, reward, evidence, row) in enumerate(expected):
        assert (credit.episode[r], credit.step[r], credit.predicted_at[r]) == (number, step, step)
        assert credit.reward[r] == reward
        assert credit.evidence[r] == pytest.approx(evidence, abs=1e-3)
        np.testing.assert_allclose(credit.row(r), row, rtol=0, atol=1e-5)
        assert credit.row(r).sum() == pytest.approx(1, abs=1e-5)
    later = np.setdiff1d(np.arange(data.steps), data.offsets[:-1])
    assert credit.rewards_seen == np.isin(np.sign(data.rewards[later]), KINDS[kind]).sum()
    np.testing.assert_array_equal(credit.lengths, data.lengths)


@given(data=trajectories(max_episodes=8), seed=st.integers(0, 99), readout=st.sampled_from(READOUTS))
@settings(max_examples=40)
def test_credit_adds_up_to_the_rewards_it_is_for(make_model, data, seed, readout):
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,))
    credit = attribute(model, data, readout=readout)
    earned = credit.step_credit()
    assert earned.shape == (data.steps,)
    assert (credit.weights >= 0).all()
    for r in range(len(credit)):
        assert credit.row(r).sum() == pytest.approx(1, abs=1e-5)
        assert credit.row(r)[-1] == 0, "a reward does not earn itself"
    for number in range(len(data)):
        steps = slice(int(data.offsets[number]), int(data.offsets[number + 1]))
        assert earned[steps].sum() == pytest.approx(credit.reward[credit.episode == number].sum(), abs=1e-4)


@given(
    data=trajectories(), seed=st.integers(0, 99), tolerance=st.integers(0, 2), readout=st.sampled_from(READOUTS),
    transitions=st.booleans(),
)  # fmt: skip
@settings(max_examples=40)
def test_a_table_of_distinct_tokens_changes_nothing(make_model, data, seed, tolerance, readout, transitions):
    data = data[np.arange(12) % len(data)]
    model = make_model(data.observation_space, data.action_space, seed, filters=(2,), transitions=transitions)
    with_table = attribute(model, data, "all", tolerance, readout=readout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        assert Tokens.of(data, SIGNS).ids is None
        equal_credit(attribute(model, data, "all", tolerance, readout=readout), with_table, tolerance=1e-3)


def test_other_readouts_are_what_they_say(learned, cues):
    """Attention times the length of what was attended to, and the loss of log-probability, each as shares."""
    data, model = cues(12, seed=3), learned.model
    tokens = Tokens.of(data, learned.reward_classes)
    plain, by_value, by_loss = (learned.attribute(data, readout=readout) for readout in READOUTS)
    assert len(plain) == len(by_value) == len(by_loss) > 8
    for r in range(len(plain)):
        step = int(plain.step[r])
        batch = tokens.batch(plain.episode[r : r + 1])
        with torch.no_grad():
            encoded = model.encode(batch.rows, Dropout(None))
            _, _, _, value = model.steps(encoded, batch.index)
            whole = model(encoded, batch.index)
        weights = whole.weights[0, step, 1 : step + 1] * value[0, :step].norm(dim=-1)
        np.testing.assert_allclose(by_value.row(r)[:step], weights / weights.sum(), rtol=1e-3, atol=1e-5)
        wanted, lost = int(batch.classes[0, step]), []
        for left_out in range(step):
            scores = whole.scores[0, step].clone()
            scores[1 + left_out] = -torch.inf
            with torch.no_grad():
                mixed = model.mix(scores.softmax(-1)[None, None], value)[0, 0]
                x = encoded[batch.index[0, step]]
                said = model.classify(x, mixed, Dropout(None)).log_softmax(-1)[wanted]
            lost.append(float(whole.logits[0, step].log_softmax(-1)[wanted] - said))
        lost = np.maximum(lost, 0)
        if whole.weights[0, step, 1:].max() < 0.999 and lost.sum() > 1e-3:
            np.testing.assert_allclose(by_loss.row(r)[:step], lost / lost.sum(), rtol=0, atol=1e-2)


def test_rewards_that_the_present_decides_are_left_out_unless_asked_for():
    data = announced(([0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0]), ([0, -1, 0], [0.0, -1.0, 0.0]))
    assert attribute(Clairvoyant(), data).rewards_seen == 5
    credit = attribute(Clairvoyant(), data, decided=[0, 1])  # what is seen before rewards of -1 and 0
    assert (credit.episode.tolist(), credit.step.tolist()) == ([0, 0], [1, 3])
    assert credit.rewards_seen == 2 and credit.coverage == 1
    asked = attribution.attribute(Clairvoyant(), Undecided([0, 1, 2]), SIGNS, data, CPU, decided=True)
    assert len(asked) == 5
    assert len(attribute(Clairvoyant(), data, decided=[0, 1, 2])) == 0


def test_of_a_memory_task_the_doors_have_rows_and_cues_are_evidence(learned, cues):
    """The present decides everything else. A door that pays nothing is open, too."""
    data = cues(90, seed=6)
    credit = learned.attribute(data)
    assert (credit.step == 7).all()
    assert credit.rewards_seen == 90 and credit.coverage > 0.9
    assert set(np.sign(credit.reward)) == {-1, 0, 1}
    assert (credit.evidence[credit.reward != 0] > 0.3).all()
    whole = learned.attribute(data, decided=True)
    assert whole.rewards_seen == 90 * 7, "all steps but the first ones"
    assert len(learned.attribute(data, rewards="positive")) == (credit.reward > 0).sum()


def test_first_steps_have_no_row():
    data = announced(([1, 1], [1.0, 1.0]), ([1], [1.0]))
    credit = attribution.attribute(Clairvoyant(), Undecided(), SIGNS, data, CPU, "positive", decided=True)
    assert (credit.episode.tolist(), credit.step.tolist(), credit.rewards_seen) == ([0], [1], 1)


@pytest.mark.parametrize("with_table", [True, False])
@pytest.mark.parametrize("steps_at_a_time", [1, 8, 17, 100])
def test_credit_in_small_blocks_is_that_of_one_block(learned, cues, monkeypatch, steps_at_a_time, with_table):
    data = cues(30, seed=5)
    if not with_table:
        monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    whole = learned.attribute(data, tolerance=1)
    assert len(whole) > 15
    monkeypatch.setattr(attribution, "_STEPS_AT_A_TIME", steps_at_a_time)
    monkeypatch.setattr(attribution, "_TOKENS_AT_A_TIME", 3)
    equal_credit(learned.attribute(data, tolerance=1), whole)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 40), st.data())
def test_blocks_hold_whole_episodes_within_their_bound(lengths, bound, data):
    rewards = data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    episodes = np.repeat(np.arange(len(lengths)), rewards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attribution, "_STEPS_AT_A_TIME", bound)
        blocks = list(attribution._blocks(episodes, np.array(lengths)))
    assert list(itertools.chain(*(range(*block) for block in blocks))) == list(range(len(episodes)))
    members = [set(episodes[first:last].tolist()) for first, last in blocks]
    assert sum(len(block) for block in members) == len(set(episodes.tolist())), "no episode is in two blocks"
    for block in members:
        assert len(block) == 1 or len(block) * max(lengths[e] for e in block) <= bound


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
    return Trajectories.from_episodes(
        [
            {"observations": np.array(p) + 1, "actions": np.zeros(len(p), int), "rewards": np.array(r, float)}
            for p, r in episodes
        ],
        observation_space=spaces.Discrete(3),
        action_space=spaces.Discrete(1),
    )


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


def test_rewards_of_the_kind_asked_for_have_rows():
    data = announced(([0, 1, -1, 0, 1], [0.0, 3.0, -2.0, 1.0, 0.0]), ([0, -1, 0], [0.0, -0.5, 0.0]))
    rows = {kind: attribute(Clairvoyant(), data, kind) for kind in KINDS}
    assert {kind: credit.reward.tolist() for kind, credit in rows.items()} == {
        "all": [3.0, -2.0, -0.5, 0.0],
        "positive": [3.0],
        "negative": [-2.0, -0.5],
    }
    assert {kind: credit.coverage for kind, credit in rows.items()} == {
        "all": 4 / 6,
        "positive": 0.5,
        "negative": 1.0,
    }


def test_data_without_rewards_of_the_kind_has_no_rows(tmp_path):
    credit = attribute(Clairvoyant(), announced(([0, 1], [0, 1])), "negative")
    assert (len(credit), credit.rewards_seen, credit.coverage) == (0, 0, 0.0)
    assert credit.step_credit().tolist() == [0, 0]
    assert len(Attributions.load(credit.save(tmp_path / "none.safetensors"))) == 0


def test_unknown_kinds_and_readouts_and_negative_tolerances_are_refused():
    data = announced(([0, 1], [0, 1]))
    with pytest.raises(ValueError, match="rewards must be one of .*'negative', 'positive'.*, got 'both'"):
        attribute(Clairvoyant(), data, "both")
    with pytest.raises(ValueError, match="readout must be one of attention, .*leave-one-out, got 'gradient'"):
        attribute(Clairvoyant(), data, readout="gradient")
    with pytest.raises(ValueError, match="tolerance must not be negative, got -1"):
        attribute(Clairvoyant(), data, tolerance=-1)


def test_saved_credit_comes_back_to_the_bit(tmp_path, learned, cues):
    credit = learned.attribute(cues(30))
    again = Attributions.load(credit.save(tmp_path / "new" / "credit.safetensors"))
    equal_credit(again, credit, tolerance=0)
    assert again.weights.dtype == np.float32
    assert again.coverage == credit.coverage
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["credit.safetensors"]


@pytest.mark.parametrize("content", [b"", b"garbage", "another format", "truncated", "pickle", "flipped"])
def test_damaged_credit_is_refused(tmp_path, content):
    path = hand_made().save(tmp_path / "credit.safetensors")
    whole = path.read_bytes()
    if content == "another format":
        change_arrays(path, lambda about, arrays: about.update(format="other"))
        content, reason = path.read_bytes(), "it says format 'other', expected 'secret-rl attributions'"
    elif content == "truncated":
        content, reason = whole[:-100], "does not fit its bytes"
    elif content == "flipped":
        content, reason = whole[:-1] + bytes([whole[-1] ^ 1]), "weights does not match its checksum"
    elif content == "pickle":
        content, reason = pickle.dumps({"evil": Evil()}), "not a whole safetensors file"
    else:
        reason = f"it has {len(content)} bytes and is not a whole safetensors file"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"credit\.safetensors cannot be read as 'secret-rl attr.*': .*{reason}"):
        Attributions.load(path)


class Evil:
    """Runs where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


def changed(name, value):
    return lambda about, arrays: arrays.update({name: np.array(value, arrays[name].dtype)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda about, _: about.pop("rewards_seen"), "KeyError: 'rewards_seen'"),
        (lambda about, _: about.update(rewards_seen=-1), "-1 is not a whole number"),
        (lambda _, arrays: arrays.pop("step"), "TypeError: .*step"),
        (lambda _, arrays: arrays.update(colours=np.zeros(2)), "TypeError: .*colours"),
        (lambda _, arrays: arrays.update(weights=np.zeros(8)), "weights is float64"),
        (changed("step", [[2, 4]]), r"step is int64 of shape \(1, 2\)"),
        (changed("reward", [2.0, np.nan]), "reward holds NaN or infinite numbers"),
        (changed("weights", [np.inf] * 8), "weights holds NaN or infinite numbers"),
        (changed("step", [2]), "its arrays are of different lengths"),
        (changed("evidence", [0.5]), "its arrays are of different lengths"),
        (lambda _, arrays: arrays.pop("evidence"), "TypeError: .*evidence"),
        (lambda _, arrays: arrays.update(evidence=np.zeros(2)), "evidence is float64"),
        (changed("offsets", [0, 3, 9]), "its offsets do not fit its weights"),
        (changed("offsets", [0, 9, 8]), "its offsets do not fit its weights"),
        (changed("offsets", [1, 3, 8]), "its offsets do not fit its weights"),
        (changed("lengths", [2, 0]), "its episodes have no length"),
        (changed("lengths", [2, 2**62]), "its episodes have no length, or too much"),
        (changed("episode", [1, 2]), "it speaks of episodes that are not there"),
        (changed("episode", [-1, 1]), "it speaks of episodes that are not there"),
        (changed("step", [2, 5]), "it speaks of steps that are not there"),
        (changed("step", [-1, 4]), "it speaks of steps that are not there"),
        (changed("lengths", [2, 4]), "it speaks of steps that are not there"),
    ],
)
def test_credit_whose_parts_do_not_fit_is_refused(tmp_path, change, reason):
    path = change_arrays(hand_made().save(tmp_path / "credit.safetensors"), change)
    with pytest.raises(FileFormatError, match=rf"credit\.safetensors cannot be read as 'secret-rl attr.*': {reason}"):
        Attributions.load(path)


def test_missing_credit_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Attributions.load(tmp_path / "nowhere.safetensors")


def test_credit_that_cannot_be_saved_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = hand_made().save(tmp_path / "credit.safetensors")
    before = path.read_bytes()

    def no_space_left(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space_left)
    with pytest.raises(OSError, match="No space"):
        hand_made().save(path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"credit.safetensors": before}


def test_a_data_frame_needs_pandas_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .secret-rl\[report\]"):
        hand_made().to_pandas()


def test_a_table_has_a_line_for_each_weight_above_the_threshold(tmp_path, monkeypatch):
    class Pandas:
        DataFrame = dict

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    table = hand_made().columns(threshold=0.25)
    assert {name: list(column) for name, column in hand_made().to_pandas(0.25).items()} == {
        name: list(column) for name, column in table.items()
    }
    lines = hand_made().to_csv(tmp_path / "credit.csv", 0.25).read_text().splitlines()
    assert lines == ["episode,reward_step,reward,step,weight", "1,2,2.0,0,0.5", "1,4,-1.0,1,0.5", "1,4,-1.0,3,0.5"]
    assert len(hand_made().columns()["weight"]) == 5, "by default every step with any weight"
    assert {name: list(column) for name, column in table.items()} == {
        "episode": [1, 1, 1],
        "reward_step": [2, 4, 4],
        "reward": [2.0, -1.0, -1.0],
        "step": [0, 1, 3],
        "weight": [0.5, 0.5, 0.5],
    }
