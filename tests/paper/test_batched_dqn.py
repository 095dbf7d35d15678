"""Deep Q-learning of many learners at once: what they learn, and the rewards they receive."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from paper.batched_dqn import DqnOptions, _Learners, dqn_many
from paper.batched_networks import FILTERS, STRIDES, UNITS

import secret_rl as srl
from secret_rl.envs.tabular import TabularShaping, best_return
from secret_rl.shaping import PotentialShaping, TablePotential

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = {"random_steps": 200, "epsilon_steps": 4_000, "target_every": 200, "learning_rate": 0.001, "train_every": 2}
CPU = {"device": "cpu", "progress": False}


def maze(layout=1, **changes):
    options = {"size": 3, "triggers": 1, "window": None, "layout_seed": layout, **changes}
    return gym.make("secret_rl/Triggers-v0", **options)


def plain(layout=1, **changes):
    return maze(layout, **changes).unwrapped.tabular()


TABLE = TablePotential({state: (state * 37 % 11) / 11 for state in range(36)})


def shaped(potential, layout=1, discount=0.9, env=None, **changes):
    """A model and its shaping."""
    model = plain(layout, **changes)
    env = env or PotentialShaping(maze(layout, **changes), potential, discount)
    return model, TabularShaping.of(model, **env.tabular_shaping(model))


class Sum:
    """Credit for some pairs, as OnlineCredit gives it to compiled agents."""

    bound, reward_bound = 0.5, 1.0

    def __init__(self, once=False):
        self.once = once

    def tabulate(self, model):
        pairs = np.arange(model.next_states.size, dtype=np.int32).reshape(model.next_states.shape) % 7
        return {"pairs": pairs, "credit": np.array([0, 0.1, 0, 0.2, 0, 0, 0.4]), "cap": 0.5, "once": self.once}

    def init(self, n):
        return np.zeros(n)

    def step(self, carry, batch):
        return carry, carry


def learners_of(tasks, options=DqnOptions(random_steps=10**6), steps=800):  # noqa: B008  frozen
    """One learner of each (model, shaping)."""
    models, shapings = ([[part] for part in column] for column in zip(*tasks, strict=True))
    return _Learners(models, shapings, 1, steps, [options] * len(models), 0, None, torch.device("cpu"))


def played(learners, steps):
    """The transitions and rewards of some steps of eight environments."""
    with torch.no_grad():
        for _ in range(steps):
            learners._step()
    return learners._transitions[0, : 8 * steps], learners._rewards[0, : 8 * steps]


def test_learners_find_the_best_path_and_say_how_they_got_there():
    models = [plain(1), plain(2)]
    curves = dqn_many(models, 2, 6_000, DqnOptions(**QUICK), test_every=1_500, **CPU)
    assert curves.steps.tolist() == [0, 1504, 3000, 4504, 6000]
    best = [[[best_return(model, 0.99)]] for model in models]
    np.testing.assert_allclose(curves.discounted[:, :, -1:], np.broadcast_to(best, (2, 2, 1)), rtol=1e-5)
    assert (curves.returns[:, :, -1] == 1).all()
    assert (curves.discounted[:, :, 0] < curves.discounted[:, :, -1]).all()


@pytest.mark.parametrize("potential", ["table", "sum", "sum, each pair once"])
@pytest.mark.parametrize("truncation", ["keep", "zero"])
def test_transitions_are_paid_as_the_wrapper_pays_them(potential, truncation):
    """Replayed step by step against the formula of the model, over episodes that end in both ways."""
    phi = TABLE if potential == "table" else Sum(once=potential != "sum")
    env = PotentialShaping(maze(5, max_steps=6), phi, 0.9, scale=0.5, truncation=truncation)
    model, shaping = shaped(phi, 5, env=env, max_steps=6)
    learners = learners_of([(model, shaping), shaped(Sum(), max_steps=6)])  # another that pays pairs each time
    words, paid = (part.reshape(60, 8) for part in played(learners, 60))
    ends, again = {"terminated": 0, "truncated": 0}, 0
    for column in range(8):
        state, time, total, rows = model.start, 0, 0.0, set()
        for word, reward in zip(words[:, column].tolist(), paid[:, column].tolist(), strict=True):
            action, terminated = word >> 1 & 127, bool(word & 1)
            assert word >> 32 == state
            following = int(model.next_states[state, action])
            assert word >> 8 & 2**24 - 1 == following
            assert terminated == model.terminated[state, action]
            row = int(shaping.pairs[state, action])
            again += shaping.once and row in rows and shaping.credit[row] > 0
            earned = total + (0.0 if shaping.once and row in rows else shaping.credit[row])
            rows.add(row)
            before = shaping.scale * (shaping.potential[state] + min(shaping.cap, total))
            after = shaping.scale * (shaping.potential[following] + min(shaping.cap, earned))
            time += 1
            truncated = time >= model.max_steps and not terminated
            if terminated or (truncated and truncation == "zero"):
                after = 0.0
            assert reward == pytest.approx(model.rewards[state, action] + 0.9 * after - before, abs=1e-6)
            ends["terminated"] += terminated
            ends["truncated"] += truncated
            over = terminated or truncated
            state, time, total, rows = (model.start, 0, 0.0, set()) if over else (following, time, earned, rows)
    assert min(ends.values()) > 3 and (again > 3) == shaping.once


def test_an_exact_learner_acts_for_the_bonus_and_is_judged_without():
    """A state that pays a bonus for ever: who learns the bonus stays there, who learns the task does not."""
    model, _ = shaped(TABLE)
    pairs = np.zeros(model.next_states.shape, np.int32)
    pairs[model.next_states == np.arange(len(pairs))[:, None]] = 1  # bumping into a wall
    lure = TabularShaping.of(model, 0.9, pairs=pairs, credit=[0.0, 1.0])
    options = {**QUICK, "shaping": False, "bonus": 1.0, "fade_steps": None}
    lured, exact = (
        dqn_many([model], 2, 6_000, DqnOptions(**options, exact=exact), shapings=[lure], test_every=6_000, **CPU)
        for exact in (False, True)
    )
    assert (lured.returns[..., -1] <= 0).all() and (exact.returns[..., -1] == 1).all()
    with pytest.raises(ValueError, match="own rewards alone"):
        dqn_many([model], 1, 8, DqnOptions(exact=True, bootstrap=0.5), **CPU)


def test_exact_networks_learn_from_the_same_transitions():
    tasks = [shaped(TABLE), shaped(TABLE, 2)]
    learners = learners_of(tasks, DqnOptions(random_steps=10**6, exact=True, bonus=1.0, shaping=False))
    played(learners, 30)
    words, rewards = learners._sampled()
    assert words.shape == (4, 32) and torch.equal(words[:2], words[2:])
    own = learners._tasks.rewards[(words >> 32) * learners._tasks.actions + (words >> 1 & 127)]
    assert torch.equal(rewards[2:], own[2:]) and not torch.equal(rewards[:2], own[:2])


def test_a_fading_bonus_pays_rises_alone_and_ends():
    model, shaping = shaped(TABLE)
    options = DqnOptions(random_steps=10**6, shaping=False, bonus=0.5, fade_steps=400)
    learners = learners_of([(model, shaping)], options)
    words, paid = (part.numpy() for part in played(learners, 100))
    state, following, action = words >> 32, words >> 8 & 2**24 - 1, words >> 1 & 127
    after = np.where(words & 1, 0.0, shaping.potential[following])
    rise = np.maximum(after - shaping.potential[state], 0)
    fade = np.maximum(1 - np.arange(800) // 8 * 8 / 400, 0)
    np.testing.assert_allclose(paid, model.rewards[state, action] + 0.5 * fade * rise, atol=1e-6)
    assert (rise[400:] > 0).any() and (paid[400:] == model.rewards[state, action][400:]).all()


def test_credited_replay_draws_its_share_among_credited_transitions():
    table = TablePotential({state: float(state == 3) for state in range(36)})
    model, shaping = shaped(table)
    learners = learners_of([(model, shaping)], DqnOptions(random_steps=10**6, priority=0.5, batch_size=64))
    played(learners, 60)
    words = torch.cat([learners._sampled()[0] for _ in range(20)], 1)
    state, following = words >> 32, words >> 8 & 2**24 - 1
    potential = torch.as_tensor(shaping.potential)
    known = torch.where(words & 1 == 1, 0.0, potential[following])
    reward = torch.as_tensor(model.rewards)[state, words >> 1 & 127]
    credited = ((known - potential[state] > 1e-3) | (reward > 0)).reshape(20, 64)
    assert credited[:, :32].all()
    assert not credited[:, 32:].all()


def test_values_that_start_from_the_potential_do():
    model, shaping = shaped(TablePotential({state: (state % 4) / 4 for state in range(36)}), size=4)
    options = DqnOptions(random_steps=8, shaping=False, start_from_potential=True, learning_rate=0.0005)
    learners = learners_of([(model, shaping)], options, steps=8)
    with torch.no_grad():
        for _ in learners.learn(8, 8):
            pass
        patches = learners._tasks.inputs[None, : len(model.states)]
        values = learners._networks.values(learners._layers, patches)[0]
    met = torch.as_tensor(shaping.potential, dtype=torch.float32)[:, None].expand_as(values)
    assert (values - met).abs().mean() < 0.3 * (met - met.mean()).abs().mean()


def test_a_learner_of_several_mazes_meets_them_all():
    mazes = [plain(layout) for layout in range(4)]
    shapings = [TabularShaping.of(model, 0.9) for model in mazes]
    learners = _Learners([mazes], [shapings], 1, 800, [DqnOptions(random_steps=10**6)], 0, None, torch.device("cpu"))
    met = (played(learners, 100)[0] >> 32) // learners._tasks.states
    assert met.unique().tolist() == [0, 1, 2, 3]


def test_weights_are_decided_by_the_seed_and_can_be_taken_over():
    learn = partial(dqn_many, [plain()], 2, 400, DqnOptions(**QUICK), test_every=400, **CPU)
    first, same, other = (learn(seed=seed) for seed in (0, 0, 1))
    assert (first.weights == same.weights).all() and not (first.weights == other.weights).any()
    nothing = DqnOptions(random_steps=10**6)
    second = dqn_many([plain(), plain()], 2, 80, nothing, initial=[None, first.weights[0]], test_every=80, **CPU)
    assert (second.weights[1] == first.weights[0]).all()
    assert (second.weights[0] != first.weights[0]).any()


def test_what_cannot_be_learned_together_is_refused():
    model, shaping = shaped(TablePotential({0: 1.0}), discount=0.99)
    for models, options, words in (
        ([model, plain(size=4)], DqnOptions(discount=0.99), "model 1 has"),
        ([model], DqnOptions(), "discount 0.99"),
        ([model], [DqnOptions(discount=0.99)] * 2, "1 models but 2 options"),
        ([model] * 2, [DqnOptions(), DqnOptions(batch_size=8)], "batch_size"),
        ([model], DqnOptions(train_every=3), "train_every"),
    ):
        with pytest.raises(ValueError, match=words):
            dqn_many(models, 1, 10, options, shapings=[shaping, None][: len(models)], **CPU)


def test_the_agent_of_stable_baselines_has_the_same_numbers():
    own, others = DqnOptions(), srl.sb3.paper_dqn(10**6)
    for name, other in (
        ("learning_rate", "learning_rate"), ("replay", "buffer_size"), ("random_steps", "learning_starts"),
        ("batch_size", "batch_size"), ("target_every", "target_update_interval"), ("clip", "max_grad_norm"),
        ("epsilon_final", "exploration_final_eps"), ("epsilon_test", "evaluation_epsilon"),
    ):  # fmt: skip
        assert getattr(own, name) == others[other]
    assert others["exploration_fraction"] * 10**6 == own.epsilon_steps
    assert others["train_freq"] * 8 / others["gradient_steps"] == own.train_every
    assert others["policy_kwargs"]["net_arch"] == [UNITS]
    network = others["policy_kwargs"]["features_extractor_class"](maze(size=8).observation_space)
    layers = [layer for layer in network.convolutions if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == list(FILTERS)
    assert [layer.stride[0] for layer in layers] == list(STRIDES)
