"""PPO with the paper's options, in the 3D task."""

import gymnasium as gym
import numpy as np
import pytest
import torch

sb3 = pytest.importorskip("stable_baselines3")
pytest.importorskip("vizdoom")

import secret_rl as srl  # noqa: E402
from secret_rl.agents.sb3 import SmallConvolutions, paper_ppo, train  # noqa: E402


def test_the_numbers_are_the_paper_s_and_can_be_replaced():
    options = paper_ppo()
    printed = {"learning_rate": 0.00019, "ent_coef": 0.0011, "discount": 0.99, "gae_lambda": 0.95, "n_envs": 12}
    assert {name: options[name] for name in printed} == printed
    assert options["n_steps"] * options["n_envs"] % options["batch_size"] == 0  # no batch is cut short
    assert paper_ppo(3, n_steps=5)["n_envs"] == 3
    assert paper_ppo(3, n_steps=5)["n_steps"] == 5
    with pytest.raises(ValueError, match="n_envs"):
        paper_ppo(0)


@pytest.mark.parametrize("size", [(40, 30), (80, 60)])
def test_the_network_reads_pictures_of_either_size(size):
    space = gym.spaces.Box(0, 255, (3, size[1], size[0]), np.uint8)
    network = SmallConvolutions(space, **paper_ppo()["policy_kwargs"]["features_extractor_kwargs"])
    assert network(torch.rand(2, 3, size[1], size[0])).shape == (2, 128) == (2, network.features_dim)
    assert [layer.stride[0] for layer in network.convolutions if isinstance(layer, torch.nn.Conv2d)] == [2, 2, 2]


def test_convolutions_without_a_stride_each_are_refused():
    with pytest.raises(ValueError, match="filters and a stride"):
        SmallConvolutions(gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), filters=(8, 8), strides=(2,))


def test_an_agent_learns_in_the_world_and_plays_for_others():
    env = {"preset": "2x2-easy", "size": (40, 30), "max_steps": 12}
    options = paper_ppo(2, n_steps=16, batch_size=16)
    trained = train(
        sb3.PPO,
        "secret_rl/KeysDoors-v0",
        64,
        env_options=env,
        evaluate_every=0,
        device="cpu",
        progress=False,
        **options,
    )
    assert (trained.model.lr_schedule(1.0), trained.model.gamma, trained.model.ent_coef) == (0.00019, 0.99, 0.0011)
    assert trained.curve.training_lengths.tolist() == [12] * 4
    data = srl.collect("secret_rl/KeysDoors-v0", 2, trained.model, env_options=env, progress=False)
    assert data.steps == 24
    trained.model.get_env().close()
