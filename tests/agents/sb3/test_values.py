"""Values that start from a potential, in agents of Stable-Baselines3."""

import numpy as np
import pytest
import torch

sb3 = pytest.importorskip("stable_baselines3")

from tests.agents.sb3.deep_tasks import SMALL, Hallway  # noqa: E402

from secret_rl.agents.sb3 import ValuesFrom, train  # noqa: E402

SEEN = np.eye(4, dtype=np.float32)
POTENTIAL = np.array([0.0, 0.25, 0.5, 1.0])
UNTRAINED = {"n_envs": 2, "evaluate_every": 0, "buffer_size": 100, "learning_starts": 1000, **SMALL}


def test_an_agent_starts_with_the_potential_of_each_observation_for_all_its_actions():
    start = ValuesFrom(SEEN, POTENTIAL, steps=1_000, learning_rate=0.01)
    model = train(sb3.DQN, Hallway, 20, initial=start, **UNTRAINED).model
    for network in (model.q_net, model.q_net_target):
        with torch.no_grad():
            values = network(torch.from_numpy(SEEN)).numpy()
        np.testing.assert_allclose(values, np.repeat(POTENTIAL[:, None], values.shape[1], 1), atol=0.05)


def test_the_error_that_is_left_is_told_and_the_seed_decides():
    models = [sb3.DQN("MlpPolicy", Hallway(), seed=1, buffer_size=10, device="cpu") for _ in range(3)]
    errors = [
        ValuesFrom(SEEN, POTENTIAL, steps=30, batch_size=2, seed=seed).prepare(model)
        for seed, model in zip((0, 0, 1), models, strict=True)
    ]
    assert errors[0] == errors[1] != errors[2]
    assert 0 < ValuesFrom(SEEN, POTENTIAL, steps=400).prepare(models[0]) < errors[0]


def test_agents_without_such_values_are_refused():
    with pytest.raises(TypeError, match="PPO has no q_net"):
        train(sb3.PPO, Hallway, 20, initial=ValuesFrom(SEEN, POTENTIAL), n_envs=2, n_steps=8, batch_size=8, **SMALL)


@pytest.mark.parametrize(
    ("observations", "potential", "options", "words"),
    [
        (SEEN, POTENTIAL[:3], {}, "4 observations but potentials of shape"),
        (SEEN[:0], POTENTIAL[:0], {}, "0 observations"),
        (SEEN, np.array([0, 1, np.nan, 2]), {}, "NaN"),
        (SEEN, POTENTIAL, {"steps": 0}, "must be positive"),
    ],
)
def test_what_cannot_be_started_from_is_told(observations, potential, options, words):
    with pytest.raises(ValueError, match=words):
        ValuesFrom(observations, potential, **options)
