"""Environments, registered with Gymnasium under ``secret_rl/``."""

import gymnasium as gym

TRIGGERS_ID = "secret_rl/Triggers-v0"
KEYS_DOORS_ID = "secret_rl/KeysDoors-v0"
DMLAB_ID = "secret_rl/DMLabKeysDoors-v0"


def register() -> None:
    """Make the environments known to ``gymnasium.make``; importing ``secret_rl`` calls this."""
    if TRIGGERS_ID not in gym.registry:
        gym.register(
            TRIGGERS_ID,
            entry_point="secret_rl.envs.triggers:TriggersEnv",
            vector_entry_point="secret_rl.envs.triggers:TriggersVectorEnv",
        )
    if KEYS_DOORS_ID not in gym.registry:  # needs ViZDoom (the extra "doom") once it is made, not before
        gym.register(KEYS_DOORS_ID, entry_point="secret_rl.envs.keys_doors:KeysDoorsEnv")
    if DMLAB_ID not in gym.registry:  # needs DeepMind Lab, which everyone builds for themselves, once it is made
        gym.register(DMLAB_ID, entry_point="secret_rl.envs.dmlab:DMLabKeysDoorsEnv")
