"""Credit of a step as it happens: the share that rewards of the source would give it, whoever else is asked about."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secret_rl.credit import NotFittedError, RewardClasses, Secret
from secret_rl.credit.secret import readout as online
from secret_rl.credit.secret.model import Dropout
from secret_rl.credit.secret.readout import Queries, source_queries, step_credit
from secret_rl.credit.secret.tokens import Rows, Tokens, as_tensor
from secret_rl.encoders import standardise
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays, stack

CPU = torch.device("cpu")
FILLER, GOOD_CUE, BAD_CUE, DOOR = range(4)  # of the memory task
SIGNS = RewardClasses((-1.0, 0.0, 1.0), (-0.05, 0.05))
PAIRS = np.repeat(np.arange(4), 2), np.tile(np.arange(2), 4)
SPACES = {
    "view of a maze": spaces.Box(0, 1, (3, 3, 3), np.uint8),
    "picture": spaces.Box(0, 255, (9, 9, 3), np.uint8),
    "vector": spaces.Box(-3, 3, (6,), np.float32),
    "symbol": spaces.Discrete(50),
    "both": spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float64), "cue": spaces.MultiDiscrete([3, 2])}),
}


def hopeful(model, data):
    """Predicts a positive reward always: every positive reward is predicted correctly."""
    standardise(model.encoder.observation_encoder, map_arrays(as_tensor, data.observations))
    standardise(model.encoder.action_encoder, map_arrays(as_tensor, data.actions))
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    return model


def with_one_reward(data, choose):
    """One of the episodes, of two steps or more, with one positive reward, not at its first step."""
    long_enough = np.flatnonzero(data.lengths > 1)
    assume(len(long_enough))
    one = data[[choose.draw(st.sampled_from(long_enough.tolist()))]]
    step = choose.draw(st.integers(1, one.steps - 1))
    rewards = (np.arange(one.steps) == step).astype(float)
    return Trajectories(**{**vars(one), "rewards": rewards}), step


def rounding(scores):
    """What 32 bits leave of an exponential of scores: those of a model that was not fitted may be large."""
    return 2e-5 + 2e-6 * float(scores[scores.isfinite()].abs().max())


@pytest.mark.parametrize("transitions", [False, True])
@settings(max_examples=60)
@given(data=trajectories(), seed=st.integers(0, 99), near=st.booleans(), choose=st.data())
def test_the_share_is_the_attention_were_the_step_where_it_is_assumed(
    make_model, transitions, data, seed, near, choose
):
    """Moving a step from its own distance to where the attention is on the average is all that is different.

    A step as it happens is no first step: that of the episode is left out.
    """
    one, step = with_one_reward(data, choose)
    model = make_model(one.observation_space, one.action_space, seed, filters=(2,), transitions=transitions)
    model = hopeful(model, data)
    if near:
        with torch.no_grad():
            model.distance_bias.zero_()
    queries = source_queries(model, SIGNS, one, CPU, seed)
    assert queries.vectors.shape == (1, 16) and queries.biases.shape == (1,)
    batch = Tokens.of(one, SIGNS).batch(np.array([0]))
    with torch.no_grad():
        prediction = model(model.encode(batch.rows, Dropout(None)), batch.index)
        attention = prediction.attention[0, step, :step].double()
        bias = model.bias(step - torch.arange(step)).double()
    expected = (attention * ((attention * bias).sum() - bias).exp()).clamp(max=1).numpy()
    then = map_arrays(lambda array: np.concatenate([array[1:], array[-1:]]), one.observations)
    found = step_credit(model, queries, one.observations, one.actions, then, CPU)
    tolerance = 10 * rounding(prediction.scores)
    np.testing.assert_allclose(found[1:step], expected[1:], rtol=0, atol=tolerance)
    if near:
        np.testing.assert_allclose(found[1:step], attention[1:], rtol=0, atol=tolerance)


def test_steps_are_transitions_only_where_the_model_reads_them(learned, cues, tmp_path):
    observations, actions = PAIRS
    with_next = learned.step_credit(observations, actions, observations[::-1].copy())
    np.testing.assert_array_equal(with_next, learned.step_credit(observations, actions))
    secret = copy_of(learned, tmp_path)
    secret.model_options = type(secret.model_options)(units=32, transitions=True)
    with pytest.raises(ValueError, match="the model reads transitions: give next_observations, too"):
        secret.step_credit(observations, actions)


def any_queries(make_model, name, rows, seed):
    """A model, pairs, and queries of which each gives its full share to a tenth of the pairs."""
    space, rng = SPACES[name], np.random.default_rng(seed)
    model = make_model(space, spaces.Discrete(4), seed, units=32)
    space.seed(seed)
    observations, actions = stack(space, [space.sample() for _ in range(rows)]), rng.integers(0, 4, rows)
    vectors = torch.randn(64, 32, generator=torch.Generator().manual_seed(seed))
    _, key_weight, _ = model.projections.weight.chunk(3)
    with torch.no_grad():
        rows = Rows(map_arrays(as_tensor, observations), as_tensor(actions), torch.zeros(rows))
        scores = model.encode_steps(rows) @ key_weight.T @ vectors.T / 32**0.5
    return model, observations, actions, Queries(vectors, -scores.quantile(0.9, 0))


@pytest.mark.parametrize("at_a_time", [1 << 13, 9])
@pytest.mark.parametrize("space", SPACES)
def test_a_step_gets_the_same_credit_alone_and_among_others(make_model, monkeypatch, space, at_a_time):
    monkeypatch.setattr(online, "_STEPS_AT_A_TIME", at_a_time)
    rows = 154  # one more than a multiple of 9
    model, observations, actions, queries = any_queries(make_model, space, rows, 1)

    def credit(chosen):
        return step_credit(
            model, queries, map_arrays(lambda array: array[chosen], observations), actions[chosen], None, CPU
        ).tolist()  # fmt: skip

    together = credit(np.arange(rows))
    assert 0.05 < np.mean(together) < 0.9 and len(set(together)) > 20
    assert [credit([i])[0] for i in range(rows)] == together
    for size in (2, 3, 7, 50):
        parts = [credit(np.arange(first, min(first + size, rows))) for first in range(0, rows, size)]
        assert [number for part in parts for number in part] == together, size
    order = np.random.default_rng(0).permutation(rows)
    assert credit(order) == [together[i] for i in order]
    assert credit(np.zeros(0, np.int64)) == []


def test_cues_earn_and_filler_does_not(learned):
    credit = learned.step_credit(*PAIRS).reshape(4, 2)
    assert credit[GOOD_CUE].min() > 0.8, credit
    assert credit[FILLER].max() < 0.02, credit
    assert credit[DOOR].max() < 0.1, credit
    assert BAD_CUE != GOOD_CUE  # a query looks for either: which cue it was, the value tells


def copy_of(secret, tmp_path):
    return Secret.load(secret.save(tmp_path / "copy.safetensors"), device="cpu")


@pytest.mark.parametrize("why", ["none is positive", "none is predicted"])
def test_without_positive_rewards_that_are_predicted_credit_is_refused(learned, cues, tmp_path, why):
    secret = copy_of(learned, tmp_path)
    data = {
        "none is positive": cues(30, kinds=(1, 0)).with_rewards(
            np.negative
        ),  # -1 after the good cue, for which +1 is predicted
        "none is predicted": cues(30, kinds=(-1,)).with_rewards(np.negative),  # +1 after the bad cue
    }[why]
    assert secret.store_reward_queries(data) is secret and secret.queries is None
    with pytest.raises(NotFittedError, match=r"no positive reward .* store_reward_queries\(trajectories\)"):
        secret.step_credit(*PAIRS)
    with pytest.raises(NotFittedError, match="no positive reward"):  # when an environment is wrapped, not later
        secret.check_spaces(spaces.Discrete(4), spaces.Discrete(2))
    np.testing.assert_allclose(
        secret.store_reward_queries(cues(600)).step_credit(*PAIRS), learned.step_credit(*PAIRS), rtol=0, atol=0.01
    )


def test_fitting_remembers_its_own_data_and_others_may_be_remembered(learned, cues, tmp_path):
    own = source_queries(learned.model, SIGNS, cues(600), CPU, learned.seed)
    assert torch.equal(learned.queries.vectors, own.vectors) and torch.equal(learned.queries.biases, own.biases)
    secret, others = copy_of(learned, tmp_path), cues(900, seed=9)
    secret.seed = 5
    expected = source_queries(learned.model, SIGNS, others, CPU, 5)
    assert torch.equal(secret.store_reward_queries(others).queries.biases, expected.biases)
