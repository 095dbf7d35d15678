"""Fitting: it learns, it is a function of its seed, and steps weigh what they should."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.credit.conftest import cut, episodes_of, same_weights

from secret_rl.credit import RewardBalanceWarning, Secret
from secret_rl.credit.secret import fit as fitting
from secret_rl.credit.secret import training
from secret_rl.credit.secret.model import Dropout, weighted_loss
from secret_rl.credit.secret.options import TrainingOptions
from secret_rl.credit.secret.training import Trainer
from secret_rl.trajectories import Trajectories

TINY = {"units": 16, "steps": 12, "evaluate_every": 4, "batch_size": 16, "learning_rate": 0.03, "device": "cpu"}
CPU = torch.device("cpu")


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def test_the_memory_task_is_learned_and_attention_peaks_at_the_cue(learned, cues):
    assert learned.report.verdict == "credit"
    assert learned.report.history_gain > 0.8
    unseen = cues(300, seed=1)
    assert learned.evaluate(unseen).balanced_accuracy > 0.95
    credit = learned.attribute(unseen)
    assert credit.coverage > 0.95
    cue_steps = np.array([unseen[episode].annotations["cue"].argmax() for episode in credit.episode.tolist()])
    peaks = np.array([credit.row(r).argmax() for r in range(len(credit))])
    for sign in (-1, 1):
        rows = np.sign(credit.reward) == sign
        assert rows.sum() > 90
        assert np.mean(peaks[rows] == cue_steps[rows]) > 0.9


def test_the_report_says_what_happened(learned, cues):
    report, data = learned.report, cues(600)
    assert report.class_counts == (200, 600 * 8 - 400, 200)
    assert 0 < report.steps <= 400 and report.seconds > 0
    assert [entry["step"] for entry in report.curve] == list(range(50, report.curve[-1]["step"] + 1, 50))
    assert report.curve[-1]["loss"] < report.curve[0]["loss"]
    assert report.calibration_error < 0.05
    assert report.uncertain == pytest.approx(600 * 2 / 3, rel=0.1), "of each door, the present knows a third"
    np.testing.assert_allclose(np.array(report.decided)[[0, 2]], 1 / 3, atol=0.07)
    held_out = data[data.split_indices(0.1, seed=0)[1]]
    np.testing.assert_array_equal(learned.evaluate(held_out).counts, report.validation.counts)


@pytest.mark.usefixtures("quick", "silent")
def test_the_same_seed_gives_the_same_model_to_the_bit_and_another_does_not(cues):
    data, before = cues(40), torch.get_rng_state()
    first, other = (Secret(**TINY, seed=seed).fit(data) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before), "global randomness stays as it is"
    torch.manual_seed(123)
    assert same_weights(first, Secret(**TINY).fit(data)), "and has no say"
    assert not same_weights(first, other)


@pytest.fixture
def spy(monkeypatch):
    """The trainers that are made."""
    trainers, init = [], Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", lambda it, *args: trainers.append(it) or init(it, *args))
    return trainers


@pytest.mark.usefixtures("quick", "silent")
def test_steps_without_weight_have_no_say(cues, spy, monkeypatch):
    """What rewards they have is not learned from; which weights are kept, held-out data tells."""
    monkeypatch.setattr(fitting, "_LEARNED", 2.0)
    monkeypatch.setattr(fitting, "_ALL", 2.0)
    monkeypatch.setattr(fitting, "_NO_DOUBT", -100.0)
    monkeypatch.setattr(fitting, "_PROBE_UPDATES", 1_000)  # too few updates for a second start
    data = cues(60)
    weights = np.tile(np.arange(8) == 7, 60).astype(float)
    changed = data.with_rewards(lambda rewards: np.where(np.arange(len(rewards)) % 8 == 3, 1.0, rewards))
    for rewards in (data, changed):
        Secret(**TINY).fit(rewards, weights=weights)
    one, other = (trainer.state() for trainer in spy)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w[:-1], r"weights of shape \(159,\), expected one for each of the 160 steps"),
        (lambda w: w.reshape(20, 8), r"weights of shape \(20, 8\), expected one"),
        (lambda w: w - 2, "weights must be finite and not negative"),
        (lambda w: w * np.nan, "weights must be finite"),
        (lambda w: w * np.inf, "weights must be finite"),
        (lambda w: w * 0, "some of them positive"),
    ],
)
def test_weights_that_are_none_are_refused(cues, change, message):
    with pytest.raises(ValueError, match=message):
        Secret(**TINY).fit(cues(20), weights=change(np.ones(160)))


@pytest.mark.usefixtures("quick", "silent")
def test_the_weights_of_the_paper_are_those_of_its_loss(cues, spy):
    """Section 2.1: the mean over trajectories of the mean over steps of w(sign) times the cross-entropy."""
    data = cut(cues(60), lambda i: slice(i % 4, None))
    secret = Secret(**TINY, weights="paper").fit(data)
    trainer, model = spy[0], secret.model
    chosen = np.array([3, 8, 9, 30])
    batch = trainer.tokens.batch(chosen)
    with torch.no_grad():
        prediction = model(model.encode(batch.rows, Dropout(None)), batch.index)
    total = 0.0
    for place, number in enumerate(chosen.tolist()):
        rewards = data[number].rewards
        for t, reward in enumerate(rewards):
            sign = int(np.sign(reward))
            surprise = -float(prediction.logits[place, t].log_softmax(-1)[sign + 1])
            total += {1: 0.499, 0: 0.02, -1: 0.499}[sign] * surprise / len(rewards) / len(chosen)
    assert float(weighted_loss(prediction, batch.classes, batch.weights)) == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(np.diff(trainer._drawn_up_to), 1 / 54, rtol=1e-6, err_msg="drawn alike")


@pytest.mark.usefixtures("quick", "silent")
def test_credit_can_be_learned_for_other_rewards(cues):
    data = cues(60)
    turned = Secret(**TINY).fit(data.with_rewards(lambda rewards: np.where(rewards < 0, 5.0, 0.0)))
    assert turned.reward_classes.values == (0.0, 5.0)
    assert turned.report.class_counts == (460, 20)
    assert set(np.asarray(data.rewards)) == {-1.0, 0.0, 1.0}, "the data stays as it is"


@pytest.mark.usefixtures("quick")
def test_a_class_that_is_not_among_the_held_out_steps_is_not_passed_over_in_silence(cues):
    """With three positive rewards, all of them trained on, nothing tells whether they are predicted."""
    data = Trajectories.concatenate([cues(60, kinds=(-1, 0)), cues(3, kinds=(1,))])
    seed = next(s for s in range(50) if data.split_indices(0.1, seed=s)[1].max() < 60)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Secret(**TINY, seed=seed).fit(data)
    [balance] = [str(w.message) for w in caught if w.category is RewardBalanceWarning]
    assert balance.startswith("none of the 3 rewards of +1 is held out: whether they are predicted is unknown")
    assert {warning.filename for warning in caught} == {__file__}, "warnings point at the line that called fit"


@pytest.mark.parametrize(
    ("losses", "rest", "kept"),
    [
        ([0.99], 80, 136),  # nothing learned: the rate falls when 55 % of the updates are made
        ([0.5], 28, 52),  # three times as many looks as patience says without progress
        ([0.05], 12, 36),  # nearly all is known: as many as it says
        ([0.02], 4, 28),  # there is nothing left to wait for
        ([0.5] * 5 + [0.4] * 5 + [0.3] * 99, 68, 116),  # progress is waited for
        ([0.99, 0.5, 0.8], 32, 8),  # what was best is kept
    ],
)
@pytest.mark.usefixtures("quick", "silent")
def test_training_cools_down_when_learning_has_come_to_rest(cues, monkeypatch, losses, rest, kept):
    monkeypatch.setattr("secret_rl.credit.secret.training._LEAST_COOLING", 24)
    found, cooled, cool_down = iter(losses), [], Trainer.cool_down

    def look(self, trainer, last=[0.0]):  # noqa: B006  the last loss is found again and again
        last[0] = next(found, last[0])
        self._guess_loss = 1.0
        return last[0], 1 - last[0]

    monkeypatch.setattr(fitting.Fitting, "_validate", look)
    monkeypatch.setattr(
        Trainer, "cool_down", lambda self: (cool_down(self), cooled.append((self.step, self.last_step)))
    )
    report = Secret(**TINY | {"steps": 144, "patience": 2}).fit(cues(40)).report
    assert cooled[0][0] == rest
    assert report.curve[-1]["step"] == cooled[0][1]
    assert report.steps == kept


def test_an_estimate_grows_with_what_a_fit_takes(cues):
    options = {"units": 16, "batch_size": 16, "device": "cpu"}
    few, many = (Secret(steps=steps, **options).estimate(cues(300)) for steps in (40, 4_000))
    assert (few.updates, many.updates, few.batch_size) == (40, 4_000, 16)
    assert 0 < few.seconds < many.seconds and few.memory == many.memory > 0
    assert str(few).startswith("40 updates of 16 trajectories, about ")


@pytest.mark.usefixtures("quick", "silent")
def test_any_kind_of_observation_is_fitted_attributed_and_kept_in_files(tmp_path):
    rng = np.random.default_rng(0)
    seen = spaces.Dict(
        kinds=spaces.Box(0, 255, (3, 3, 2), np.uint8),  # as MiniGrid describes a view: 5 and 6 of 255 are not shades
        picture=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        speed=spaces.Box(-1e3, 1e3, (2,)),
        key=spaces.MultiBinary(2),
    )
    lengths = rng.integers(1, 12, 20)
    observations = [
        {
            "kinds": rng.integers(0, 7, (length, 3, 3, 2)).astype(np.uint8),
            "picture": rng.integers(0, 256, (length, 4, 4, 3)).astype(np.uint8),
            "speed": rng.normal(500, 100, (length, 2)).astype(np.float32),
            "key": rng.integers(0, 2, (length, 2)).astype(np.int8),
        }
        for length in lengths
    ]
    actions = [rng.uniform(-1, 1, (length, 2)).astype(np.float32) for length in lengths]
    rewards = [rng.integers(-1, 2, length) for length in lengths]
    data = episodes_of(observations, rewards, actions, seen, spaces.Box(-1, 1, (2,)))
    secret = Secret(**TINY).fit(data)
    assert all(value.isfinite().all() for value in secret.model.state_dict().values())
    encoder = secret.model.encoder.observation_encoder
    speed = encoder.encoders[encoder.keys.index("speed")]
    assert speed[0].mean.tolist() == pytest.approx([500, 500], abs=50)
    alone = secret.memoryless.models[0].encoder.observation_encoder.encoders[encoder.keys.index("speed")]
    assert speed[0].mean.tolist() == alone[0].mean.tolist(), "the present is read alike"
    credit = secret.attribute(data)
    assert 0 < len(credit) <= credit.rewards_seen <= data.steps - len(data)
    again = Secret.load(secret.save(tmp_path / "model.safetensors"), device="cpu")
    assert again.specs == secret.specs and dict(again.specs[0]["spaces"])["kinds"]["levels"] == 7
    data.observations["kinds"][:] += 30  # kinds that it has never seen
    np.testing.assert_array_equal(again.evaluate(data).counts, secret.evaluate(data).counts)


def test_updates_grow_with_the_data_unless_given():
    planned = [TrainingOptions().planned_steps(count) for count in (10, 3_600, 10_000, 10**6)]
    assert planned == [1500, 1800, 3000, 4000]
    assert TrainingOptions(steps=7).planned_steps(10**6) == 7


@pytest.mark.usefixtures("silent")
def test_long_trajectories_come_in_smaller_batches(cues, monkeypatch):
    data, sizes, real = cues(60), [], training.Trainer.train

    def train(trainer, updates):
        sizes.append(trainer.batch_size)
        return real(trainer, updates)

    monkeypatch.setattr(training.Trainer, "train", train)
    for most_pairs, size in ((1 << 25, 16), (3 * int(data.lengths.max()) ** 2, 3), (1, 1)):
        monkeypatch.setattr(training, "_MOST_PAIRS", most_pairs)
        Secret(units=16, steps=2, batch_size=16, device="cpu").fit(data)
        assert set(sizes) == {size}
        sizes.clear()
