"""Deep agents: the algorithms of Stable-Baselines3 and sb3-contrib, trained through one function."""

try:
    import stable_baselines3  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('Deep agents need the sb3 extra: pip install "secret-rl[sb3]"') from missing

from secret_rl.agents.sb3.curve import DeepCurve
from secret_rl.agents.sb3.evaluation import Outcomes, evaluate
from secret_rl.agents.sb3.paper import SmallConvolutions, paper_dqn, paper_ppo
from secret_rl.agents.sb3.replay import ShapedDictReplayBuffer, ShapedNStepReplayBuffer, ShapedReplayBuffer
from secret_rl.agents.sb3.training import Trained, train
from secret_rl.agents.sb3.values import ValuesFrom
from secret_rl.agents.sb3.weights import load_weights, save_weights

__all__ = [
    "DeepCurve", "Outcomes", "ShapedDictReplayBuffer", "ShapedNStepReplayBuffer", "ShapedReplayBuffer",
    "SmallConvolutions", "Trained", "ValuesFrom", "evaluate", "load_weights", "paper_dqn",
    "paper_ppo", "save_weights", "train",
]  # fmt: skip
