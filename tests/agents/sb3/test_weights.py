"""Weights on disk and from agent to agent, and the network of the paper."""

import gymnasium as gym
import numpy as np
import pytest
import torch

sb3 = pytest.importorskip("stable_baselines3")

from safetensors.torch import save_file  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402
from tests.agents.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, Hallway  # noqa: E402
from tests.sealing import change_arrays  # noqa: E402

from secret_rl.agents.sb3 import SmallConvolutions, load_weights, paper_dqn, save_weights, train  # noqa: E402
from secret_rl.envs.triggers import TriggersEnv  # noqa: E402
from secret_rl.files import FileFormatError  # noqa: E402

SAC = {"env": "Pendulum-v1", "buffer_size": 10}
KINDS = {
    "DQN": (sb3.DQN, {"env": Hallway(), "buffer_size": 10}),
    "PPO": (sb3.PPO, {"env": Hallway(), "n_steps": 8, "batch_size": 8}),
    "SAC": (sb3.SAC, SAC),
    "TD3": (sb3.TD3, SAC),
}


def tensors(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def agent(kind, seed, **options):
    algorithm, own = KINDS[kind]
    own = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", **own}  # its own: the library writes into it
    return algorithm("MlpPolicy", seed=seed, **own | options)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_from_agent_to_agent_and_through_files(kind, tmp_path):
    source, path = agent(kind, 1), tmp_path / "deep" / "weights.safetensors"
    with torch.no_grad():  # target networks lag behind in an agent that has learned
        for name, value in source.policy.named_parameters():
            value.add_(0.5 if "_target" in name else 0.25)
    save_weights(source, path)
    assert [file.name for file in path.parent.iterdir()] == ["weights.safetensors"]
    for weights in (source, path, str(path)):
        target = agent(kind, 2)
        load_weights(target, weights)
        for name, value in tensors(target).items():
            wanted = source.policy.state_dict()[name.replace("_target", "")]
            assert torch.equal(value, wanted), name


def test_training_starts_from_weights(tmp_path):
    source = train(sb3.DQN, Hallway, 50, n_envs=2, evaluate_every=0, buffer_size=100, **SMALL).model
    options = {"n_envs": 2, "evaluate_every": 20, "buffer_size": 100, "learning_starts": 1000, "seed": 7, **SMALL}
    for initial in (source, save_weights(source, tmp_path / "weights")):
        started = train(sb3.DQN, Hallway, 20, initial=initial, **options)  # too short to learn
        seen = np.eye(4, dtype=np.float32)
        torch.testing.assert_close(*(m.q_net(torch.from_numpy(seen)) for m in (source, started.model)))


def test_weights_that_do_not_fit_are_named(tmp_path):
    larger = agent("DQN", 0, policy_kwargs={"net_arch": [9]})
    with pytest.raises(ValueError, match=r"q_net.q_net.0.weight is \(9, 4\) there and \(8, 4\) here"):
        load_weights(agent("DQN", 0), larger)
    with pytest.raises(ValueError, match="q_net.* is missing there.*PPO|PPO.*q_net.* is missing there"):
        load_weights(agent("DQN", 0), agent("PPO", 0))
    with pytest.raises(FileNotFoundError, match="written by save_weights"):
        load_weights(larger, tmp_path / "nothing")
    (tmp_path / "text").write_text("weights")
    with pytest.raises(FileFormatError, match="text cannot be read as 'secret-rl policy weights': .* 7 bytes"):
        load_weights(larger, tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(FileFormatError, match="it is a safetensors file of something else"):
        load_weights(larger, tmp_path / "other")


def test_weights_that_were_tampered_with_are_refused(tmp_path):
    """Also where the checksum is made to match."""
    model, path = agent("DQN", 0), tmp_path / "weights"
    before = tensors(model)
    name = "q_net.q_net.0.weight"
    for change, error, said in (
        (
            lambda about, arrays: about.update(format="else"),
            FileFormatError,
            "it says format 'else', expected 'secret-",
        ),
        (lambda about, arrays: about.update(version=2), FileFormatError, "format version 2, this library reads 1"),
        (lambda about, arrays: arrays.update({name: arrays[name] * np.nan}), FileFormatError, f"{name} holds NaN"),
        (lambda about, arrays: arrays.update({name: arrays[name][1:]}), ValueError, f"{name} is .* there and"),
        (lambda about, arrays: arrays.pop(name), ValueError, f"{name} is missing there"),
        (lambda about, arrays: arrays.update(extra=arrays[name]), ValueError, "extra is not in this one"),
    ):
        with pytest.raises(error, match=said):
            load_weights(model, change_arrays(save_weights(agent("DQN", 1), path), change))
    content = save_weights(agent("DQN", 1), path).read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        load_weights(model, path)
    for value, wanted in zip(tensors(model).values(), before.values(), strict=True):
        assert torch.equal(value, wanted), "what is refused changes nothing"


def test_the_network_of_the_paper():
    """Three convolutions, 64 units, as many outputs as actions (appendix A)."""
    env = TriggersEnv(size=8, triggers=1, window=None, layout_seed=0)
    options = paper_dqn(100_000)
    model = sb3.DQN(options["policy"], env, buffer_size=10, policy_kwargs=options["policy_kwargs"], device="cpu")
    shapes = [tuple(p.shape) for name, p in model.q_net.named_parameters() if name.endswith("weight")]
    assert shapes == [(8, 3, 3, 3), (16, 8, 3, 3), (16, 16, 3, 3), (64, 16 * 4 * 4), (4, 64)]
    strides = [m.stride for m in model.q_net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert strides == [(2, 2), (1, 1), (1, 1)]
    assert isinstance(model.policy.optimizer, torch.optim.RMSprop)


@pytest.mark.parametrize("n_envs", [1, 2, 3, 4, 6, 8, 32])
def test_one_update_for_four_steps_whatever_the_number_of_environments(n_envs):
    options = paper_dqn(1000, n_envs)
    assert options["gradient_steps"] * 4 == options["train_freq"] * n_envs
    small = paper_dqn(320, n_envs, learning_starts=0, buffer_size=50, batch_size=2, evaluate_every=0, device="cpu")
    model = train(sb3.DQN, TRIGGERS, 320, env_options=MAZE, **small).model
    assert model._n_updates == pytest.approx(model.num_timesteps / 4, abs=n_envs)


def test_epsilon_falls_over_250000_steps_whatever_the_length_of_training():
    for steps in (1000, 250_000, 1_000_000):
        options = paper_dqn(steps)
        names = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
        model = agent("DQN", 0, **{name: options[name] for name in names})
        for step in (0, 600, 200_000, 250_000, 900_000):
            if step <= steps:
                wanted = max(0.01, 1 - 0.99 * step / 250_000)
                assert model.exploration_schedule(1 - step / steps) == pytest.approx(wanted), (steps, step)
        assert options["buffer_size"] == min(steps, 1_000_000)
    assert paper_dqn(10, learning_rate=1.0)["learning_rate"] == 1
    with pytest.raises(ValueError, match="at least 1"):
        paper_dqn(0)


def test_channels_are_found_last_unless_the_library_has_moved_them():
    """A 3x3x3 window of zeros and ones is (rows, columns, channels); an image of bytes arrives with channels first."""
    window = TriggersEnv(size=4, triggers=1, window=3)
    model = sb3.DQN("CnnPolicy", window, buffer_size=10, device="cpu", policy_kwargs=paper_dqn(1)["policy_kwargs"])
    images = torch.zeros(2, 3, 3, 3)
    images[1, 0, 2, 1] = 1  # row 0, column 2, channel 1
    first = model.q_net.features_extractor.convolutions[0]
    seen = []
    first.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    model.q_net(images)
    assert seen[0][1, 1, 0, 2] == 1 and seen[0].sum() == 1

    class Picture(Hallway):
        observation_space = gym.spaces.Box(0, 255, (9, 12, 3), np.uint8)

        def _seen(self):
            return np.zeros((9, 12, 3), np.uint8)

    envs = DummyVecEnv([Picture])
    model = sb3.DQN("CnnPolicy", envs, buffer_size=10, device="cpu", policy_kwargs=paper_dqn(1)["policy_kwargs"])
    assert model.q_net.features_extractor.convolutions[0].in_channels == 3
    model.predict(envs.reset())
    with pytest.raises(ValueError, match="read images"):
        SmallConvolutions(gym.spaces.Box(0, 1, (4,)))
