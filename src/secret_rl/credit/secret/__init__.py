"""SECRET: a causal Transformer predicts rewards from trajectories, and its attention is credit."""

from secret_rl.credit.base import register_method

register_method("secret", module="secret_rl.credit.secret.method")  # PyTorch is imported when it is used
