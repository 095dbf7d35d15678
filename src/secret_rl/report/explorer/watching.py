"""What an episode looked like: a maze the page draws, frames, or plain numbers, whichever can be had."""

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.env import ACTIONS, KeysDoorsEnv
from secret_rl.envs.triggers.env import TriggersEnv
from secret_rl.report.explorer.pictures import Film, as_rgb, film, is_picture, sheet
from secret_rl.report.explorer.replaying import EnvLike, NoReplay, action_names, make_env, replay
from secret_rl.report.explorer.scenes import TRIGGERS_ACTIONS, grid_places, rooms_map, triggers_scene
from secret_rl.report.explorer.values import plain_values
from secret_rl.trajectories import Episode, Trajectories


class Watcher:
    """Looks at episodes of one data set; ``notes`` tell what could not be seen and why, each once."""

    def __init__(self, data: Trajectories, env: EnvLike | None, play_again: bool) -> None:
        self._data = data
        self._pictured = is_picture(data.observation_space)
        self.notes: list[str] = []
        self._env: gym.Env[Any, Any] | None = None
        self._level = 0
        if play_again:
            try:
                self._env = make_env(env, data.meta)
            except NoReplay as reason:
                self._note("Episodes are not played again", reason)

    def close(self) -> None:
        """Leave the environment."""
        if self._env is not None:
            self._env.close()

    @property
    def actions(self) -> list[str] | None:
        """Names of discrete actions, if known."""
        bare = None if self._env is None else self._env.unwrapped
        if isinstance(bare, TriggersEnv):
            return TRIGGERS_ACTIONS
        if isinstance(bare, KeysDoorsEnv):
            return list(ACTIONS)
        return action_names(self._env, self._data.action_space)

    def scene(self, episode: Episode) -> dict[str, Any]:
        """What takes next to no room: a maze, a map, or numbers; empty where only frames will do."""
        bare = None if self._env is None else self._env.unwrapped
        try:
            if isinstance(bare, TriggersEnv):
                assert self._env is not None
                return triggers_scene(self._env, replay(self._env, self._data, episode))
            if isinstance(bare, KeysDoorsEnv):
                return self._rooms(bare, episode)
        except NoReplay as reason:
            self._note("Mazes are not drawn", reason)
        if self._pictured or (bare is not None and self._renders()):
            return {}
        return {"values": plain_values(episode)}

    def frames(self, episode: Episode, limit: int, wanted: Sequence[int]) -> dict[str, Any]:
        """Frames within about ``limit`` bytes, those ``wanted`` (counts of steps) before others."""
        seen, places = self._film(episode)
        if seen is None:
            return {"values": plain_values(episode)}
        found, self._level = sheet(seen, limit, wanted, max(0, self._level - 1))
        return {"frames": found} if places is None else {"frames": found, "places": places}

    def _renders(self) -> bool:
        return self._env is not None and self._env.render_mode == "rgb_array"

    def _film(self, episode: Episode) -> tuple[Film | None, dict[str, Any] | None]:
        """Pictures that are stored, unless they are of an environment that draws better ones."""
        stored = self._pictured and min(self._data.observation_space.shape[:2]) >= 32  # type: ignore[index]
        if self._renders() and not stored:
            try:
                assert self._env is not None
                positions: list[tuple[int, int]] = []
                seen = film(self._rendered(episode, positions))
                return seen, grid_places(self._env, positions)
            except NoReplay as reason:
                self._note("Some episodes are not shown as the environment draws them", reason)
        return (film(self._observed(episode)) if self._pictured else None), None

    def _rendered(self, episode: Episode, positions: list[tuple[int, int]]) -> Iterator[NDArray[np.uint8]]:
        assert self._env is not None
        for _ in replay(self._env, self._data, episode):
            frame = self._env.render()
            if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
                raise NoReplay(f"render gave {type(frame).__name__}, expected an array of rows, columns and RGB")
            where = getattr(self._env.unwrapped, "agent_pos", None)
            if where is not None:
                positions.append((int(where[0]), int(where[1])))
            yield frame

    def _observed(self, episode: Episode) -> Iterator[NDArray[np.uint8]]:
        space = self._data.observation_space
        yield from as_rgb(space, np.asarray(episode.observations))
        last = episode.final_observation
        yield as_rgb(space, np.asarray(episode.observations[-1] if last is None else last)[None])[0]  # type: ignore[index]

    def _rooms(self, env: KeysDoorsEnv, episode: Episode) -> dict[str, Any]:
        """The map alone is made again: the frames are there, and playing in 3D takes long."""
        if "seed" not in episode.episode_annotations:
            raise NoReplay("the data does not hold the seeds of its episodes")
        try:
            env.reset(seed=int(episode.episode_annotations["seed"]))
        except Exception as failed:  # the engine is another program
            raise NoReplay(f"the engine failed ({type(failed).__name__}: {failed})") from failed
        found = rooms_map(env.puzzle, episode)
        if found is None:
            raise NoReplay("the episodes are of other maps, or hold no position, key_picked and door_opened")
        return found

    def _note(self, what: str, reason: NoReplay) -> None:
        note = f"{what}: {reason}."
        if note not in self.notes and len(self.notes) < 5:
            self.notes.append(note)
