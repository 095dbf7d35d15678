"""The Gymnasium face of Triggers."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.tabular import TabularModel
from secret_rl.envs.triggers.mazes import DISABLED, MazeContents, Mazes
from secret_rl.envs.triggers.options import TriggersOptions
from secret_rl.envs.triggers.render import Window, draw, text
from secret_rl.envs.triggers.rollouts import RandomEpisodes
from secret_rl.envs.triggers.tabulate import tabulate

METADATA: dict[str, Any] = {
    "render_modes": ["rgb_array", "human", "ansi"],
    "render_fps": 8,
    "annotations": ("trigger_activated",),  # info entries that collect keeps, beside the state
}


class TriggersEnv(gym.Env[Any, Any]):
    """Activate every switch, then collect the prizes, which pay +1 after that and -1 before (paper, section 3).

    Actions: 0 up, 1 down, 2 left, 3 right. Observation: the ``(window, window, 3)`` crop around the agent with
    channels (wall, trigger, prize), or with ``window=None`` the full ``(size, size, 3)`` image with channels
    (agent, trigger, prize). ``info["state"]`` names the full state within the maze;
    ``info["trigger_activated"]`` tells whether the step just taken activated a switch.

    The options are those of ``TriggersOptions``.

    >>> import gymnasium as gym, secret_rl
    >>> env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=7)
    >>> observation, info = env.reset()
    >>> observation.shape, info["trigger_activated"]
    ((3, 3, 3), False)
    """

    metadata = METADATA

    def __init__(
        self,
        size: int = 8,
        triggers: int = 3,
        prizes: int = 1,
        window: int | None = 3,
        inverted: bool = False,
        layout_seed: int | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in METADATA["render_modes"]:
            raise ValueError(f"render_mode must be one of {METADATA['render_modes']}, got {render_mode!r}")
        self.options = TriggersOptions(size, triggers, prizes, window, inverted, layout_seed, max_steps)
        self.render_mode = render_mode
        self._mazes = Mazes(self.options, 1)
        self._seeded = False
        self._window: Window | None = None
        self.observation_space = observation_space(self._mazes)
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
        if self.render_mode == "human":
            self.render()
        return outcome.observations[0], _info(outcome.states[0], False)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move one cell, or stay where the boundary is in the way."""
        if self._mazes.over[0]:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        if not 0 <= action < 4:
            raise ValueError(f"action must be 0 (up), 1 (down), 2 (left) or 3 (right), got {action!r}")
        outcome, _ = self._mazes.step(np.array([action], np.int64), DISABLED)
        if self.render_mode == "human":
            self.render()
        return (
            outcome.observations[0],
            float(outcome.rewards[0]),
            bool(outcome.terminated[0]),
            bool(outcome.truncated[0]),
            _info(outcome.states[0], outcome.activated[0]),
        )

    @property
    def contents(self) -> MazeContents:
        """Where the agent, the switches and the prizes are."""
        return self._mazes.contents(0)

    def random_episodes(self) -> RandomEpisodes:
        """Random play of these mazes at compiled speed, for ``secret_rl.collect``."""
        return RandomEpisodes(self.options)

    def tabular(self) -> TabularModel:
        """The maze of ``layout_seed`` as arrays over its states, for ``secret_rl.QLearning`` and ``learn_many``."""
        return tabulate(self.options)

    def render(self) -> Any:
        """An RGB array, a string, or a frame in a window, by ``render_mode``."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass e.g. render_mode="rgb_array" to gym.make')
            return None
        if self.render_mode == "ansi":
            return text(self.contents)
        picture = draw(self.contents)
        if self.render_mode == "rgb_array":
            return picture
        if self._window is None:
            self._window = Window(METADATA["render_fps"])
        self._window.show(picture)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()


def observation_space(mazes: Mazes) -> gym.spaces.Box:
    """Channels of zeros and ones."""
    return gym.spaces.Box(0, 1, mazes.shape, np.uint8)


def _info(state: Any, activated: Any) -> dict[str, Any]:
    return {"state": int(state), "trigger_activated": bool(activated)}
