"""What happens while an agent learns: its episodes, its evaluations, the logs and the progress."""

from collections import deque
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from secret_rl.agents.sb3.curve import DeepCurve
from secret_rl.agents.sb3.evaluation import evaluate
from secret_rl.progress import Tick


class Recorder(BaseCallback):
    """Fills a curve: an evaluation whenever another ``every`` steps have passed, and each training episode."""

    def __init__(
        self,
        total: int,
        discount: float,
        seed: int,
        envs: VecEnv | None,
        every: int,
        episodes: int,
        epsilon: float,
        tick: Tick,
    ) -> None:
        super().__init__()
        self._total, self._discount, self._seed = total, discount, seed
        self._envs, self._every, self._episodes, self._epsilon = envs, every, episodes, epsilon
        self._tick = tick
        self._evaluations: list[tuple[int, Any, Any, Any]] = []
        self._trained: list[tuple[int, float, float, int]] = []
        self._told = ""

    def evaluate(self) -> None:
        """Play with what has been learned so far, and remember it; once per number of steps."""
        step = self.model.num_timesteps
        if self._envs is None or (self._evaluations and self._evaluations[-1][0] == step):
            return
        # Not a stream that goes on: an evaluation does not depend on those before it, nor training on evaluations.
        seed = int(np.random.SeedSequence([self._seed, 1, step]).generate_state(1)[0])
        outcomes = evaluate(
            self.model, self._envs, self._episodes, discount=self._discount, seed=seed, epsilon=self._epsilon
        )
        self._evaluations.append((step, *outcomes))
        mean = float(outcomes.returns.mean())
        self._told = f"evaluated: {mean:.2f}"
        self.model.logger.record("secret/evaluation_return", mean)
        self.model.logger.dump(step)

    def curve(self) -> DeepCurve:
        """All there is so far."""
        steps, *outcomes = zip(*self._evaluations, strict=True) if self._evaluations else ([],) * 4
        returns, discounted, lengths = (np.reshape(part, (len(steps), -1 if len(steps) else 0)) for part in outcomes)
        ends, unshaped, shaped, taken = zip(*self._trained, strict=True) if self._trained else ([],) * 4
        return DeepCurve(
            np.array(steps, np.int64), returns, discounted, lengths.astype(np.int64),
            np.array(ends, np.int64), np.array(unshaped, np.float64), np.array(shaped, np.float64),
            np.array(taken, np.int64), self._seed, self._discount,
        )  # fmt: skip

    def restore(self, curve: DeepCurve) -> None:
        """Go on from a curve."""
        evaluations = zip(curve.steps.tolist(), curve.returns, curve.discounted, curve.lengths, strict=True)
        self._evaluations = list(evaluations)
        columns = (curve.training_steps, curve.training_returns, curve.training_shaped_returns, curve.training_lengths)
        self._trained = list(zip(*(column.tolist() for column in columns), strict=True))

    def _on_training_start(self) -> None:
        # Every schedule refers to the whole of training, of which this may be a part.
        self.model._total_timesteps = self._total
        envs = self.training_env
        self._shaped = envs.has_attr("shaping_discount")
        self._paid, self._earned = np.zeros(envs.num_envs), np.zeros(envs.num_envs)
        newest = self._trained[-self.model._stats_window_size :]
        self._window = deque((shaped for _, _, shaped, _ in newest), self.model._stats_window_size)
        self._next = (self.num_timesteps // self._every + 1) * self._every if self._every else self._total

    def _on_step(self) -> bool:
        if "infos" in self.locals:
            self._record(self.locals["infos"], np.asarray(self.locals["dones"]))
        if self._next <= self.num_timesteps < self._total:  # the last one comes after the last update
            self.evaluate()
            self._next = (self.num_timesteps // self._every + 1) * self._every
        self._tick(self._told, min(self.num_timesteps, self._total), self._total)
        return True

    def _record(self, infos: list[dict[str, Any]], ended: Any) -> None:
        if self._shaped:
            self._paid += [info["env_reward"] for info in infos]
            self._earned += [info["env_reward"] + info["shaping_reward"] for info in infos]
        for i in np.flatnonzero(ended).tolist():
            episode = infos[i].get("episode")
            if episode is None:  # a monitor of the user's own that tells nothing
                continue
            unshaped = float(self._paid[i]) if self._shaped else float(episode["r"])
            shaped = float(self._earned[i]) if self._shaped else unshaped
            self._trained.append((self.num_timesteps, unshaped, shaped, int(episode["l"])))
            self._window.append(shaped)
            self.model.logger.record("secret/shaped_return_mean", float(np.mean(self._window)))
        self._paid[ended] = self._earned[ended] = 0
