"""Many Triggers mazes in one compiled step: the vector face, in all three autoreset modes."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from secret_rl.envs.triggers.env import METADATA, observation_space
from secret_rl.envs.triggers.mazes import DISABLED, NEXT_STEP, SAME_STEP, Mazes, Outcome
from secret_rl.envs.triggers.options import TriggersOptions
from secret_rl.envs.triggers.render import draw
from secret_rl.envs.triggers.rollouts import RandomEpisodes

_MODES = {
    AutoresetMode.NEXT_STEP: NEXT_STEP,
    AutoresetMode.SAME_STEP: SAME_STEP,
    AutoresetMode.DISABLED: DISABLED,
}


class TriggersVectorEnv(gym.vector.VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """Behaves as ``SyncVectorEnv`` over ``TriggersEnv`` does, infos and seeds included, thousands of times faster.

    >>> import gymnasium as gym, secret_rl
    >>> envs = gym.make_vec("secret_rl/Triggers-v0", num_envs=4096, vectorization_mode="vector_entry_point")
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape, infos["state"].shape
    ((4096, 3, 3, 3), (4096,))
    """

    metadata = METADATA

    def __init__(
        self,
        num_envs: int = 1,
        size: int = 8,
        triggers: int = 3,
        prizes: int = 1,
        window: int | None = 3,
        inverted: bool = False,
        layout_seed: int | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f'a vector env renders as "rgb_array" or not at all, got {render_mode!r}')
        self.options = TriggersOptions(size, triggers, prizes, window, inverted, layout_seed, max_steps)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**METADATA, "autoreset_mode": self.autoreset_mode}
        self._mazes = Mazes(self.options, num_envs)
        self._seeded = np.zeros(num_envs, np.bool_)
        self._begun = False  # all of them
        self.single_observation_space = observation_space(self._mazes)
        self.single_action_space = gym.spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode in every maze, or in those that ``options["reset_mask"]`` names.

        ``seed=s`` seeds the mazes with s, s + 1, ...; a sequence gives each its own.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            mask = self._checked_mask(options["reset_mask"])
        for i, own in enumerate(self._seeds(seed)):
            if mask[i] and (own is not None or not self._seeded[i]):
                self._mazes.seed(i, own if own is not None else int(self.np_random.integers(2**63)))
                self._seeded[i] = True
        self._begun = bool(self._seeded.all())
        outcome = self._mazes.reset(mask)
        return outcome.observations, self._infos(outcome._replace(states=np.where(mask, outcome.states, 0)), mask)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step every maze."""
        actions = np.ascontiguousarray(actions, np.int64)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"expected {self.num_envs} actions, one per env, got an array of {actions.shape}")
        if np.bitwise_or.reduce(actions) & ~3:  # some action is negative, or above 3
            raise ValueError(
                "actions must be 0 (up), 1 (down), 2 (left) or 3 (right), "
                f"got values from {actions.min()} to {actions.max()}"
            )
        if not self._begun:
            raise gym.error.ResetNeeded("no episode has begun: call reset() first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._mazes.over.any():
            raise gym.error.ResetNeeded(
                f"the episodes of envs {np.flatnonzero(self._mazes.over)[:8].tolist()} are over: "
                'call reset(options={"reset_mask": terminated | truncated}) first'
            )
        outcome, final = self._mazes.step(actions, _MODES[self.autoreset_mode])
        infos = self._infos(outcome, np.ones(self.num_envs, np.bool_))
        if final is not None:
            infos |= self._final_infos(outcome.terminated | outcome.truncated, final)
        return outcome.observations, outcome.rewards, outcome.terminated, outcome.truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One RGB picture per maze."""
        if self.render_mode is None:
            return None
        return tuple(draw(self._mazes.contents(i)) for i in range(self.num_envs))

    def random_episodes(self) -> RandomEpisodes:
        """Random play of these mazes at compiled speed, for ``secret_rl.collect``."""
        return RandomEpisodes(self.options)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds, one per env, got {len(seed)}")
        return seed

    def _checked_mask(self, mask: object) -> NDArray[np.bool_]:
        if not (isinstance(mask, np.ndarray) and mask.shape == (self.num_envs,) and mask.dtype == np.bool_):
            raise ValueError(f'options["reset_mask"] must be a boolean array of shape ({self.num_envs},), got {mask!r}')
        if not mask.any():
            raise ValueError('options["reset_mask"] selects no env: leave the reset out, or set an entry')
        return mask

    def _infos(self, outcome: Outcome, mask: NDArray[np.bool_]) -> dict[str, Any]:
        return {
            "state": outcome.states,
            "_state": mask,
            "trigger_activated": outcome.activated,
            "_trigger_activated": mask.copy(),
        }

    def _final_infos(self, ended: NDArray[np.bool_], final: Outcome) -> dict[str, Any]:
        """What SAME_STEP replaced by a reset, in the layout of Gymnasium's own vector envs."""
        observations = np.full(self.num_envs, None, dtype=object)
        states = np.zeros(self.num_envs, np.int64)
        activated = np.zeros(self.num_envs, np.bool_)
        states[ended] = final.states
        activated[ended] = final.activated
        for i, observation in zip(np.flatnonzero(ended), final.observations, strict=True):
            observations[i] = observation
        return {
            "final_obs": observations,
            "_final_obs": ended,
            "final_info": {
                "state": states,
                "_state": ended.copy(),
                "trigger_activated": activated,
                "_trigger_activated": ended.copy(),
            },
            "_final_info": ended.copy(),
        }
