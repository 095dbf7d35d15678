"""A start by name: the encoder learns what the names came to mean, and nothing else changes."""

import numpy as np
import torch
from gymnasium import spaces

from secret_rl.credit.secret.model import Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.credit.secret.training import teach_encoder
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.spaces import to_json


def pictures_that_differ_in_one_cell(episodes=60, length=6):
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 3, (5, 5, 1), np.uint8)
    observations = np.repeat(scene[None], episodes * length, axis=0)
    observations[:, 2, 2, 0] = rng.integers(0, 3, len(observations))
    made = [
        {"observations": part, "actions": rng.integers(0, 2, length), "rewards": np.zeros(length)}
        for part in np.split(observations, episodes)
    ]
    space = spaces.Box(0, 2, scene.shape, np.uint8)
    return Trajectories.from_episodes(made, observation_space=space, action_space=spaces.Discrete(2))


def test_the_encoder_learns_what_names_mean(make_model, signs):
    torch.manual_seed(0)  # of the names
    data = pictures_that_differ_in_one_cell()
    tokens = Tokens.of(data, signs).with_names(data)
    assert tokens is not None and tokens.ids is not None
    model = make_model(data.observation_space, data.action_space, units=32)
    specs = to_json(data.observation_space), to_json(data.action_space)
    teacher = RewardPredictor(*specs, 3, model.options, names=len(tokens.first))
    teacher.load_state_dict(model.state_dict(), strict=False)
    table = tokens.table("cpu")
    with torch.no_grad():
        before = model.encode(table, Dropout(None))
        assert torch.dist(teacher.eval().encode(table, Dropout(None)), before) < 0.5 * before.norm(), "small at first"
        teacher.names.weight += torch.randn_like(teacher.names.weight)  # what learning made of them
        wanted = teacher.encode(table, Dropout(None))
    kept = {name: value.clone() for name, value in teacher.state_dict().items()}
    teach_encoder(model, teacher, tokens, seed=0)
    with torch.no_grad():
        after = model.eval().encode(table, Dropout(None))
    assert torch.dist(after, wanted) < 0.7 * torch.dist(before, wanted)
    assert all(torch.equal(value, kept[name]) for name, value in teacher.state_dict().items()), "it stays as it was"
    others = {name: value for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    assert others.keys() == {name for name in kept if not name.startswith(("encoder.", "names."))}
    assert all(torch.equal(value, kept[name]) for name, value in others.items())


def with_a_clock(episodes=80, length=20):
    """A Dict of a symbol and a clock that never shows the same time twice, as a vector with a constant beside it."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        symbol = rng.integers(0, 4, length)
        clock = np.stack([rng.random(length), np.ones(length)], 1).astype(np.float32)
        seen = {"clock": clock, "symbol": symbol}
        made.append({"observations": seen, "actions": rng.integers(0, 2, length), "rewards": np.zeros(length)})
    space = spaces.Dict({"clock": spaces.Box(0, 1, (2,), np.float32), "symbol": spaces.Discrete(4)})
    return Trajectories.from_episodes(made, observation_space=space, action_space=spaces.Discrete(2))


def test_a_clock_is_left_out_of_names(signs):
    data = with_a_clock()
    tokens = Tokens.of(data, signs)
    assert tokens.ids is None, "no step repeats"
    named = tokens.with_names(data)
    assert named is not None and named.names is not None
    first = np.zeros(data.steps, bool)
    first[data.offsets[:-1]] = True
    parts = np.stack([data.observations["symbol"], data.actions, first], 1)
    _, wanted = np.unique(parts, axis=0, return_inverse=True)
    pairs = set(zip(named.names.tolist(), wanted.ravel().tolist(), strict=True))
    assert len(pairs) == len(set(named.names.tolist())) == wanted.max() + 1, "alike in all else: the same name"
    moved = named.moved(torch.device("cpu"))
    rows = np.array([0, 5, 17])
    assert moved.table("cpu", rows).names.tolist() == named.names[rows].tolist()
    assert named.batch(np.array([1])).rows.names.tolist() == named.names[20:40].tolist()
