"""Credit that is learned beside an agent of Stable-Baselines3, from its own episodes."""

from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage

from secret_rl.experimental import OnlineSecret, Refit
from secret_rl.sb3.envs import check_discount, is_shaped
from secret_rl.sb3.shaping import layers
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

    With a replay buffer, every new potential shapes everything that is stored anew::

        train(DQN, "secret_rl/Triggers-v0", 60_000, replay_buffer_class=ShapedReplayBuffer,
              callback=OnlineSecretCallback(OnlineSecret("learned", view=CenteredView(3))))

    Without one, each environment takes a new potential when its next episode begins::

        changing = ChangingPotential(NoPotential())
        train(PPO, "secret_rl/Triggers-v0", 60_000, shaping=shape_with(changing),
              callback=OnlineSecretCallback(OnlineSecret(), changing=changing))

    Infos are not stored in a replay buffer, so a table over ``info["state"]`` needs the second way. Checkpoints of
    ``train`` do not keep what was learned of credit.

    Args:
        online: When and how credit is learned; ``OnlineSecret()`` by default.
        changing: The potential that the environments are shaped with, for agents without a replay buffer.
        verbose: 1 prints every refit.
    """

    def __init__(
        self, online: OnlineSecret | None = None, *, changing: ChangingPotential | None = None, verbose: int = 0
    ) -> None:
        super().__init__(verbose)
        self.online, self.changing = online or OnlineSecret(), changing
        self._episodes: list[EpisodeBuilder] = []
        self._left_at: Any = None  # what was observed when learning ended

    @property
    def history(self) -> list[Refit]:
        """Every time that credit was due to be learned again."""
        return self.online.history

    def _on_training_start(self) -> None:
        self._check()
        envs = self.training_env
        self.online.watch(envs.observation_space, envs.action_space)
        if self.online.present is not None:
            self._install(self.online.present)
        if self._left_at is None or self._left_at is not self.model._last_obs:  # new episodes
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
            self._install(new)
        if len(self.history) > known:
            self.logger.record("secret/refits", sum(refit.accepted for refit in self.history))
            if self.verbose:
                print(self.history[-1])

    def _on_training_end(self) -> None:
        self._left_at = self.model._last_obs

    def _install(self, potential: Potential) -> None:
        """Shape with a potential from now on, unless it is there already."""
        buffer: Any = getattr(self.model, "replay_buffer", None)
        if buffer is not None and getattr(buffer.shaping, "potential", None) is not potential:
            gamma: float = self.model.gamma  # type: ignore[attr-defined]
            before = buffer.shaping
            buffer.relabel(ReplayShaping(potential, gamma) if before is None else before.clone_with(potential))
        if self.changing is not None and self.changing.present is not potential:
            self.changing.swap(potential)

    def _check(self) -> None:
        """An error unless new potentials can reach the agent."""
        buffer, envs = getattr(self.model, "replay_buffer", None), self.training_env
        shaped = is_shaped(envs)
        if buffer is not None and not hasattr(buffer, "relabel"):
            raise ValueError(f"the replay buffer, {type(buffer).__name__}, cannot shape rewards anew: {_HOW}")
        if buffer is None and self.changing is None:
            raise ValueError(f"new potentials cannot reach the agent: {_HOW}")
        if shaped != (self.changing is not None):
            raise ValueError(f"the environments are {'' if shaped else 'not '}shaped: {_HOW}")
        check_discount(envs, self.model.gamma)  # type: ignore[attr-defined]
        if buffer is not None and self.online.needs_states:
            raise ValueError(
                f'potential="{self.online.potential}" is a table over info["state"], which a replay buffer does not '
                'keep: use potential="learned", or potential_options={"state": ObservationKey()} where observations do'
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
