"""Credit that is learned beside an agent of Stable-Baselines3, from its own episodes."""

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, VecTransposeImage

from secret_rl.experimental import OnlineSecret, Refit
from secret_rl.sb3.envs import layers
from secret_rl.shaping import ChangingPotential, Potential, ReplayShaping
from secret_rl.trajectories.building import EpisodeBuilder
from secret_rl.trajectories.nested import map_arrays

_HOW = (
    "for DQN and other agents with a replay buffer, leave the environments unshaped and give "
    "replay_buffer_class=ShapedReplayBuffer; for PPO and other agents without one, shape the environments with "
    "changing = ChangingPotential(NoPotential()), shaping=shape_with(changing), and give the callback changing=changing"
)


class OnlineSecretCallback(BaseCallback):
    """Learns credit from the episodes of an agent while it learns, and shapes its rewards with it.

    With a replay buffer, a ``ShapedReplayBuffer``: every new potential shapes everything that is stored anew, so that
    the buffer never holds two shapings::

        train(DQN, "secret_rl/Triggers-v0", 60_000, replay_buffer_class=ShapedReplayBuffer,
              callback=OnlineSecretCallback(OnlineSecret("learned", view=CenteredView(3))))

    Without one, as PPO: environments shaped with ``changing``, in which each takes a new potential when its next
    episode begins::

        changing = ChangingPotential(NoPotential())
        train(PPO, "secret_rl/Triggers-v0", 60_000, shaping=shape_with(changing),
              callback=OnlineSecretCallback(OnlineSecret(), changing=changing))

    Fits happen between rollouts, in the same process. Infos are not stored in a replay buffer, so a table over
    ``info["state"]`` needs the second way.

    Args:
        online: When and how credit is learned; ``OnlineSecret()`` by default.
        changing: The potential that the environments are shaped with, for agents without a replay buffer.
        folder: Keeps what was learned of credit whenever ``learn`` ends, for trainings with ``checkpoint_every``: give
            another one than ``train``'s, and repeating the call goes on as if nothing had happened.
        verbose: 1 prints every refit.
    """

    def __init__(
        self,
        online: OnlineSecret | None = None,
        *,
        changing: ChangingPotential | None = None,
        folder: str | Path | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if changing is not None and not isinstance(changing, ChangingPotential):
            raise TypeError(f"changing must be a ChangingPotential, got {changing!r}")
        self.online = online or OnlineSecret()
        self.changing = changing
        self.folder = None if folder is None else Path(folder)
        self._episodes: list[EpisodeBuilder] = []
        self._left_at: Any = None  # what was observed when learning ended

    @property
    def history(self) -> list[Refit]:
        """Every time that credit was due to be learned again."""
        return self.online.history

    def _on_training_start(self) -> None:
        buffer, envs = getattr(self.model, "replay_buffer", None), self.training_env
        _check(buffer, envs, self.changing, getattr(self.model, "gamma", None), self.online)
        restored = self.folder is not None and self.num_timesteps > 0 and not self.online.seen
        if restored:
            self.online.load(self.folder, self.num_timesteps)  # type: ignore[arg-type]
        self.online.watch(envs.observation_space, envs.action_space)
        present = self.online.present
        if present is not None and self._installed() is not present:
            self._install(present, relabel=not restored)  # what is stored was read back with its shaping
        if self._left_at is None or self._left_at is not self.model._last_obs:  # new episodes
            if self.folder is not None and self.changing is not None:
                # They began before the potential was read back; so they begin again, also where nothing was.
                self.model._last_obs = envs.reset()  # type: ignore[assignment]
            observations, infos = self.model._last_obs, envs.unwrapped.reset_infos
            self._episodes = [EpisodeBuilder(_row(observations, i), infos[i]) for i in range(envs.num_envs)]

    def _on_step(self) -> bool:
        step = self.locals
        actions = step.get("buffer_actions", step.get("clipped_actions", step["actions"]))  # as potentials see them
        normaliser = self.model.get_vec_normalize_env()
        rewards = step["rewards"] if normaliser is None else normaliser.get_original_reward()
        ended, spaces = np.asarray(step["dones"]), (self.training_env.observation_space, self.training_env.action_space)
        actions = np.asarray(actions).reshape(len(ended), *(spaces[1].shape or ()))
        for i, (info, received, over) in enumerate(zip(step["infos"], rewards.tolist(), ended.tolist(), strict=True)):
            seen = info["terminal_observation"] if over else _row(step["new_obs"], i)
            truncated = over and bool(info.get("TimeLimit.truncated", False))
            reward = float(info.get("env_reward", received))
            self._episodes[i].step(actions[i], seen, reward, over and not truncated, truncated, info)
            if over:
                self.online.add(self._episodes[i].finish(*spaces))
                first = self.training_env.unwrapped.reset_infos[i]
                self._episodes[i] = EpisodeBuilder(_row(step["new_obs"], i), first)
        return True

    def _on_rollout_end(self) -> None:
        # Not within a rollout: there the newest transition is not yet in the replay buffer.
        known = len(self.history)
        new = self.online.update()
        if new is not None:
            self._install(new, relabel=True)
        if len(self.history) > known:
            self.logger.record("secret/refits", sum(refit.accepted for refit in self.history))
            if self.history[-1].history_gain is not None:
                self.logger.record("secret/history_gain", self.history[-1].history_gain)
            if self.verbose:
                print(self.history[-1])

    def _on_training_end(self) -> None:
        self._left_at = self.model._last_obs
        if self.folder is not None:
            self.online.save(self.folder, self.num_timesteps)

    def _installed(self) -> Potential | None:
        if self.changing is not None:
            return self.changing.present
        return getattr(self.model.replay_buffer.shaping, "potential", None)  # type: ignore[attr-defined]

    def _install(self, potential: Potential, *, relabel: bool) -> None:
        buffer: Any = getattr(self.model, "replay_buffer", None)
        if buffer is not None:
            gamma: float = self.model.gamma  # type: ignore[attr-defined]
            before = buffer.shaping
            shaping = ReplayShaping(potential, gamma) if before is None else before.clone_with(potential)
            if relabel:
                buffer.relabel(shaping)
            else:
                buffer.shaping = shaping
        if self.changing is not None:
            self.changing.swap(potential)


def _check(
    buffer: Any, envs: VecEnv, changing: ChangingPotential | None, gamma: float | None, online: OnlineSecret
) -> None:
    """An error unless new potentials can reach the agent."""
    shaped = envs.has_attr("shaping_discount")
    if buffer is not None and not hasattr(buffer, "relabel"):
        raise ValueError(f"the replay buffer, {type(buffer).__name__}, keeps rewards that it cannot shape anew: {_HOW}")
    if buffer is None and changing is None:
        raise ValueError(f"new potentials cannot reach the agent: {_HOW}")
    if changing is not None and not shaped:
        raise ValueError("changing is given, but the environments are not shaped: give shaping=shape_with(changing)")
    if changing is None and shaped:
        raise ValueError(f"the environments are shaped, and the replay buffer would be too: {_HOW}")
    if (
        changing is not None
        and gamma is not None
        and any(discount not in (gamma, None) for discount in envs.get_attr("shaping_discount"))
    ):
        raise ValueError(f"the environments are shaped with another discount than the agent's, {gamma}: use the same")
    if buffer is not None and online.needs_states:
        raise ValueError(
            f'potential="{online.potential}" is a table over info["state"], which a replay buffer does not keep: use '
            'potential="learned", or potential_options={"state": Observed()} where observations tell states apart'
        )
    for layer in layers(envs):
        if isinstance(layer, VecTransposeImage) or (isinstance(layer, VecNormalize) and layer.norm_obs):
            raise ValueError(
                f"{type(layer).__name__} changes what the agent observes, and credit is learned on what the "
                "environments give: use images with channels first, and VecNormalize(norm_obs=False)"
            )


def _row(observations: Any, i: int) -> Any:
    """What one environment observed; of a ``Discrete`` space a number."""
    return map_arrays(lambda array: np.asarray(array)[i], observations)
