"""What the present leaves open: predictors that see one step, the weights they give, and how episodes are drawn."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from tests.credit.conftest import episodes_of

from secret_rl.credit import ModelOptions, RewardClasses
from secret_rl.credit.secret import memoryless
from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.memoryless import (
    Memoryless,
    Residual,
    calibration,
    drawing,
    fit_memoryless,
    folds_of,
)
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.trajectories.spaces import to_json

CPU = torch.device("cpu")


def fitted(data, folds=None, at_random=False):
    """Predictors without memory of some trajectories, the tokens, and the folds."""
    classes = RewardClasses.of(np.asarray(data.rewards))
    tokens = Tokens.of(data, classes)
    folds = folds_of(len(data), np.arange(len(data)), 0) if folds is None else folds
    torch.manual_seed(0)
    specs = to_json(data.observation_space), to_json(data.action_space)
    present = Memoryless(*specs, len(classes), ModelOptions(units=16))
    if at_random:  # far from any constant guess
        with torch.no_grad():
            for parameter in present.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
    else:
        fit_memoryless(present, tokens, folds, 0, CPU, lambda *_: None)
    return present, tokens, folds


# --- weights ---


@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_the_guess_is_the_best_under_the_weights(odds, seed):
    """A step that is met often, its classes as often as their probabilities say: weighted frequencies, by counting."""
    exact = np.array(odds) / np.sum(odds)
    counts = np.maximum(1, np.round(exact * 2000).astype(int))
    p = counts / counts.sum()
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(p)), counts)).astype(np.int16)
    everywhere = np.tile(p, (len(classes), 1))
    residual = Residual.of(everywhere.astype(np.float32), classes, everywhere)
    weighted = np.bincount(classes, weights=residual.error)
    np.testing.assert_allclose(weighted, len(classes) * p * (1 - p), rtol=1e-3)
    frequencies = weighted / weighted.sum()  # no guess has a smaller weighted loss
    np.testing.assert_allclose(np.exp(residual.guess), frequencies[classes], rtol=1e-3)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_drawn_episodes_have_the_weighted_sum_as_their_expectation(lengths, seed):
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths])
    weights = (rng.random(offsets[-1]) ** 4 * (rng.random(offsets[-1]) < 0.5)).astype(np.float32)
    losses = rng.normal(size=offsets[-1])
    drawn, draw = drawing(weights, offsets)
    chances = draw / draw.sum()
    each = np.add.reduceat(drawn * losses, offsets[:-1])
    total = draw.sum() if weights.any() else 1.0
    assert (chances * each).sum() * total == pytest.approx((weights * losses).sum(), rel=1e-4, abs=1e-5)
    if weights.any():
        sums = np.add.reduceat(weights.astype(float), offsets[:-1])
        seen = (sums > 1e-9) & (sums < 50 * sums.mean())
        np.testing.assert_allclose(np.add.reduceat(drawn, offsets[:-1])[seen], 1, rtol=1e-4)


# --- predictors ---


P_REWARD = np.array([0.05, 0.3, 0.8, 1.0])  # by symbol


def by_chance(count, seed):
    rng = np.random.default_rng(seed)
    seen = rng.integers(0, 4, (count, 6))
    return episodes_of(seen, rng.random((count, 6)) < P_REWARD[seen])


def test_probabilities_are_those_of_the_task():
    data = by_chance(800, 0)
    present, tokens, folds = fitted(data)
    said = present.probabilities(tokens, folds, CPU)
    np.testing.assert_allclose(said.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(said[:, 1], P_REWARD[np.asarray(data.observations)], atol=0.06)
    unseen = Tokens.of(by_chance(400, 1), RewardClasses.of(np.asarray(data.rewards)))
    held_out = present.probabilities(unseen, np.full(400, -1), CPU)
    np.testing.assert_allclose(held_out[:, 1], P_REWARD[np.asarray(by_chance(400, 1).observations)], atol=0.06)


@pytest.mark.parametrize("size", [30, 1000])
@pytest.mark.parametrize("with_table", [True, False])
def test_batches_estimate_the_mean_over_all_steps(monkeypatch, size, with_table):
    if not with_table:
        monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    data = by_chance(60, 0)
    tokens = Tokens.of(data, RewardClasses.of(np.asarray(data.rewards)))
    chosen = np.flatnonzero(np.arange(data.steps) % 3 > 0)
    sampler = memoryless._Sampler(tokens, chosen, size)
    numbers = np.asarray(data.observations) + 10.0 * tokens.classes  # any function of pair and class
    rng = np.random.default_rng(0)
    drawn = [(weights * numbers[steps]).sum() for steps, weights in (sampler.draw(rng) for _ in range(2000))]
    assert np.mean(drawn) == pytest.approx(numbers[chosen].mean(), rel=0.02)
    if len(sampler.steps) <= size:
        assert np.ptp(drawn) == 0, "few are taken all at once"
    if with_table:
        assert len(sampler.steps) <= 16 and sampler.counts.sum() == len(chosen)


@pytest.mark.parametrize("task", ["noise", "rare", "symbols"])
def test_it_is_never_worse_than_the_best_constant_guess_on_its_fold(task):
    rng = np.random.default_rng(1)
    if task == "symbols":
        data = by_chance(60, 2)
    else:
        rewards = rng.random((60, 6)) < (0.3 if task == "noise" else 0.01)
        rewards[0, 0] = True
        data = episodes_of(rng.normal(size=(60, 6, 4)), rewards, seen=spaces.Box(-9, 9, (4,), np.float64))
    present, tokens, folds = fitted(data)
    said = present.probabilities(tokens, folds, CPU)
    counts = np.bincount(tokens.classes) + 0.5
    fold_of = np.repeat(folds, tokens.lengths)
    for fold in (0, 1):
        mine = tokens.classes[fold_of == fold]
        constant = -np.log(counts / counts.sum())[mine].mean()
        assert -np.log(said[fold_of == fold][np.arange(len(mine)), mine]).mean() <= constant + 1e-4


def test_what_a_predictor_is_fitted_on_is_all_but_its_own_fold():
    """One symbol occurs in one fold only: of that, its predictor has no idea, and the other one has."""
    rng = np.random.default_rng(0)
    folds = np.arange(200) % 2
    seen = rng.integers(0, 2, (200, 4))
    seen[folds == 0, 2] = 2
    rewards = np.where(seen == 2, 1.0, 0.0)
    data = episodes_of(seen, rewards)
    present, tokens, _ = fitted(data, folds)
    asked = np.asarray(data.observations) == 2
    own = present.probabilities(tokens, folds, CPU)[asked, 1]
    others = present.probabilities(tokens, 1 - folds, CPU)[asked, 1]
    assert own.max() < 0.4 < 0.9 < others.min()
    both = present.probabilities(tokens, np.full(200, -1), CPU)[asked, 1]
    np.testing.assert_allclose(both, (own + others) / 2, rtol=1e-5)


@pytest.mark.parametrize("with_table", [True, False])
def test_a_table_of_distinct_steps_changes_nothing(monkeypatch, with_table):
    data = by_chance(60, 0)
    present, tokens, folds = fitted(data, folds_of(60, np.arange(50), 0), at_random=True)
    whole = present.probabilities(tokens, folds, CPU)
    assert tokens.ids is not None
    if not with_table:
        monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    monkeypatch.setattr(memoryless, "_ROWS_AT_A_TIME", 7)
    found = Tokens.of(data, RewardClasses.of(data.rewards))
    assert (found.ids is not None) == with_table
    np.testing.assert_allclose(present.probabilities(found, folds, CPU), whole, rtol=1e-5, atol=1e-6)


def test_calibration_is_how_far_probabilities_are_from_frequencies():
    classes = np.repeat([0, 1], [30, 70]).astype(np.int16)

    def error(p):
        return calibration(np.tile([1 - p, p], (100, 1)).astype(np.float32), classes)

    assert error(0.7) == pytest.approx(0, abs=1e-6)
    assert error(0.55) == pytest.approx(2 * 0.15, abs=1e-6)
    assert calibration(np.zeros((0, 2), np.float32), np.zeros(0, np.int16)) is None
