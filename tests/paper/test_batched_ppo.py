"""PPO of many learners at once: each learns as it would alone, from the rewards it should receive."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from paper.batched_ppo import PpoOptions, _Learners, advantages, ppo_losses, ppo_many
from paper.batched_tasks import Environments, Spending, Tasks, per_learner

from secret_rl.envs.tabular import TabularModel, TabularShaping, best_return

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = {"device": "cpu", "progress": False}
SMALL = PpoOptions(side_by_side=4, rollout=16, units=16)


def maze(layout=1, **changes):
    options = {"size": 3, "triggers": 1, "window": None, "layout_seed": layout, **changes}
    return gym.make("secret_rl/Triggers-v0", **options).unwrapped.tabular()


def potential_of(model, discount=0.99):
    """A potential of the state, and credit for some pairs."""
    states, actions = model.next_states.shape
    pairs = np.arange(states * actions).reshape(states, actions) % 5
    phi = np.arange(states) * 37 % 11 / 11
    return TabularShaping.of(model, discount, potential=phi, pairs=pairs, credit=[0, 0, 0.3, 0, 0.1], cap=0.7)


def environments_of(model, options, learners=1, side_by_side=4):
    tasks = Tasks([model], [potential_of(model)], lambda seen: seen.reshape(len(seen), -1), torch.device("cpu"))
    numbers = per_learner([options], learners, torch.device("cpu"))
    return Environments(tasks, [1], learners, side_by_side, numbers)


def random_steps(environments, count, seed=0):
    """(steps, learners, environments) of random play."""
    generator = torch.Generator().manual_seed(seed)
    shape = environments.state.shape
    taken = [environments.step(torch.randint(4, shape, generator=generator), torch.zeros(shape)) for _ in range(count)]
    return taken[0]._make(torch.stack(part) for part in zip(*taken, strict=True))


def test_a_learner_does_the_same_alone_and_among_others():
    models = [maze(1), maze(2), maze(1, triggers=2)]  # the third has more states
    options = [SMALL, replace(SMALL, bonus=0.5, fade_steps=100), replace(SMALL, shaping=False, count=0.1)]
    shapings = [None, *map(potential_of, models[1:])]
    seeds = [10, 20, 20]
    together = ppo_many(models, 2, 256, options, shapings=shapings, seed=seeds, test_every=128, **CPU)
    assert together.steps.tolist() == [0, 128, 256]
    assert together.returns.shape == (3, 2, 3)
    for number, parts in enumerate(zip(models, options, shapings, seeds, strict=True)):
        model, option, shaping, seed = parts
        alone = ppo_many([model], 1, 256, option, shapings=[shaping], seed=seed + 1, test_every=128, **CPU)
        np.testing.assert_allclose(alone.weights[0, 0], together.weights[number, 1], atol=1e-5)
        np.testing.assert_allclose(alone.discounted[0, 0], together.discounted[number, 1], atol=1e-6)
    assert not np.allclose(together.weights[0, 0], together.weights[0, 1], atol=0.01)


def test_learners_find_the_best_path():
    options = PpoOptions(side_by_side=8, rollout=32, units=32, learning_rate=0.003)
    model = maze(1)
    curves = ppo_many([model], 2, 16_384, options, test_every=16_384, **CPU)
    assert (curves.discounted[..., 0] < 0.7).all()
    assert (curves.discounted[..., -1] > 0.9 * best_return(model, 0.99)).all()


@pytest.mark.parametrize(("terminated", "value"), [(False, 2.0), (True, 1.5)])
def test_an_episode_that_is_cut_short_would_have_gone_on(terminated, value):
    """A reward of 1 a step, for two steps: with discount 0.5, 1.5 where that is the end, else 2."""
    ends = [[False, False], [terminated, terminated]]
    model = TabularModel.of(
        [[1, 1], [1, 1]], np.ones((2, 2)), ends, start=0, max_steps=2 + terminated, observations=np.eye(2)
    )
    options = PpoOptions(side_by_side=4, rollout=16, units=16, discount=0.5, learning_rate=0.01)
    learners = _Learners([model], [TabularShaping.of(model, 0.5)], [0], [options], torch.device("cpu"))
    for _ in learners.learn(4_000, 4_000):
        pass
    with torch.no_grad():
        _, values = learners._outputs()
    assert values[0, 0].item() == pytest.approx(value, abs=0.1)


def test_advantages_are_discounted_sums_of_errors():
    rng = np.random.default_rng(0)
    rewards, values, following = (torch.as_tensor(rng.normal(size=(2, 12, 3))) for _ in range(3))
    terminated = torch.as_tensor(rng.random((2, 12, 3)) < 0.15)
    ended = terminated | torch.as_tensor(rng.random((2, 12, 3)) < 0.15)
    assert (ended & ~terminated).any()
    found = advantages(rewards, values, following, terminated, ended, 0.9, 0.8)
    for place in np.ndindex(2, 12, 3):
        learner, first, column = place
        expected, weight = 0.0, 1.0
        for time in range(first, 12):
            at = learner, time, column
            then = 0.0 if terminated[at] else 0.9 * following[at]
            expected += weight * (rewards[at] + then - values[at])
            weight *= 0.9 * 0.8
            if ended[at]:
                break
        assert found[place].item() == pytest.approx(float(expected))


def test_the_loss_is_that_of_the_paper():
    rng = np.random.default_rng(1)
    logits, action = rng.normal(size=(2, 40, 4)), rng.integers(4, size=(2, 40))
    value, target, advantage = rng.normal(size=(3, 2, 40))
    before = rng.normal(-1.4, 0.5, (2, 40))
    options = PpoOptions(clip=0.2, entropy=0.03, value_weight=0.25)
    given = (logits, value, action, before, advantage, target)
    found = ppo_losses(*(torch.as_tensor(part) for part in given), options)
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    ratio = np.take_along_axis(chances, action[..., None], -1)[..., 0] / np.exp(before)
    normal = (advantage - advantage.mean(1, keepdims=True)) / (advantage.std(1, ddof=1, keepdims=True) + 1e-8)
    gains = np.minimum(ratio * normal, ratio.clip(0.8, 1.2) * normal)
    entropies = -(chances * np.log(chances)).sum(-1)
    np.testing.assert_allclose(found, (-gains + 0.25 * (value - target) ** 2 - 0.03 * entropies).mean(1), rtol=1e-6)
    assert (gains < ratio * normal).sum() > 10, "some are clipped"


def test_a_bonus_pays_rises_and_fades_unless_it_is_to_last():
    model = maze()
    for fade_steps, left in ((80, np.maximum(1 - np.arange(40) * 4 / 80, 0)), (None, np.ones(40))):
        options = Spending(shaping=False, bonus=2.0, fade_steps=fade_steps)
        steps = random_steps(environments_of(model, options), 40)
        expected = steps.reward + 2 * torch.as_tensor(left)[:, None, None] * steps.rise.clamp(min=0)
        torch.testing.assert_close(steps.paid.double(), expected)
        assert (steps.rise[20:] > 0).any()
        assert (steps.paid[20:] > steps.reward[20:]).any() == (fade_steps is None)


def test_potential_bonus_and_count_add_up():
    model = maze()
    parts = [Spending(), Spending(shaping=False, bonus=2.0, fade_steps=100), Spending(shaping=False, count=0.1)]
    every = [random_steps(environments_of(model, part), 60) for part in parts]
    everything = Spending(bonus=2.0, fade_steps=100, count=0.1)
    steps = random_steps(environments_of(model, everything), 60)
    added = sum(part.paid - part.reward for part in every)
    assert all(((part.paid - part.reward).abs() > 0.01).any() for part in every)
    torch.testing.assert_close(steps.paid - steps.reward, added)


def test_what_cannot_be_learned_together_is_refused():
    model = maze()
    for models, options, words in (
        ([model, maze(size=4)], SMALL, "model 1 has"),
        ([model], [SMALL] * 2, "1 models but 2 options"),
        ([model] * 2, [SMALL, replace(SMALL, entropy=0.5)], "entropy"),
        ([model] * 2, [SMALL, replace(SMALL, discount=0.5)], "discount"),
    ):
        with pytest.raises(ValueError, match=words):
            ppo_many(models, 1, 10, options, **CPU)
