"""Verdicts: small tasks of which it is known whether the past decides, and what a fit says of them."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from tests.credit.conftest import episodes_of

from secret_rl.credit import NotLearnedWarning, PastNotNeededWarning, Secret
from secret_rl.credit.secret import fit as fitting
from secret_rl.credit.secret import memoryless

OPTIONS = {"units": 16, "steps": 400, "device": "cpu"}
DOORS = {1: 3, -1: 4, 0: 5}  # a symbol of the door for each reward: nothing to remember
DOOR = 3
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(memoryless, "_BATCH", 512)


def fitted(data, **options):
    """A fit and the kinds of warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        secret = Secret(**OPTIONS | options).fit(data)
    return secret, [warning.category for warning in caught]


def with_peaks(secret, data):
    """Credit, and of each row whether its peak is at the cue."""
    credit = secret.attribute(data)
    cues = [data[episode].annotations["cue"] for episode in credit.episode.tolist()]
    return credit, np.array([cue[credit.row(r).argmax()] for r, cue in enumerate(cues)])


def with_efforts(episodes, *, prize):
    """Every action costs its square. With a prize, the last step pays it if the one action of a light was positive."""
    rng = np.random.default_rng(0)
    light, efforts = np.zeros((episodes, 10), int), rng.uniform(-1, 1, (episodes, 10, 1)).astype(np.float32)
    each, lit = np.arange(episodes), rng.integers(1, 6, episodes)
    light[each, lit], light[:, 9] = 1, 2
    rewards = -0.1 * efforts[..., 0] ** 2
    rewards[:, 9] = prize * (efforts[each, lit, 0] > 0)
    return episodes_of(light, rewards, efforts, done=spaces.Box(-1, 1, (1,), np.float32))


def test_costs_that_vary_are_decided_by_the_present_and_hide_nothing():
    without, warned = fitted(with_efforts(300, prize=0.0))
    assert (without.report.verdict, warned) == ("past not needed", [PastNotNeededWarning])
    assert without.report.steps == 0, "that much is clear before anything is trained"
    data = with_efforts(600, prize=1.0)
    secret, warned = fitted(data, steps=1000)
    assert (secret.report.verdict, warned) == ("credit", [])
    assert secret.report.uncertain == pytest.approx(300, rel=0.4), "half of the prizes, and no cost"
    credit = secret.attribute(data, rewards="positive")
    lit = [data[episode].observations[credit.row(r).argmax()] for r, episode in enumerate(credit.episode.tolist())]
    assert len(credit) > 200 and np.mean(np.array(lit) == 1) > 0.9


@pytest.mark.parametrize("cost", [0.0, 0.01])
def test_successes_alone_are_learned_and_a_cost_of_each_step_does_not_matter(cues, cost):
    """Nothing is negative, or everything else is."""
    data = cues(400, kinds=(1, 0)).with_rewards(lambda rewards: rewards - cost)
    secret, warned = fitted(data)
    assert (secret.report.verdict, warned) == ("credit", [])
    assert secret.report.classes.values == (-cost, 1 - cost)
    unseen = cues(150, seed=1, kinds=(1, 0)).with_rewards(lambda rewards: rewards - cost)
    credit, at_cue = with_peaks(secret, unseen)
    won = credit.reward > 0
    assert won.sum() > 60 and at_cue[won].mean() > 0.9 and (credit.evidence[won] > 0.3).all()


def test_both_outcomes_have_evidence_where_one_would_do(cues):
    """There is a cue in every episode: a model may look for one of them and infer the other from its absence."""
    secret, warned = fitted(cues(400, kinds=(1, -1)))
    assert (secret.report.verdict, warned) == ("credit", [])
    credit, at_cue = with_peaks(secret, cues(150, seed=1, kinds=(1, -1)))
    for sign in (-1, 1):
        rows = credit.reward == sign
        assert rows.sum() > 60
        assert (credit.evidence[rows] > 0.2).mean() > 0.95
        assert at_cue[rows].mean() > 0.95


def test_what_the_present_decides_needs_no_past(cues):
    data = cues(300, doors=DOORS)
    with pytest.warns(
        PastNotNeededWarning, match=r"current observation and action predict .*\(secret_rl\.views"
    ) as got:
        secret = Secret(**OPTIONS).fit(data)
    assert [warning.category for warning in got] == [PastNotNeededWarning]
    report = secret.report
    assert report.verdict == "past not needed"
    assert report.uncertain < 10 and min(report.decided) > 0.95
    assert (report.history_gain, report.steps, report.curve) == (0.0, 0, ()), "nothing is open: it is not trained"
    assert len(secret.attribute(data)) == 0


def test_chance_needs_no_past(cues):
    """Whatever came before, the door pays or costs: a coin decides. There is plenty of data to see that."""
    data = cues(500)
    rewards, doors = np.asarray(data.rewards).copy(), np.asarray(data.observations) == DOOR
    rewards[doors] = np.random.default_rng(9).choice([1.0, -1.0], doors.sum())
    secret, warned = fitted(data.with_rewards(lambda _: rewards))
    assert (secret.report.verdict, warned) == ("past not needed", [PastNotNeededWarning])
    assert secret.report.history_gain < 0.1 and secret.report.pooled_gain.share < 0.1


@pytest.mark.parametrize("reward", [1.0, -0.5])
def test_where_all_rewards_are_equal_nothing_is_trained(cues, monkeypatch, reward):
    monkeypatch.setattr(fitting, "Trainer", lambda *_: pytest.fail("trained"))
    data = cues(60).with_rewards(lambda rewards: np.full_like(rewards, reward))
    with pytest.warns(PastNotNeededWarning, match="every reward is the same"):
        secret = Secret(**OPTIONS).fit(data)
    assert secret.report.verdict == "past not needed" and secret.report.classes.values == (reward,)
    assert len(secret.attribute(data)) == 0


@pytest.mark.parametrize("steps", [1, 20])
def test_few_updates_learn_nothing_and_say_so(cues, steps):
    """However much data there is: that nothing was learned is no sign that there is nothing to learn."""
    secret, warned = fitted(cues(500), steps=steps)
    assert (secret.report.verdict, warned) == ("not learned", [NotLearnedWarning])


def test_training_that_diverges_says_so(cues, monkeypatch):
    monkeypatch.setattr(fitting, "_PROBE_UPDATES", 20)
    secret, warned = fitted(cues(500), learning_rate=1e36, steps=20)
    assert (secret.report.verdict, warned) == ("not learned", [NotLearnedWarning])
    assert secret.report.steps == 0


def test_a_plateau_that_a_pooled_past_does_not_have_is_noticed(cues, monkeypatch):
    """Attention learns nothing; that the past decides shows all the same."""

    def no_progress(self):
        self.curve = [{"step": 50, "gain": 0.0}]
        return self._new_model().state_dict(), 50

    monkeypatch.setattr(fitting.Fitting, "_train", no_progress)
    monkeypatch.setattr(fitting.Fitting, "_start_by_name", lambda *_: {})
    with pytest.warns(NotLearnedWarning, match=r"though even a pooled past removes \d+%"):
        report = Secret(**OPTIONS).fit(cues(500)).report
    assert report.verdict == "not learned" and report.pooled_gain.share > 0.8


def test_what_a_model_learns_about_the_present_is_no_gain_of_the_past(monkeypatch):
    """A predictor without memory that has learned nothing makes the present look open."""
    monkeypatch.setattr(memoryless, "fit_memoryless", lambda *_: None)
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 4, (500, 6))
    paid = rng.random(seen.shape) < np.array([0.05, 0.1, 0.9, 0.95])[seen]
    data = episodes_of(seen, paid)
    with pytest.warns(UserWarning, match="not learned|past not needed"):
        report = Secret(**OPTIONS).fit(data).report
    assert report.verdict != "credit" and report.gain.share < 0.1
    assert max(entry["gain"] for entry in report.curve) > 0.3, "it looked like a gain"
