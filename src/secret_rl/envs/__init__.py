"""Environments, registered with Gymnasium under ``secret_rl/`` when this is imported."""

import gymnasium as gym

TRIGGERS_ID = "secret_rl/Triggers-v0"
KEYS_DOORS_ID = "secret_rl/KeysDoors-v0"

if TRIGGERS_ID not in gym.registry:
    _single, _vector = "secret_rl.envs.triggers:TriggersEnv", "secret_rl.envs.triggers:TriggersVectorEnv"
    gym.register(TRIGGERS_ID, _single, vector_entry_point=_vector)
    gym.register(KEYS_DOORS_ID, "secret_rl.envs.keys_doors:KeysDoorsEnv")  # needs ViZDoom, once made
