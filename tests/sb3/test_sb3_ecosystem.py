"""Shaping in code that uses Stable-Baselines3 as its users do: their monitors, wrappers, callbacks and algorithms."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    sync_envs_normalization,
)
from tests.sb3.deep_tasks import SMALL, AtSteps, Hallway, Kept

from secret_rl.sb3 import CreditBonusVecEnv, GymnasiumVecEnv, PotentialShapingVecEnv, ShapingCallback, train
from secret_rl.sb3.logging import LoggerWriter
from secret_rl.shaping import CreditBonus, PotentialShaping, TablePotential, VectorPotentialShaping, VisitCounts
from secret_rl.trajectories import collect
from secret_rl.views import DropView, ViewObservation

POTENTIAL = TablePotential({1: 0.2, 2: 0.4})
PPO_OPTIONS = {"gamma": 0.9, "n_steps": 16, "batch_size": 16, "seed": 0, **SMALL}


def shaped_hallway():
    return PotentialShaping(Hallway(), POTENTIAL, 0.9)


def shaped_vector():
    envs = SyncVectorEnv([Hallway] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorPotentialShaping(envs, POTENTIAL, 0.9)


def hallways(*monitors):
    return DummyVecEnv([lambda: Monitor(Hallway()) if monitors else Hallway()] * 2)


def shaped(envs, discount=0.9):
    return PotentialShapingVecEnv(envs, POTENTIAL, discount)


class Parts(AtSteps):
    """True returns by the infos, and those that were logged."""

    def __init__(self):
        super().__init__(self.look)
        self.true, self.sums = [], None

    def look(self, now):
        infos, ended = now.locals["infos"], now.locals["dones"]
        self.sums = np.zeros(len(infos)) if self.sums is None else self.sums
        self.sums += [info["env_reward"] for info in infos]
        self.true += self.sums[ended].tolist()
        self.sums[ended] = 0


WHERE = {
    "Monitor of SB3 around a bare env": shaped_hallway,
    "Monitor inside": lambda: shaped(hallways(Monitor)),
    "Monitor between two shapings": lambda: CreditBonus(Monitor(shaped_hallway()), POTENTIAL, scale=5.0),
    "VecMonitor inside": lambda: shaped(VecMonitor(hallways())),
    "VecMonitor outside": lambda: VecMonitor(shaped(hallways())),
    "VecMonitor outside, normalised": lambda: VecNormalize(VecMonitor(shaped(hallways()))),
    "VecMonitor around a shaped vector env": lambda: VecMonitor(GymnasiumVecEnv(shaped_vector())),
    "VecMonitor around two": lambda: VecMonitor(CreditBonusVecEnv(shaped(hallways()), POTENTIAL, scale=5.0)),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_the_logged_return_is_the_true_one_wherever_the_monitor_sits(where, algorithm):
    parts = Parts()
    options = PPO_OPTIONS if algorithm is PPO else {"gamma": 0.9, "learning_starts": 10, "seed": 0, **SMALL}
    model = algorithm("MlpPolicy", WHERE[where](), **options).learn(256, callback=parts)
    logged = [episode["r"] for episode in model.ep_info_buffer]
    assert len(logged) > 20 and set(logged) == {0.0, 1.0}
    assert logged == parts.true[: len(logged)]
    assert evaluate_policy(model, model.get_env(), 4, warn=False)[0] in (0, 0.25, 0.5, 0.75, 1)


def test_evaluation_with_normalised_observations(tmp_path):
    """Nobody shapes the environments they evaluate in: what is around the shaping must agree, and nothing else."""
    around = lambda envs: VecFrameStack(VecNormalize(envs), 2)  # noqa: E731
    training, tests = around(shaped(VecMonitor(hallways()))), around(hallways(Monitor))
    tests.venv.training = tests.venv.norm_reward = False
    evaluation = EvalCallback(tests, eval_freq=32, n_eval_episodes=4, log_path=str(tmp_path), verbose=0)
    PPO("MlpPolicy", training, **PPO_OPTIONS).learn(640, callback=evaluation)
    found = np.load(tmp_path / "evaluations.npz")["results"]
    assert found.shape == (10, 4) and set(found.ravel().tolist()) <= {0.0, 1.0}
    sync_envs_normalization(training, tests)
    np.testing.assert_array_equal(tests.venv.obs_rms.mean, training.venv.obs_rms.mean)
    assert training.venv.obs_rms.count > 640, "statistics of all of training"
    assert training.shaping_discount == 0.9 and training.unwrapped is training.venv.venv.venv.venv


@pytest.mark.parametrize("make", [shaped, lambda envs: CreditBonusVecEnv(envs, POTENTIAL)])
def test_normalisation_inside_of_the_shaping_is_refused(make):
    for inside in (VecNormalize(hallways()), VecFrameStack(VecNormalize(hallways(), norm_obs=False), 2)):
        with pytest.raises(
            ValueError, match=r"put it outside, VecNormalize\((PotentialShaping|CreditBonus)VecEnv\(envs"
        ):
            make(inside)


DIFFER = r"shaped with discount 0.9, but the agent learns with gamma 0.95"


@pytest.mark.parametrize(
    "envs",
    [
        lambda: VecNormalize(shaped(hallways())),
        shaped_hallway,
        lambda: CreditBonus(Monitor(shaped_hallway()), POTENTIAL),
    ],
)
@pytest.mark.parametrize("algorithm", [DQN, RecurrentPPO])
def test_another_gamma_is_found_on_the_first_learn(algorithm, envs):
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    model = algorithm(policy, envs(), gamma=0.95, device="cpu")
    with pytest.raises(ValueError, match=DIFFER):
        model.learn(10)


def test_other_processes_are_shaped_and_checked():
    """Environments that are shaped in processes of their own do not meet the agent; the callback asks them."""
    envs = SubprocVecEnv([shaped_hallway] * 2, start_method="fork")
    try:
        with pytest.raises(ValueError, match=DIFFER):
            DQN("MlpPolicy", envs, gamma=0.95, device="cpu").learn(10, callback=ShapingCallback())
        outside = VecMonitor(CreditBonusVecEnv(envs, VisitCounts(), scale=0.1, fade_steps=300))
        model = PPO("MlpPolicy", outside, **PPO_OPTIONS)
        model.set_logger(Logger(None, [LoggerWriter(kept := Kept())]))
        model.learn(256, callback=[parts := Parts(), ShapingCallback()])
    finally:
        envs.close()
    logged = [episode["r"] for episode in model.ep_info_buffer]
    assert len(logged) > 20 and logged == parts.true[: len(logged)] and set(logged) == {0.0, 1.0}
    values = kept.rows[-1][1]
    assert values["rollout/ep_rew_mean"] == pytest.approx(values["shaping/true_return"])
    assert 1 - 256 / 300 <= values["shaping/bonus_left"] < 0.25
    assert values["shaping/bonus_part"] > 0 != values["shaping/potential_part"]


def test_recurrent_agents_learn_from_stacked_frames():
    envs = shaped(VecFrameStack(DummyVecEnv([Hallway] * 4), 2))
    options = {
        **PPO_OPTIONS,
        "batch_size": 64,
        "learning_rate": 0.01,
        "policy_kwargs": {"lstm_hidden_size": 8},
        "n_epochs": 5,
    }
    model = RecurrentPPO("MlpLstmPolicy", VecMonitor(envs), **options).learn(1_536)
    assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > 0.9


def test_nothing_is_logged_of_shaping_where_there_is_none():
    model = PPO("MlpPolicy", hallways(Monitor), **PPO_OPTIONS)
    model.set_logger(Logger(None, [LoggerWriter(kept := Kept())]))
    model.learn(64, callback=ShapingCallback())
    names = set(kept.rows[-1][1])
    assert "rollout/ep_rew_mean" in names and not any(name.startswith("shaping/") for name in names)


MISSION = (
    r"'mission' is text, of MissionSpace, expected numbers: leave it out, views.ViewObservation\(env, views.DropView"
)


def test_ids_of_other_packages_and_missions_as_users_meet_them():
    """The module of an id is imported; text is refused before anything is played; the remedy works."""
    unlock = "minigrid:MiniGrid-Unlock-v0"
    for call in (collect, lambda env, n: train(DQN, env, n, policy="MultiInputPolicy")):
        for env in (unlock, lambda: gym.make(unlock)):
            with pytest.raises(TypeError, match=MISSION):
                call(env, 4)
        for env, hint in (
            ("BabyAI-Nonsense-v0", "minigrid:BabyAI-Nonsense-v0"),
            ("Triggers-v0", "secret_rl/Triggers-v0"),
        ):
            with pytest.raises(gym.error.UnregisteredEnv, match=f"write {hint}"):
                call(env, 4)

    def seen():
        return ViewObservation(gym.make(unlock, max_steps=8), DropView(("mission", "direction"), squeeze=True))

    assert len(collect(seen, 2)) == 2
    trained = train(DQN, seen, 20, n_envs=2, evaluate_every=20, evaluation_episodes=1, buffer_size=50, **SMALL)
    assert trained.curve.training_lengths.tolist() == [8] * 2
