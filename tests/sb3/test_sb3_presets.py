"""Agents that learn from credit, and those of the paper."""

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv
from tests.sb3.deep_tasks import MAZE, TRIGGERS, Hallway, agent_in

import secret_rl as srl
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.sb3 import SmallConvolutions, bonus_with, paper_dqn, paper_ppo, train
from secret_rl.shaping import EventCredit, VisitCounts


def dqn(env):
    return agent_in(sb3.DQN, env, "CnnPolicy", policy_kwargs=paper_dqn(1)["policy_kwargs"])


def test_the_network_of_the_paper():
    """Three convolutions, 64 units, as many outputs as actions (appendix A)."""
    model = dqn(TriggersEnv(size=8, triggers=1, window=None, layout_seed=0))
    shapes = [tuple(p.shape) for name, p in model.q_net.named_parameters() if name.endswith("weight")]
    assert shapes == [(8, 3, 3, 3), (16, 8, 3, 3), (16, 16, 3, 3), (64, 16 * 4 * 4), (4, 64)]
    strides = [m.stride for m in model.q_net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert strides == [(2, 2), (1, 1), (1, 1)]
    assert isinstance(model.policy.optimizer, torch.optim.RMSprop)


@pytest.mark.parametrize("n_envs", [1, 3, 6, 32])
def test_one_update_for_four_steps_whatever_the_number_of_environments(n_envs):
    small = paper_dqn(320, n_envs, learning_starts=0, buffer_size=50, batch_size=2, evaluate_every=0, device="cpu")
    model = train(sb3.DQN, TRIGGERS, 320, env_options=MAZE, **small).model
    assert model._n_updates == pytest.approx(model.num_timesteps / 4, abs=n_envs)


@pytest.mark.parametrize("steps", [1000, 250_000, 1_000_000])
def test_epsilon_falls_over_250000_steps_or_with_credit_over_a_tenth_of_the_training(steps):
    paper, mine = paper_dqn(steps), srl.sb3.dqn(steps)
    names = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
    assert {name for name in mine if mine[name] != paper[name]} <= set(names) and mine.keys() == paper.keys()
    for options, falls_over, least in ((paper, 250_000, 0.01), (mine, steps / 10, 0.05)):
        model = agent_in(sb3.DQN, Hallway(), **{name: options[name] for name in names})
        for step in (0, steps // 20, steps // 2, steps):
            wanted = max(least, 1 - (1 - least) * step / falls_over)
            assert model.exploration_schedule(1 - step / steps) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_agents_with_credit_learn_from_bonuses(name):
    small = {"evaluate_every": 0, "device": "cpu"}
    options = srl.sb3.dqn(200, 4, learning_starts=40, **small) if name == "DQN" else srl.sb3.ppo(4, n_steps=32, **small)
    bonuses = [bonus_with(EventCredit("trigger_activated"), fade_steps=100), bonus_with(VisitCounts(), scale=0.1)]
    trained = train(getattr(sb3, name), TRIGGERS, 200, env_options=MAZE, shaping=bonuses, **options)
    assert trained.model._n_updates > 0
    assert (trained.curve.training_shaped_returns > trained.curve.training_returns).all()


def test_channels_are_found_last_unless_the_library_has_moved_them():
    """A 3x3x3 window of zeros and ones is (rows, columns, channels); an image of bytes arrives with channels first."""
    model = dqn(TriggersEnv(size=4, triggers=1, window=3))
    images = torch.zeros(2, 3, 3, 3)
    images[1, 0, 2, 1] = 1  # row 0, column 2, channel 1
    seen = []
    model.q_net.features_extractor.convolutions[0].register_forward_hook(lambda _, given, __: seen.append(given[0]))
    model.q_net(images)
    assert seen[0][1, 1, 0, 2] == 1 and seen[0].sum() == 1

    class Picture(Hallway):
        observation_space = gym.spaces.Box(0, 255, (9, 12, 3), np.uint8)

        def _seen(self):
            return np.zeros((9, 12, 3), np.uint8)

    envs = DummyVecEnv([Picture])
    model = dqn(envs)
    assert model.q_net.features_extractor.convolutions[0].in_channels == 3
    model.predict(envs.reset())


def test_options_can_be_replaced_and_bad_ones_are_named():
    assert paper_dqn(10, learning_rate=1.0)["learning_rate"] == 1
    for options in (paper_ppo(), srl.sb3.ppo(), srl.sb3.ppo(4)):
        assert options["n_steps"] * options["n_envs"] % options["batch_size"] == 0, "no batch is cut short"
    with pytest.raises(ValueError, match="at least 1"):
        srl.sb3.dqn(0)
    with pytest.raises(ValueError, match="read images"):
        SmallConvolutions(gym.spaces.Box(0, 1, (4,)))


@pytest.mark.parametrize("size", [(40, 30), (80, 60)])
def test_the_network_of_the_3d_task_reads_pictures_of_either_size(size):
    space = gym.spaces.Box(0, 255, (3, size[1], size[0]), np.uint8)
    network = SmallConvolutions(space, **paper_ppo()["policy_kwargs"]["features_extractor_kwargs"])
    assert network(torch.rand(2, 3, size[1], size[0])).shape == (2, 128) == (2, network.features_dim)
    assert [layer.stride[0] for layer in network.convolutions if isinstance(layer, torch.nn.Conv2d)] == [2, 2, 2]


def test_an_agent_learns_in_the_3d_world_and_plays_for_others():
    pytest.importorskip("vizdoom")
    env = {"preset": "2x2-easy", "size": (40, 30), "max_steps": 12}
    options = {"evaluate_every": 0, "device": "cpu", **paper_ppo(2, n_steps=16, batch_size=16)}
    trained = train(sb3.PPO, "secret_rl/KeysDoors-v0", 64, env_options=env, **options)
    assert (trained.model.lr_schedule(1.0), trained.model.gamma, trained.model.ent_coef) == (0.00019, 0.99, 0.0011)
    assert trained.curve.training_lengths.tolist() == [12] * 4
    data = srl.collect("secret_rl/KeysDoors-v0", 2, trained.model, env_options=env, progress=False)
    assert data.steps == 24
    trained.model.get_env().close()
