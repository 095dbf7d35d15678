"""Fitting: it learns, it is a function of its seed, and where it fails it says so."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces

from secret_rl.credit import (
    CLASS_WEIGHTS,
    CollapseWarning,
    NoHistoryWarning,
    RewardBalanceWarning,
    Secret,
    fitting,
    memoryless,
)
from secret_rl.credit.fitting import FitReport, balanced_weights
from secret_rl.credit.measures import Confusion
from secret_rl.credit.options import SEARCHED_ZERO_WEIGHTS, ModelOptions, TrainingOptions, Weights
from secret_rl.credit.training import Evaluation, Trainer
from secret_rl.trajectories import Trajectories

TINY = {"units": 16, "steps": 12, "evaluate_every": 4, "batch_size": 16, "learning_rate": 0.03, "device": "cpu"}
DOORS = {1: 3, -1: 4, 0: 5}  # a symbol of the door for each reward: nothing to remember


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def weights_of(secret):
    return secret.model.state_dict()


def same_weights(one, other):
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_memory_task_is_learned_and_attention_peaks_at_the_cue(learned, cues):
    assert learned.report.validation.balanced_accuracy > 0.95
    assert learned.report.history_gain > 0.2
    assert not learned.report.collapsed
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


def test_learning_the_memory_task_warns_of_nothing(cues):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Secret(units=32, steps=150, batch_size=64, evaluate_every=50, learning_rate=3e-3, device="cpu").fit(cues(300))


def test_the_report_says_what_happened(learned, cues):
    report, data = learned.report, cues(600)
    assert report.class_counts == {"negative": 200, "zero": 600 * 8 - 400, "positive": 200}
    assert report.steps <= 400 and report.attempts == 1 and report.seconds > 0
    assert [entry["step"] for entry in report.curve] == [100, 200, 300, 400]
    assert report.curve[-1]["loss"] < report.curve[0]["loss"]
    assert report.validation.counts.sum() == report.memoryless.counts.sum() == 60 * 8
    assert report.history_gain == report.validation.balanced_accuracy - report.memoryless.balanced_accuracy
    held_out = data[data.split_indices(0.1, seed=0)[1]]
    np.testing.assert_array_equal(learned.evaluate(held_out).counts, report.validation.counts)
    for words in ("200 negative", "history gain +0.", "400 updates, 1 attempt"):
        assert words in str(report)
    assert FitReport.from_json(report.to_json()).to_json() == report.to_json()


@pytest.mark.usefixtures("quick", "silent")
def test_the_same_seed_gives_the_same_model_to_the_bit_and_another_does_not(cues):
    data = cues(40)
    first, second, other = (Secret(**TINY, seed=seed).fit(data) for seed in (0, 0, 1))
    assert same_weights(first, second)
    assert not same_weights(first, other)


@pytest.mark.usefixtures("quick", "silent")
def test_fitting_leaves_global_randomness_alone(cues):
    state = torch.get_rng_state()
    Secret(**TINY).fit(cues(20))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    one = Secret(**TINY).fit(cues(20))
    torch.manual_seed(321)
    assert same_weights(one, Secret(**TINY).fit(cues(20)))


@pytest.mark.usefixtures("silent")
def test_the_memoryless_twin_sees_one_step_only(cues, monkeypatch):
    """Its accuracy is what the door alone allows, and is full where the door tells."""
    monkeypatch.setattr(memoryless, "_ROUND", 50)
    told = Secret(**TINY).fit(cues(120, doors=DOORS)).report.memoryless
    assert told.balanced_accuracy == 1.0
    hidden = Secret(**TINY).fit(cues(120)).report.memoryless
    assert hidden.balanced_accuracy < 0.7, "one guess at the door, for three rewards"


def test_rewards_that_the_current_step_gives_away_are_warned_of(cues):
    data = cues(90, doors=DOORS)
    options = {**TINY, "steps": 60, "evaluate_every": 20, "learning_rate": 0.01}
    with pytest.warns(NoHistoryWarning, match=r"improves the predictions by .*\(secret_rl\.views") as caught:
        secret = Secret(**options).fit(data)
    assert [w.category for w in caught] == [NoHistoryWarning]
    assert secret.report.history_gain < 0.02
    assert secret.report.validation.balanced_accuracy > 0.95


@pytest.mark.usefixtures("quick")
def test_a_class_that_is_never_predicted_is_warned_of_with_counts_and_advice(cues):
    rare = Trajectories.concatenate([cues(4, kinds=(1,)), cues(196, seed=1, kinds=(0,))])
    options = {**TINY, "restarts": 0, "steps": 3, "class_weights": (0.5, 1.0, 0.001), "validation": 0.5}
    with pytest.warns(RewardBalanceWarning, match="no negative"), pytest.warns(CollapseWarning) as caught:
        secret = Secret(**options).fit(rare)
    assert secret.report.validation.never_predicted == (1,)
    assert secret.report.collapsed
    [message] = [str(warning.message) for warning in caught if warning.category is CollapseWarning]
    for words in (
        "positive rewards are never predicted after 1 attempt",
        "attention is not credit",
        "4 positive rewards in 200 trajectories",
        "collect with success_share=0.05 or more",
    ):
        assert words in message


@pytest.mark.usefixtures("quick")
def test_a_collapse_with_plenty_of_rewards_asks_for_more_data_or_updates(cues):
    options = {**TINY, "restarts": 1, "class_weights": (0.5, 0.02, 0.0)}
    with pytest.warns(CollapseWarning, match="20 positive rewards in 60 trajectories; .*more steps") as caught:
        secret = Secret(**options).fit(cues(60, doors=DOORS))
    assert [warning.category for warning in caught] == [CollapseWarning], "not also of a past that does not help"
    assert secret.report.attempts == 2
    assert {entry["attempt"] for entry in secret.report.curve} == {0, 1}


@pytest.mark.usefixtures("quick", "silent")
def test_an_attempt_that_learns_nothing_is_given_up_and_made_again_from_another_initialisation(cues, monkeypatch):
    monkeypatch.setattr(fitting, "_STUCK", 0.3)
    options = {**TINY, "steps": 20, "restarts": 2, "learning_rate": 1e-9}
    report = Secret(**options).fit(cues(20)).report
    assert report.attempts == 3
    assert [(entry["attempt"], entry["step"]) for entry in report.curve] == [
        (attempt, step) for attempt in range(3) for step in (4, 8, 12)
    ]
    assert len({entry["validation_loss"] for entry in report.curve}) == 3, "one for each initialisation"


@pytest.mark.parametrize(
    ("zeros", "positives", "stuck"),
    [
        ((9_995, 5), (300, 700), False),  # finds rewards, and is now and then wrong about a zero
        ((10_000, 0), (880, 120), True),  # as without the past
        ((9_995, 5), (860, 140), True),
    ],
)
def test_an_attempt_that_finds_rewards_by_the_past_is_not_given_up(monkeypatch, zeros, positives, stuck):
    """The twin without a past, cautious about zeros, misses nearly all rewards."""
    this = fitting.Fitting(
        None, (None, None), ModelOptions(), TrainingOptions(), 0, torch.device("cpu"), None, lambda *_: None
    )
    this._both_signs, this._held_out_counts = False, np.array([0, 10_000, 1_000])
    cautious = Confusion(np.array([[0, 0, 0], [0, 500, 0], [0, 900, 100]]))
    monkeypatch.setattr(fitting.Fitting, "_memoryless", lambda *_: cautious)
    confusion = Confusion(np.array([[0, 0, 0], [0, *zeros], [0, *positives]]))
    assert this._stuck(confusion, Weights(0.499, 60.0, 0.499)) == stuck


@pytest.mark.usefixtures("quick")
def test_a_class_that_is_not_among_the_held_out_steps_is_not_passed_over_in_silence(cues):
    """With three positive rewards, all of them trained on, nothing tells whether they are predicted."""
    many, few = cues(60, kinds=(-1, 0), doors=DOORS), cues(3, kinds=(1,), doors=DOORS)
    data = Trajectories.concatenate([many, few])
    seed = next(s for s in range(50) if data.split_indices(0.1, seed=s)[1].max() < 60)
    with pytest.warns((CollapseWarning, RewardBalanceWarning), match="positive"):
        Secret(**TINY, seed=seed).fit(data)


@pytest.mark.parametrize(("kinds", "missing"), [((1, 0), "negative"), ((-1, 0), "positive")])
@pytest.mark.usefixtures("quick")
def test_rewards_of_one_sign_are_warned_of(cues, kinds, missing):
    with pytest.warns(RewardBalanceWarning, match=f"no {missing} reward in 40 trajectories"):
        Secret(**TINY).fit(cues(40, kinds=kinds, doors=DOORS))


@pytest.mark.usefixtures("quick")
def test_warnings_point_at_the_line_that_called_fit(cues):
    with pytest.warns(RewardBalanceWarning) as caught:
        Secret(**TINY).fit(cues(40, kinds=(1, 0), doors=DOORS))
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("kinds", [(1, 0), (-1, 0)])
@pytest.mark.usefixtures("quick", "silent")
def test_the_weight_of_zeros_is_searched_where_rewards_have_one_sign(cues, kinds):
    report = Secret(**TINY).fit(cues(40, kinds=kinds)).report
    assert tuple(entry["zero_weight"] for entry in report.weight_search) == SEARCHED_ZERO_WEIGHTS
    best = max(report.weight_search, key=lambda entry: entry["put_right"])
    low, _, high = CLASS_WEIGHTS["paper"]
    assert report.class_weights == (low, best["zero_weight"], high)


@pytest.mark.usefixtures("quick", "silent")
def test_the_search_takes_the_weight_with_the_largest_share_put_right(cues, monkeypatch):
    gains = dict(zip(SEARCHED_ZERO_WEIGHTS, (0.1, 0.2, 0.4, 0.3), strict=True))
    monkeypatch.setattr(fitting.Fitting, "_trial", lambda self, weights: gains[weights[1]])
    report = Secret(**TINY).fit(cues(40, kinds=(1, 0))).report
    assert report.class_weights[1] == SEARCHED_ZERO_WEIGHTS[2]
    assert [entry["put_right"] for entry in report.weight_search] == list(gains.values())


@pytest.mark.usefixtures("quick", "silent")
def test_weights_are_used_as_given_and_not_searched(cues, monkeypatch):
    monkeypatch.setattr(fitting.Fitting, "_trial", lambda *_: pytest.fail("searched"))
    one_signed, both = cues(20, kinds=(1, 0)), cues(40, kinds=(1, 1, 1, -1))
    for given, used in [("paper", CLASS_WEIGHTS["paper"]), ((0.2, 0.3, 0.4), (0.2, 0.3, 0.4))]:
        report = Secret(**TINY, class_weights=given).fit(one_signed).report
        assert (report.class_weights, report.weight_search) == (used, ())
    report = Secret(**{**TINY, "restarts": 0}).fit(both).report
    good = (both[both.split_indices(0.1, seed=0)[0]].rewards > 0).sum()
    assert report.class_weights == pytest.approx((0.998 * good / 36, 0.02, 0.998 * (36 - good) / 36))
    assert report.weight_search == ()


@pytest.mark.usefixtures("quick", "silent")
def test_where_the_past_stays_unused_with_both_signs_the_weight_of_zeros_is_searched(cues, monkeypatch):
    """The first attempt takes the paper's; those after it what the search found, once."""
    used = []
    attempt = fitting.Fitting._attempt
    monkeypatch.setattr(fitting.Fitting, "_trial", lambda self, weights: float(weights.zero == 0.5))
    monkeypatch.setattr(
        fitting.Fitting, "_attempt", lambda self, n, weights: used.append(weights.zero) or attempt(self, n, weights)
    )
    monkeypatch.setattr(fitting.Fitting, "_stuck", lambda *_: True)
    report = Secret(**{**TINY, "restarts": 2}).fit(cues(40)).report
    assert used == [0.02, 0.5, 0.5]
    assert len(report.weight_search) == len(SEARCHED_ZERO_WEIGHTS)
    assert report.class_weights.zero in used


@pytest.mark.usefixtures("quick", "silent")
def test_signs_are_balanced_as_they_are_met_in_training(cues, monkeypatch):
    """One episode in twenty ends well; it is met four times in a pass, and weighs accordingly."""
    met = []
    init = fitting.Trainer.__init__
    monkeypatch.setattr(fitting.Trainer, "__init__", lambda self, *a, **k: met.append(a[2]) or init(self, *a, **k))
    report = Secret(**{**TINY, "restarts": 0}).fit(cues(200, kinds=(1, *[-1] * 19))).report
    [episodes] = [e for e in met if e.max() < 200]  # those of the memoryless twin are steps
    _, times = np.unique(episodes, return_counts=True)
    assert sorted(set(times)) == [1, 4]
    low, _, high = report.class_weights
    assert low * (times == 1).sum() == pytest.approx(high * times[times == 4].sum())


@pytest.mark.usefixtures("silent")
def test_the_memoryless_twin_learns_until_it_can_do_no_better(cues, monkeypatch):
    """Few updates are not enough to read the door; it goes on until they are, and then stops."""
    rounds = []
    monkeypatch.setattr(memoryless, "_ROUND", 13)  # no other training makes so many updates at once
    train = memoryless.Trainer.train
    monkeypatch.setattr(memoryless.Trainer, "train", lambda self, n: rounds.append(n) or train(self, n))
    options = {**TINY, "learning_rate": 0.01, "restarts": 0}
    report = Secret(**options).fit(cues(120, doors=DOORS)).report
    assert report.memoryless.balanced_accuracy == 1.0
    assert 3 < rounds.count(13) < memoryless._ROUNDS
    monkeypatch.setattr(memoryless, "_ROUNDS", 1)
    assert Secret(**options).fit(cues(120, doors=DOORS)).report.memoryless.balanced_accuracy < 1.0


def test_the_rarer_sign_weighs_as_much_in_total():
    low, high = balanced_weights(10, 30)
    assert 10 * low == pytest.approx(30 * high)
    assert low + high == pytest.approx(2 * 0.499)
    assert balanced_weights(0, 5) == balanced_weights(5, 0) == (0.499, 0.499)
    assert min(balanced_weights(1, 10**9)) > 0


@pytest.mark.parametrize(("patience", "last"), [(2, 24), (100, 40)])
@pytest.mark.usefixtures("quick", "silent")
def test_training_stops_when_nothing_gets_better(cues, patience, last):
    report = Secret(**{**TINY, "steps": 40, "patience": patience}).fit(cues(40, doors=DOORS)).report
    assert [entry["step"] for entry in report.curve] == list(range(4, last + 1, 4))
    accuracies = [np.mean([entry[name] for name in ("negative", "zero", "positive")]) for entry in report.curve]
    best = max(accuracies)
    assert best > 0.95
    assert report.validation.balanced_accuracy >= best - 0.005
    alike = [entry["step"] for entry, a in zip(report.curve, accuracies, strict=True) if a >= best - 0.005]
    assert report.steps == alike[-1], "of weights that predict alike, the last are kept"


@pytest.mark.parametrize(
    ("kinds", "better", "loss", "stuck", "last"),
    [
        ((-1, 1), 1, 1.0, False, 120),  # fewer mistakes, each time too few to count as progress, in all many
        ((-1, 1), 1, 1.0, True, 120),  # and not given up, however many are left
        ((-1, 1), 0, 0.99, False, 72),
        ((0, 1), 0, 0.99, False, 120),  # a lower loss, where rewards have one sign
        ((0, 1), 0, 1.0, False, 72),
    ],
)
@pytest.mark.usefixtures("silent")
def test_training_goes_on_while_it_gets_better_by_little_at_a_time(cues, monkeypatch, kinds, better, loss, stuck, last):
    looks = iter(range(100))

    def evaluated(*_):
        look = next(looks)
        right = 50 + better * look
        wrong = np.roll(np.eye(3, dtype=int), 1, 1) * (100 - right)
        return Evaluation(loss**look, Confusion(4 * (right * np.eye(3, dtype=int) + wrong)))

    monkeypatch.setattr(fitting.Fitting, "_stuck", lambda *_: stuck)
    monkeypatch.setattr(fitting.Fitting, "_alike", lambda _, mistakes, fewest: mistakes <= fewest + 0.015)
    monkeypatch.setattr(fitting, "best_without_past", lambda *_: Confusion(np.ones((3, 3), int)))
    monkeypatch.setattr(Trainer, "evaluate", evaluated)
    options = TINY | {"steps": 120, "evaluate_every": 4, "patience": 3, "restarts": 0, "class_weights": (1.0, 1.0, 1.0)}
    report = Secret(**options).fit(cues(100, kinds=kinds)).report
    assert report.curve[-1]["step"] == last


@pytest.mark.usefixtures("quick", "silent")
def test_memory_mapped_trajectories_give_the_same_model(cues, tmp_path):
    data = cues(30)
    mapped = Trajectories.load(data.save(tmp_path / "cues"))
    assert same_weights(Secret(**TINY).fit(data), Secret(**TINY).fit(mapped))


@pytest.mark.usefixtures("quick", "silent")
def test_any_kind_of_observation_is_fitted_and_attributed():
    rng = np.random.default_rng(0)
    seen = spaces.Dict(
        picture=spaces.Box(0, 255, (4, 4, 3), np.uint8), speed=spaces.Box(-1e3, 1e3, (2,)), key=spaces.MultiBinary(2)
    )
    episodes = [
        {
            "observations": {
                "picture": rng.integers(0, 256, (length, 4, 4, 3)).astype(np.uint8),
                "speed": rng.normal(500, 100, (length, 2)).astype(np.float32),
                "key": rng.integers(0, 2, (length, 2)).astype(np.int8),
            },
            "actions": rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            "rewards": rng.integers(-1, 2, length).astype(float),
        }
        for length in rng.integers(1, 12, 20)
    ]
    data = Trajectories.from_episodes(episodes, observation_space=seen, action_space=spaces.Box(-1, 1, (2,)))
    secret = Secret(**TINY).fit(data)
    assert all(value.isfinite().all() for value in weights_of(secret).values())
    encoder = secret.model.observation_encoder
    speed = encoder.encoders[encoder.keys.index("speed")]
    assert speed[0].mean.tolist() == pytest.approx([500, 500], abs=50)
    credit = secret.attribute(data)
    assert 0 < len(credit) <= credit.rewards_seen == np.count_nonzero(data.rewards)


def test_updates_grow_with_the_data_unless_given():
    planned = [TrainingOptions().planned_steps(count) for count in (10, 1_000, 10_000, 10**6)]
    assert planned == [600, round(45 * 1_000**0.5), 4_500, 5_000]
    assert TrainingOptions(steps=7).planned_steps(10**6) == 7


def test_data_without_any_reward_is_refused(cues):
    with pytest.raises(ValueError, match=r"no reward in 20 trajectories \(160 steps\).*success_share"):
        Secret(**TINY).fit(cues(20, kinds=(0,)))


def test_too_few_trajectories_are_refused(cues):
    with pytest.raises(ValueError, match="9 trajectories are too few .* at least 10"):
        Secret(**TINY).fit(cues(9))


@pytest.mark.usefixtures("quick", "silent")
def test_progress_is_shown_only_if_asked_for(cues, capfd):
    Secret(**TINY).fit(cues(20))
    assert capfd.readouterr() == ("", "")
    Secret(**TINY).fit(cues(20), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "12/12" in err and "accuracy" in err


@pytest.mark.usefixtures("quick", "silent")
def test_trajectories_in_which_every_step_is_rewarded_can_be_fitted():
    rng = np.random.default_rng(0)
    episodes = [
        {"observations": rng.integers(0, 3, 5), "actions": rng.integers(0, 2, 5), "rewards": rng.choice([-1.0, 1.0], 5)}
        for _ in range(20)
    ]
    report = Secret(**TINY).fit(Trajectories.from_episodes(episodes)).report
    assert report.class_counts["zero"] == 0
