"""The paper's DQN on finite tasks: many learners at once, one batch of small networks."""

from secret_rl.agents.dqn.many import DqnCurves, dqn_many
from secret_rl.agents.dqn.options import DqnOptions

__all__ = ["DqnCurves", "DqnOptions", "dqn_many"]
