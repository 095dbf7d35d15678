"""Everything of Stable-Baselines3: environments, buffers, shaping, training, the paper's agents, callbacks."""

try:
    import stable_baselines3  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('Stable-Baselines3 agents need the sb3 extra: pip install "secret-rl[sb3]"') from missing

from secret_rl.sb3.buffers import from_replay_buffer, from_rollout_buffer
from secret_rl.sb3.callbacks import OnlineSecretCallback
from secret_rl.sb3.checkpoint import load_weights, save_weights
from secret_rl.sb3.curves import DeepCurve, Outcomes, evaluate
from secret_rl.sb3.envs import GymnasiumVecEnv, sb3_envs
from secret_rl.sb3.exploring import ExploringDQN
from secret_rl.sb3.logging import ShapingCallback
from secret_rl.sb3.presets import SmallConvolutions, dqn, paper_dqn, paper_ppo, ppo
from secret_rl.sb3.replay import ShapedDictReplayBuffer, ShapedReplayBuffer
from secret_rl.sb3.shaping import CreditBonusVecEnv, PotentialShapingVecEnv, bonus_with, shape_with
from secret_rl.sb3.training import Trained, train

__all__ = [
    "CreditBonusVecEnv", "DeepCurve", "ExploringDQN", "GymnasiumVecEnv", "OnlineSecretCallback", "Outcomes",
    "PotentialShapingVecEnv", "ShapedDictReplayBuffer", "ShapedReplayBuffer", "ShapingCallback", "SmallConvolutions",
    "Trained", "bonus_with", "dqn", "evaluate", "from_replay_buffer", "from_rollout_buffer", "load_weights",
    "paper_dqn", "paper_ppo", "ppo", "save_weights", "sb3_envs", "shape_with", "train",
]  # fmt: skip
