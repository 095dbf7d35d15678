"""What is logged while an agent learns: the parts of its returns, and where the numbers go."""

from collections import deque
from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from secret_rl.loggers import Logger
from secret_rl.sb3.envs import check_discount, is_shaped
from secret_rl.sb3.shaping import CreditBonusVecEnv, layers


class Returns(NamedTuple):
    """The parts of what an agent received in one episode; their sum is its shaped return."""

    true: float
    """What the environment paid."""
    potential: float
    """What potentials added."""
    bonus: float
    """What bonuses added."""


class ShapingCallback(BaseCallback):
    """Logs what shaping adds to returns, and finds out where an agent has another discount than its shaping.

    For ``model.learn(steps, callback=ShapingCallback())``; ``train`` does the same by itself. Tags are means over the
    newest episodes, as many as ``rollout/ep_rew_mean`` is of:

    - ``shaping/true_return``: what the environments paid
    - ``shaping/shaped_return``: what the agent received
    - ``shaping/potential_part``, ``shaping/bonus_part``: what was added, by potentials and by bonuses
    - ``shaping/bonus_left``: of a bonus that fades, the share that is left

    The discount is checked wherever the shaping is, also in environments that run in processes of their own.
    """

    def _on_training_start(self) -> None:
        envs = self.training_env
        check_discount(envs, getattr(self.model, "gamma", None))
        self._shaped = is_shaped(envs)
        self._sums = np.zeros((3, envs.num_envs))  # true, added in all, bonuses; of the episodes under way
        newest = self.model.ep_info_buffer
        self._newest: deque[Returns] = deque(maxlen=100 if newest is None else newest.maxlen)
        self._bonuses = [layer.bonus for layer in layers(envs) if isinstance(layer, CreditBonusVecEnv)]

    def _on_step(self) -> bool:
        for _ in self._ended_episodes():
            pass
        return True

    def _ended_episodes(self) -> Iterator[tuple[int, Returns]]:
        """The environments whose episodes ended with this step, and their returns, which are logged."""
        infos, ended = self.locals["infos"], np.asarray(self.locals["dones"])
        if self._shaped:
            parts = ("env_reward", "shaping_reward", "bonus_reward")
            self._sums += [[info.get(name, 0.0) for info in infos] for name in parts]
        for i in np.flatnonzero(ended).tolist():
            if self._shaped:
                true, added, bonus = self._sums[:, i].tolist()
                returns = Returns(true, added - bonus, bonus)
                self._log(returns)
                if "episode" in infos[i]:
                    infos[i]["episode"]["r"] = true  # what is logged, also where a monitor is around a shaping
            else:
                returns = Returns(float(infos[i].get("episode", {"r": np.nan})["r"]), 0.0, 0.0)
            yield i, returns
        self._sums[:, ended] = 0.0

    def _log(self, returns: Returns) -> None:
        self._newest.append(returns)
        true, potential, bonus = np.mean(self._newest, axis=0).tolist()
        values = {"true_return": true, "shaped_return": true + potential + bonus}
        values |= {"potential_part": potential, "bonus_part": bonus}
        values |= {f"bonus_left{f'_{i}' if i else ''}": bonus.left for i, bonus in enumerate(self._bonuses)}
        for name, value in values.items():
            self.logger.record(f"shaping/{name}", value)


class LoggerWriter(KVWriter):
    """Passes what Stable-Baselines3 logs on to a logger of ours."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Numbers that TensorBoard would be given, too."""
        kept = (name for name in key_values if "tensorboard" not in (key_excluded.get(name) or ()))
        numbers = {name: float(key_values[name]) for name in kept if isinstance(key_values[name], Real)}
        if numbers:
            self._logger.log(step, numbers)

    def close(self) -> None:
        """The logger is its owner's to close."""
