"""Algorithms of Stable-Baselines3 trained through one function: what they learn, what is recorded, what is refused."""

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib as contrib
import stable_baselines3 as sb3
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize
from tests.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, AtSteps, Hallway

from secret_rl.envs.triggers import TriggersEnv
from secret_rl.sb3 import PotentialShapingVecEnv, bonus_with, shape_with, train
from secret_rl.shaping import PotentialShaping, TablePotential, VectorPotentialShaping

POTENTIAL = TablePotential({state: state / 300 for state in range(36)})
QUICK_DQN = {
    "learning_starts": 20, "buffer_size": 400, "train_freq": 1, "gradient_steps": 2, "batch_size": 16,
    "target_update_interval": 40, "learning_rate": 0.01, "exploration_fraction": 0.5, **SMALL,
}  # fmt: skip
QUICK_PPO = {"n_steps": 16, "batch_size": 32, "learning_rate": 0.01, **SMALL}


def parameters(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.policy.parameters()])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (sb3.DQN, QUICK_DQN),
        (sb3.DQN, QUICK_DQN | {"n_steps": 3}),
        (sb3.PPO, QUICK_PPO),
        (contrib.QRDQN, QUICK_DQN | {"policy_kwargs": {"net_arch": [8], "n_quantiles": 5}}),
        (sb3.A2C, {"n_steps": 8, "learning_rate": 0.01, **SMALL}),
    ],
)
def test_agents_learn_with_and_without_shaping(algorithm, options):
    """Down a hallway in three steps: a return of 1, or gamma^2."""
    for shaping in (None, shape_with(TablePotential({1: 0.2, 2: 0.4}))):
        trained = train(
            algorithm, Hallway, 1200, gamma=0.9, shaping=shaping, n_envs=4, evaluation_episodes=3,
            evaluate_every=300, **options,
        )  # fmt: skip
        curve = trained.curve
        assert curve.steps[0] == 0 and curve.steps[-1] >= 1200 and len(curve) == 5
        np.testing.assert_array_equal(curve.returns[-1], [1, 1, 1])
        np.testing.assert_array_equal(curve.lengths[-1], [3, 3, 3])
        np.testing.assert_allclose(curve.discounted[-1], 0.9**2)
        assert trained.model.gamma == 0.9
        assert set(curve.training_returns) == {0.0, 1.0} and len(curve.training_steps) > 100
        assert SMALL["policy_kwargs"] == {"net_arch": [8]}, "A2C writes into what it is given"
        assert (np.diff(curve.training_steps) >= 0).all() and set(curve.training_lengths) <= {3, 4, 5, 6}


def maze():
    return TriggersEnv(**MAZE)


def shaped_maze():
    return PotentialShaping(maze(), POTENTIAL, 0.95)


def shaped_vector():
    envs = gym.make_vec(TRIGGERS, 3, vectorization_mode="vector_entry_point", autoreset_mode="SameStep", **MAZE)
    return VectorPotentialShaping(envs, POTENTIAL, 0.95)


def normalised(envs, discount):
    return VecNormalize(PotentialShapingVecEnv(envs, POTENTIAL, discount), norm_obs=False)


WAYS = {
    "around": (lambda: maze, shape_with(POTENTIAL)),
    "inside each": (lambda: shaped_maze, None),
    "inside a vector": (shaped_vector, None),
    "around, then normalised": (lambda: maze, normalised),
    "by the user, monitored": (lambda: PotentialShapingVecEnv(VecMonitor(DummyVecEnv([maze])), POTENTIAL, 0.95), None),
    "by the user, not monitored": (lambda: PotentialShapingVecEnv(DummyVecEnv([maze]), POTENTIAL, 0.95), None),
}


@pytest.mark.parametrize("way", WAYS)
def test_returns_are_unshaped_however_the_environments_are_shaped(way):
    make, shaping = WAYS[way]
    received, totals = [], np.zeros(3)

    def add_up(callback):
        given, ended = callback.locals["rewards"], callback.locals["dones"]
        totals[: len(given)] += given
        received.extend(totals[: len(given)][ended].tolist())
        totals[: len(given)][ended] = 0

    trained = train(
        sb3.DQN, make(), 600, gamma=0.95, n_envs=3, seed=5, callback=AtSteps(add_up), evaluate_every=600,
        evaluation_env=shaped_maze, shaping=shaping, **QUICK_DQN,
    )  # fmt: skip
    curve = trained.curve
    logged = [entry["r"] for entry in trained.model.ep_info_buffer]
    assert logged == curve.training_returns[-len(logged) :].tolist()
    assert len(set(curve.training_returns)) > 1 and len(curve.training_returns) > 60
    assert set(curve.training_returns) | set(curve.returns.ravel()) <= {-1.0, 0.0, 1.0}
    if "normalised" not in way:
        np.testing.assert_allclose(curve.training_shaped_returns, received, atol=1e-5)
    assert not np.allclose(curve.training_shaped_returns, curve.training_returns)


def test_evaluations_change_nothing_and_seeds_decide():
    options = {"env_options": MAZE, "n_envs": 2, "evaluation_episodes": 2, **QUICK_DQN}
    often = train(sb3.DQN, TRIGGERS, 300, evaluate_every=10, evaluation_epsilon=0.5, seed=1, **options)
    never = train(sb3.DQN, TRIGGERS, 300, evaluate_every=0, seed=1, **options)
    other = train(sb3.DQN, TRIGGERS, 300, evaluate_every=0, seed=2, **options)
    np.testing.assert_array_equal(parameters(often.model), parameters(never.model))
    np.testing.assert_array_equal(often.curve.training_returns, never.curve.training_returns)
    assert not np.array_equal(parameters(often.model), parameters(other.model))
    assert len(never.curve) == 0 and often.curve.steps.tolist() == list(range(0, 310, 10))
    with pytest.raises(ValueError, match="no evaluation"):
        never.curve.area()
    again = train(sb3.DQN, TRIGGERS, 300, evaluate_every=100, evaluation_epsilon=0.5, seed=1, **options)
    np.testing.assert_array_equal(again.curve.lengths, often.curve.lengths[::10])


@pytest.mark.parametrize(("algorithm", "options"), [(sb3.DQN, QUICK_DQN), (sb3.PPO, QUICK_PPO)])
def test_schedules_refer_to_the_whole_of_training(algorithm, options, tmp_path):
    """Not to the parts between checkpoints."""
    found = []
    watch = AtSteps(lambda now: found.append((now.num_timesteps, now.model._current_progress_remaining)))
    trained = train(
        algorithm, Hallway, 640, n_envs=2, callback=watch, evaluate_every=0, folder=tmp_path, checkpoint_every=160,
        **options,
    )  # fmt: skip
    at, left = np.array(found[1:]).T
    step = 2 if algorithm is sb3.DQN else 32  # known a step, or a rollout, later
    np.testing.assert_allclose(left, 1 - (at - 2) // step * step / 640)
    assert trained.model._current_progress_remaining == 0


def test_callbacks_are_passed_on_and_may_save_or_end_the_training(tmp_path):
    saving = CheckpointCallback(100, tmp_path / "saved")
    options = {"n_envs": 1, "evaluate_every": 0, **QUICK_DQN}
    trained = train(
        sb3.DQN, Hallway, 300, callback=[saving, lambda local, _: local["num_collected_steps"] > 0], **options
    )
    loaded = sb3.DQN.load(tmp_path / "saved" / "rl_model_200_steps.zip", env=Hallway())
    for model in (loaded, trained.model):  # schedules of the training are neither in the file nor in the model
        model.learn(20)
        assert model._current_progress_remaining == 0
    for at, evaluated in ((1, [0, 1]), (100, [0, 50, 100])):  # also where a checkpoint is due
        stop = {"callback": lambda now, _, at=at: now["self"].num_timesteps != at, "folder": tmp_path / str(at)}
        for _ in range(2):
            stopped = train(sb3.DQN, Hallway, 300, checkpoint_every=100, **stop, **options | {"evaluate_every": 50})
            assert stopped.curve.steps.tolist() == evaluated and stopped.model.num_timesteps == at


def test_logs_and_progress(tmp_path, capfd):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curve = train(
        sb3.DQN, TRIGGERS, 300, env_options=MAZE, shaping=shape_with(POTENTIAL), tensorboard=tmp_path, n_envs=2,
        evaluate_every=100, evaluation_episodes=2, gamma=0.9, progress=True, **QUICK_DQN,
    ).curve  # fmt: skip
    assert "300/300" in capfd.readouterr().err
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    evaluated = events.Scalars("secret/evaluation_return")
    assert [event.step for event in evaluated] == curve.steps.tolist()
    np.testing.assert_allclose([event.value for event in evaluated], curve.returns.mean(1))
    last = events.Scalars("rollout/ep_rew_mean")[-1]
    before = curve.training_returns[curve.training_steps <= last.step]
    # two episodes may end in one step, and the log be written between them
    assert min(abs(last.value - before[:n].mean()) for n in (len(before), len(before) - 1)) < 1e-5


def test_a_discount_that_differs_is_named():
    for env, options in (
        (shaped_maze, {}),
        (shaped_vector(), {"evaluate_every": 0}),
        (maze, {"shaping": lambda envs, _: PotentialShapingVecEnv(envs, POTENTIAL, 0.95)}),
        (shaped_maze, {"shaping": shape_with(TablePotential({0: 1.0}))}),
        (lambda: PotentialShaping(maze(), POTENTIAL, 0.95), {"shaping": bonus_with(POTENTIAL)}),
    ):
        with pytest.raises(ValueError, match=r"shaped with discount 0.95, but the agent learns with gamma 0.9"):
            train(sb3.DQN, env, 10, gamma=0.9, n_envs=2, **options, **QUICK_DQN)


def test_normalised_environments_are_shaped_outside_and_monitored_inside():
    inside = VecMonitor(DummyVecEnv([maze]))
    shaping = {"shaping": shape_with(POTENTIAL), "evaluate_every": 0}
    for envs in (VecNormalize(inside, norm_reward=False), VecFrameStack(VecNormalize(inside), 2)):
        with pytest.raises(ValueError, match="VecNormalize changes what the potential sees: put it outside"):
            train(sb3.DQN, envs, 10, **shaping, **QUICK_DQN)
    with pytest.raises(ValueError, match="put a VecMonitor inside it"):
        train(sb3.DQN, VecNormalize(inside.venv), 10, evaluate_every=0, **QUICK_DQN)
    unshaped = train(sb3.DQN, VecNormalize(inside), 40, evaluate_every=0, **QUICK_DQN)
    assert set(unshaped.curve.training_returns) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env": DummyVecEnv([Hallway])}, "give evaluation_env"),
        ({"evaluation_env": "CartPole-v1"}, "Observation spaces do not match"),
        ({"env_options": {"size": 3}}, "need an environment id"),
        ({"algorithm": "DQN"}, "must be a class of Stable-Baselines3"),
        ({"shaping": lambda *_: 3}, "return a VecEnv, got int"),
        ({"steps": 0}, "steps must be an integer of at least 1"),
        ({"gamma": 1.5}, "gamma and evaluation_epsilon must be in .* got 1.5 and 0.0"),
        ({"tensorboard_log": "logs"}, "give tensorboard instead"),
        ({"checkpoint_every": 5}, "needs a folder"),
        ({"checkpoint_every": 5, "folder": "unused", "optimize_memory_usage": True}, "optimize_memory_usage"),
    ],
)
def test_bad_input_is_named(changes, words):
    with pytest.raises((ValueError, TypeError), match=words):
        train(**{"algorithm": sb3.DQN, "env": Hallway, "steps": 10, **changes})
