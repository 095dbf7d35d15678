"""Potentials from target trajectories, against the formulas written out one visit at a time."""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.shaping.potential_reference import slow_potential

import secret_rl as srl
from secret_rl.credit import Attributions, oracle_attributions, uniform_attributions
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import (
    KINDS,
    CoverageWarning,
    GridKey,
    ObservationKey,
    PotentialRangeWarning,
    PotentialShaping,
    estimate_potential,
    learn_potential,
)
from secret_rl.trajectories import Trajectories

NAMES = ["paper", "pending", "cumulative", "mixed", "value"]
GRID = np.array([-1.0, -0.5, -0.0, 0.0, 0.25, 0.5])
OBSERVATIONS = {
    "number": (gym.spaces.Discrete(3), lambda rng, n: rng.integers(0, 3, n)),
    "vector": (gym.spaces.Box(-1, 1, (2,), np.float32), lambda rng, n: rng.choice(GRID, (n, 2)).astype(np.float32)),
    "dict": (
        gym.spaces.Dict({"place": gym.spaces.Box(-1, 1, (1,)), "held": gym.spaces.Discrete(2)}),
        lambda rng, n: {"place": rng.choice(GRID, (n, 1)).astype(np.float32), "held": rng.integers(0, 2, n)},
    ),
}
ACTIONS = {
    "number": (gym.spaces.Discrete(2), lambda rng, n: rng.integers(0, 2, n)),
    "two": (gym.spaces.MultiDiscrete([2, 2]), lambda rng, n: rng.integers(0, 2, (n, 2))),
    "dict": (
        gym.spaces.Dict({"turn": gym.spaces.Discrete(2), "push": gym.spaces.MultiBinary(1)}),
        lambda rng, n: {"turn": rng.integers(0, 2, n), "push": rng.integers(0, 2, (n, 1)).astype(np.int8)},
    ),
}
STATES = {
    "number": [None, ObservationKey(), lambda observation, info: int(observation) % 2],
    "vector": [None, ObservationKey(), GridKey(0.5), GridKey((1, 0.3)), lambda observation, info: observation > 0],
    "dict": [
        None,
        GridKey((0.5, 1), keys=("place", "held")),
        lambda observation, info: (observation["held"], float(observation["place"][0])),
    ],
}


def make_trajectories(lengths, rng, kind="number", actions="number", vector_states=False, finals=(True, True)):
    """Ragged episodes in which states and pairs come again and again; ``finals``: of observations, of states."""
    seen, draw = OBSERVATIONS[kind]
    done, act = ACTIONS[actions]
    episodes = [
        {
            "observations": draw(rng, length + finals[0]),
            "actions": act(rng, length),
            "rewards": rng.choice([-1.0, 0.0, 0.0, 0.5, 2.0], length),
            "states": rng.integers(0, 2 if vector_states else 4, (length + finals[1], 2)[: 1 + vector_states]),
        }
        for length in lengths
    ]
    return Trajectories.from_episodes(episodes, observation_space=seen, action_space=done)


def attributions(lengths, *rows):
    """Of episodes of these lengths; rows are (episode, step, reward, weights), predicted where the weights end."""
    weights = [np.asarray(row[3], np.float32) for row in rows]
    offsets = np.cumsum([0, *map(len, weights)])
    return Attributions(
        episode=np.array([row[0] for row in rows], np.int64),
        step=np.array([row[1] for row in rows], np.int64),
        predicted_at=np.diff(offsets) - 1,
        reward=np.array([row[2] for row in rows], np.float64),
        evidence=np.zeros(len(rows), np.float32),
        weights=np.concatenate([np.zeros(0, np.float32), *weights]),
        offsets=offsets,
        rewards_seen=len(rows),
        lengths=np.array(lengths, np.int64),
    )


def make_attributions(data, rng, shift=0, coverage=0.8):
    """Rows of any weights that sum to 1, of some rewards, predicted up to ``shift`` steps off."""
    rows = []
    for number, episode in enumerate(data):
        for step in np.flatnonzero(episode.rewards).tolist():
            if rng.random() < coverage:
                at = int(np.clip(step + rng.integers(-shift, shift + 1), 0, len(episode) - 1))
                weights = rng.random(at + 1) * (rng.random(at + 1) < 0.7) + 1e-3
                rows.append((number, step, float(episode.rewards[step]), weights / weights.sum()))
    return attributions(data.lengths, *rows)


def assert_close(potential, expected):
    assert potential.values.keys() == expected.keys()
    for state, value in expected.items():
        assert potential.values[state] == pytest.approx(value, rel=1e-9, abs=1e-9), state


@st.composite
def cases(draw, max_length=7):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, max_length), min_size=1, max_size=6))
    kind = draw(st.sampled_from(list(OBSERVATIONS)))
    finals = draw(st.tuples(st.booleans(), st.booleans()))
    data = make_trajectories(lengths, rng, kind, draw(st.sampled_from(list(ACTIONS))), draw(st.booleans()), finals)
    assume((np.asarray(data.rewards) > 0).any())
    credit = make_attributions(data, rng, shift=draw(st.integers(0, 3)))
    return data, credit, STATES[kind]


kinds = {
    "kind": st.sampled_from(NAMES),
    "rewards": st.sampled_from(["positive", "all"]),
}


@pytest.mark.filterwarnings("ignore::secret_rl.shaping.CoverageWarning")
@settings(max_examples=300)
@given(cases(), st.integers(0, 4), st.floats(0.1, 1), st.fixed_dictionaries(kinds))
def test_every_kind_is_its_formula(case, number, discount, how):
    data, credit, states = case
    how |= {"delay_discount": discount, "state": states[number % len(states)]}
    assert_close(estimate_potential(data, credit, **how), slow_potential(data, credit, **how))


def five_steps(rewards, states=(10, 11, 10, 11, 10, 12)):
    episode = {"observations": np.array([0, 1, 0, 1, 0, 2]), "actions": np.array([1, 0, 1, 1, 0])}
    episode |= {"rewards": np.array(rewards, float), "states": np.array(states)}
    return Trajectories.from_episodes([episode], observation_space=gym.spaces.Discrete(3))


FIVE_STEPS = five_steps([0, 0, 2, -1, 1])
# 2 at step 2, a quarter of it earned by step 0, the rest by step 1; -1 at step 3; 1 at step 4
ROWS = [(0, 2, 2.0, [0.25, 0.75, 0]), (0, 3, -1.0, [0, 0.5, 0.5, 0]), (0, 4, 1.0, [0.5, 0, 0.25, 0.25, 0])]
FIVE_STEPS_CREDIT = attributions([5], *ROWS)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        # credit of the steps: 0.5 + 0.5, 1.5 - 0.5, -0.5 + 0.25, 0.25, 0; the pair (10, 1) comes at steps 0 and 2
        ({"kind": "paper"}, {10: 1.0 + 0.25, 11: 0.75 + 0.75, 12: 0.0}),
        # still to come and earned: 0, 0.5 + 0.5, 2 + 0.5, 0.75, 1, and nothing after the last
        ({"delay_discount": 1}, {10: (0 + 2.5 + 1) / 3, 11: (1 + 0.75) / 2, 12: 0.0}),
        ({"delay_discount": 1, "rewards": "all"}, {10: (0 + 2 + 1) / 3, 11: (1 - 0.25) / 2, 12: 0.0}),
        # the wait for the rewards: 1 and 3, 0 and 2, 1, 0 steps
        ({"delay_discount": 0.5}, {10: (2 + 0.125 + 1) / 3, 11: (0.25 + 0.0625 + 0.375) / 2, 12: 0.0}),
        # earned so far: 0, 1, 2.5, 2.75, 3, 3
        ({"kind": "cumulative"}, {10: (0 + 2.5 + 3) / 3, 11: (1 + 2.75) / 2, 12: 3.0}),
        # from step 0: 2/4 + 1/16; 1: 2/2 + 1/8; 2: 2 + 1/4; 3: 1/2; 4: 1; nothing after the last
        ({"kind": "value", "delay_discount": 0.5}, {10: (0.5625 + 2.25 + 1) / 3, 11: (1.125 + 0.5) / 2, 12: 0.0}),
    ],
)
def test_five_steps_worked_by_hand(how, expected):
    potential = estimate_potential(FIVE_STEPS, FIVE_STEPS_CREDIT, **how)
    assert dict(potential.values) == pytest.approx(expected, abs=1e-12)
    assert potential.reward_bound == 3.0, "the positive rewards of the episode"


@settings(max_examples=100)
@given(cases(), st.sampled_from(["pending", "cumulative", "mixed", "value"]))
def test_potentials_of_positive_rewards_lie_between_nothing_and_what_an_episode_pays(case, kind):
    data, credit, _ = case
    assume((credit.reward > 0).any())
    potential = estimate_potential(data, credit, kind)
    largest = max(np.maximum(episode.rewards, 0).sum() for episode in data)
    assert potential.reward_bound == pytest.approx(largest)
    assert min(potential.values.values()) >= 0
    assert potential.bound <= largest * (1 + 1e-6)


def test_a_whole_share_is_not_above_the_reward():
    """Weights of a third each, of 32 bits, add up to a little more than 1: nothing to warn of."""
    options = {"size": 3, "triggers": 3, "layout_seed": 1}
    data = srl.collect("secret_rl/Triggers-v0", 50, env_options=options, success_share=0.9, seed=1)
    credit = oracle_attributions(data, data.annotations["trigger_activated"])
    potential = estimate_potential(data, credit, "pending", delay_discount=1)
    assert 1 < potential.bound < 1 + 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error", PotentialRangeWarning)
        PotentialShaping(TriggersEnv(**options), potential, 0.99)


RAGGED = make_trajectories([4, 6, 5], np.random.default_rng(0))
RAGGED_OTHERWISE = make_trajectories([4, 5, 6], np.random.default_rng(0))
DICTS = make_trajectories([9], np.random.default_rng(1), "dict")
NO_STATES = replace(FIVE_STEPS, states=None, final_states=None)


@pytest.mark.parametrize(
    ("data", "credit", "how", "message"),
    [
        (FIVE_STEPS, True, {"kind": "credit"}, re.escape(f"kind must be one of {sorted(NAMES)}, got 'credit'")),
        (FIVE_STEPS, True, {"rewards": "negative"}, 'rewards must be "positive" or "all", got \'negative\''),
        (FIVE_STEPS, True, {"delay_discount": 0}, r"delay_discount must be in \(0, 1\], got 0"),
        *((FIVE_STEPS[:0], True, {"kind": kind}, "none of the 0 trajectories holds a") for kind in NAMES),
        *((FIVE_STEPS, None, {"kind": k}, rf'kind="{k}" needs attributions .*secret\.attribute') for k in NAMES[:-1]),
        (five_steps([0, 0, 0, -1, 0]), None, {"kind": "value"}, "the 1 trajectories holds a positive.* OnlineCredit"),
        (five_steps([0] * 5), True, {"kind": "paper"}, "none of the 1 trajectories holds a reward"),
        (NO_STATES, None, {"kind": "value"}, r"hold no states: collect them .*GridKey\(\.\.\.\) or a function"),
        (
            DICTS,
            None,
            {"kind": "value", "state": ObservationKey()},
            "expected an array or numbers; use GridKey",
        ),
        (RAGGED, RAGGED_OTHERWISE, {}, "of other trajectories than these: attribute the same"),
        (RAGGED, replace(RAGGED, rewards=np.roll(RAGGED.rewards, 1)), {}, "of other trajectories"),
    ],
)
def test_what_cannot_be_estimated_is_refused(data, credit, how, message):
    """``credit`` is that of the data, none, or that of other trajectories."""
    of = data if credit is True else credit
    with pytest.raises(ValueError, match=message):
        estimate_potential(data, None if of is None else uniform_attributions(of), **how)


def test_no_coverage_warns_and_gives_nothing():
    for kind in NAMES[:3]:
        with pytest.warns(CoverageWarning, match=r"none of the \d .*rewards was predicted .*adapt\(secret") as caught:
            potential = estimate_potential(FIVE_STEPS, attributions([5]), kind)
        assert Path(caught[0].filename) == Path(__file__), "it points at the line that asks"
        assert set(potential.values) == {10, 11, 12} and potential.bound == 0


PLUGIN = """
import numpy as np
from secret_rl.shaping import register_kind

@register_kind("hurry", "minus a hundredth for every step to come", needs_credit=False)
def hurry(evidence, visits):
    time = np.arange(visits.count) - visits.starts[visits.episode]
    return (time - evidence.data.lengths[visits.episode]) / 100
"""


def test_a_kind_of_your_own_is_one_function():
    exec(PLUGIN, {})
    potential = estimate_potential(FIVE_STEPS, kind="hurry")
    learned = learn_potential(FIVE_STEPS, kind="hurry", steps=2, units=2)
    del KINDS["hurry"]
    assert dict(potential.values) == pytest.approx({10: -0.03, 11: -0.03, 12: 0.0})
    assert (learned.low, learned.high) == (-0.03, 0.0)


def test_every_kind_is_documented():
    docs = (Path(__file__).parents[2] / "docs/potentials.md").read_text()
    for kind in KINDS.values():
        assert f'`"{kind.name}"`' in docs or f'`kind="{kind.name}"`' in docs, kind
        assert f'``"{kind.name}"``' in estimate_potential.__doc__
