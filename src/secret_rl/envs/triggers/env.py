"""Triggers as a Gymnasium environment, single and vectorized."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from secret_rl.envs.tabular import TabularModel
from secret_rl.envs.triggers.mazes import DISABLED, NEXT_STEP, SAME_STEP, MazeContents, Mazes, RandomEpisodes
from secret_rl.envs.triggers.render import draw, text
from secret_rl.envs.triggers.rules import TriggersOptions
from secret_rl.envs.triggers.tabulate import tabulate

METADATA: dict[str, Any] = {
    "render_modes": ["rgb_array", "ansi"],  # "human" is Gymnasium's own wrapper around "rgb_array"
    "render_fps": 8,
    "annotations": ("trigger_activated",),  # info entries that collect keeps, beside the state
}
_MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}


class TriggersEnv(gym.Env[Any, Any]):
    """Activate every switch, then collect the prizes, which pay +1 after that and -1 before (paper, section 3).

    Actions: 0 up, 1 down, 2 left, 3 right. Observation: the ``(window, window, 3)`` crop around the agent with
    channels (wall, trigger, prize), or with ``window=None`` the full ``(size, size, 3)`` image with channels
    (agent, trigger, prize). ``info["state"]`` numbers the full state within the maze;
    ``info["trigger_activated"]`` says whether the step just taken activated a switch.

    The options are those of ``TriggersOptions``; ``render_mode`` is "rgb_array", "ansi" or None.

    >>> import gymnasium as gym, secret_rl
    >>> env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=7)
    >>> observation, info = env.reset()
    >>> observation.shape, info["trigger_activated"]
    ((3, 3, 3), False)
    """

    metadata = METADATA

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None and render_mode not in METADATA["render_modes"]:
            raise ValueError(f"render_mode must be one of {METADATA['render_modes']}, got {render_mode!r}")
        self.options = TriggersOptions(**options)
        self.render_mode = render_mode
        self._mazes = Mazes(self.options, 1)
        self._seeded = False
        self.observation_space = gym.spaces.Box(0, 1, self._mazes.shape, np.uint8)
        self.action_space = gym.spaces.Discrete(4)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002  Gymnasium's signature; there are none
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode: the first of ``seed``, or the one after the last."""
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._mazes.seed(0, seed if seed is not None else int(self.np_random.integers(2**63)))
            self._seeded = True
        outcome = self._mazes.reset(np.ones(1, np.bool_))
        return outcome.observations[0], {"state": int(outcome.states[0]), "trigger_activated": False}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move one cell, or stay where the boundary is in the way."""
        if self._mazes.over[0]:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        if not 0 <= action < 4:
            raise ValueError(f"action must be 0 (up), 1 (down), 2 (left) or 3 (right), got {action!r}")
        outcome, _ = self._mazes.step(np.array([action], np.int64), DISABLED)
        observation, reward, terminated, truncated, state, activated = (column[0] for column in outcome)
        info = {"state": int(state), "trigger_activated": bool(activated)}
        return observation, float(reward), bool(terminated), bool(truncated), info

    @property
    def contents(self) -> MazeContents:
        """Where the agent, the switches and the prizes are."""
        return self._mazes.contents(0)

    def random_episodes(self) -> RandomEpisodes:
        """Random play of these mazes at compiled speed, for ``secret_rl.collect``."""
        return RandomEpisodes(self.options)

    def tabular(self) -> TabularModel:
        """The maze of ``layout_seed`` as arrays over its states, for ``secret_rl.QLearning``."""
        return tabulate(self.options)

    def render(self) -> Any:
        """An RGB array, or a string, by ``render_mode``."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass e.g. render_mode="rgb_array" to gym.make')
            return None
        return text(self.contents) if self.render_mode == "ansi" else draw(self.contents)


class TriggersVectorEnv(gym.vector.VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """Behaves as ``SyncVectorEnv`` over ``TriggersEnv`` does, infos and seeds included, thousands of times faster.

    The options are those of ``TriggersOptions``, and ``num_envs``, ``autoreset_mode`` and ``render_mode``.

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
        self.single_observation_space = gym.spaces.Box(0, 1, self._mazes.shape, np.uint8)
        self.single_action_space = gym.spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode in every maze, or in those of the boolean array ``options["reset_mask"]``.

        ``seed=s`` seeds the mazes with s, s + 1, ...; a sequence gives each its own.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        n = self.num_envs
        mask = (options or {}).get("reset_mask", np.ones(n, np.bool_))
        if not (isinstance(mask, np.ndarray) and mask.shape == (n,) and mask.dtype == np.bool_):
            raise ValueError(f'options["reset_mask"] must be a boolean array of shape ({n},), got {mask!r}')
        seeds = range(seed, seed + n) if isinstance(seed, int) else [None] * n if seed is None else seed
        if len(seeds) != n:
            raise ValueError(f"expected {n} seeds, one per env, got {len(seeds)}")
        for i, own in enumerate(seeds):
            if mask[i] and (own is not None or not self._seeded[i]):
                self._mazes.seed(i, own if own is not None else int(self.np_random.integers(2**63)))
                self._seeded[i] = True
        self._begun = bool(self._seeded.all())
        outcome = self._mazes.reset(mask)
        return outcome.observations, _infos(np.where(mask, outcome.states, 0), outcome.activated, mask)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step every maze."""
        actions = np.ascontiguousarray(actions, np.int64)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"expected {self.num_envs} actions, one per env, got an array of {actions.shape}")
        if np.bitwise_or.reduce(actions) & ~3:  # some action is negative, or above 3
            got = f"got values from {actions.min()} to {actions.max()}"
            raise ValueError(f"actions must be 0 (up), 1 (down), 2 (left) or 3 (right), {got}")
        if not self._begun:
            raise gym.error.ResetNeeded("no episode has begun: call reset() first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._mazes.over.any():
            over, remedy = np.flatnonzero(self._mazes.over)[:8], 'reset(options={"reset_mask": terminated | truncated})'
            raise gym.error.ResetNeeded(f"the episodes of envs {over.tolist()} are over: call {remedy} first")
        outcome, final = self._mazes.step(actions, _MODES[self.autoreset_mode])
        infos = _infos(outcome.states, outcome.activated, np.ones(self.num_envs, np.bool_))
        if final is not None:  # what SAME_STEP replaced by a reset, in the layout of Gymnasium's own vector envs
            ended = outcome.terminated | outcome.truncated
            observations = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                observations[i] = final.observations[i]
            infos |= {"final_obs": observations, "_final_obs": ended}
            infos |= {"final_info": _infos(final.states, final.activated, ended.copy()), "_final_info": ended.copy()}
        return outcome.observations, outcome.rewards, outcome.terminated, outcome.truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One RGB picture per maze."""
        if self.render_mode is None:
            return None
        return tuple(draw(self._mazes.contents(i)) for i in range(self.num_envs))

    def random_episodes(self) -> RandomEpisodes:
        """Random play of these mazes at compiled speed, for ``secret_rl.collect``."""
        return RandomEpisodes(self.options)


def _infos(states: NDArray[np.int64], activated: NDArray[np.bool_], mask: NDArray[np.bool_]) -> dict[str, Any]:
    return {"state": states, "_state": mask, "trigger_activated": activated, "_trigger_activated": mask.copy()}
