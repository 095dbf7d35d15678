"""Environments, registered with Gymnasium under ``secret_rl/``."""

import gymnasium as gym

TRIGGERS_ID = "secret_rl/Triggers-v0"
KEYS_DOORS_ID = "secret_rl/KeysDoors-v0"


def register() -> None:
    """Make the environments known to ``gymnasium.make``; importing ``secret_rl`` calls this."""
    if TRIGGERS_ID not in gym.registry:
        single, vector = "secret_rl.envs.triggers:TriggersEnv", "secret_rl.envs.triggers:TriggersVectorEnv"
        gym.register(TRIGGERS_ID, single, vector_entry_point=vector)
        gym.register(KEYS_DOORS_ID, "secret_rl.envs.keys_doors:KeysDoorsEnv")  # needs ViZDoom, once made
