"""What happens while an agent learns: evaluations, the curve they make, and credit learned along the way."""

import inspect
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, VecTransposeImage

from secret_rl.experimental import OnlineSecret, Refit
from secret_rl.files import FileFormat, finite_number, whole_number
from secret_rl.progress import Tick
from secret_rl.shaping import ChangingPotential, Potential, ReplayShaping
from secret_rl.trajectories.building import EpisodeBuilder
from secret_rl.trajectories.nested import map_arrays

_FORMAT = FileFormat("secret-rl deep learning curve", remedy="restore it or train again")
_SHAPES = {
    "evaluation": {"steps": 1, "returns": 2, "discounted": 2, "lengths": 2},
    "training episode": {
        "training_steps": 1, "training_returns": 1, "training_shaped_returns": 1, "training_lengths": 1,
    },
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DeepCurve:
    """Returns of an agent when it was evaluated, and in the episodes it learned from; unshaped unless named so."""

    steps: NDArray[np.int64]
    """(evaluations,) environment steps the agent had learned from."""
    returns: NDArray[np.float64]
    """(evaluations, episodes) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(evaluations, episodes) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(evaluations, episodes) steps of each episode."""
    training_steps: NDArray[np.int64]
    """(training episodes,) environment steps taken when the episode ended."""
    training_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards."""
    training_shaped_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards the agent received, shaping included."""
    training_lengths: NDArray[np.int64]
    """(training episodes,) steps of each episode."""
    seed: int
    discount: float

    def __post_init__(self) -> None:
        for kind, wanted in _SHAPES.items():
            shapes = {name: np.shape(getattr(self, name)) for name in wanted}
            if len({shape[0] if shape else None for shape in shapes.values()}) > 1:
                raise ValueError(f"expected one entry per {kind} in each of {shapes}")
            for name, dimensions in wanted.items():
                if len(shapes[name]) != dimensions:
                    raise ValueError(f"{name} must have {dimensions} dimensions, got shape {shapes[name]}")

    def __len__(self) -> int:
        return len(self.steps)

    def area(self, values: str = "returns") -> float:
        """Mean of ``returns`` or ``discounted`` over all of training: the area under the curve by its length."""
        if values not in ("returns", "discounted"):
            raise ValueError(f'values must be "returns" or "discounted", got {values!r}')
        if not len(self):
            raise ValueError("the curve has no evaluation: train with evaluate_every other than 0")
        means = getattr(self, values).mean(1)
        span = self.steps[-1] - self.steps[0]
        trapezoids = np.diff(self.steps) * (means[1:] + means[:-1]) / 2
        return float(trapezoids.sum() / span) if span else float(means.mean())

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole or not at all."""
        numbers = {"seed": int(self.seed), "discount": float(self.discount)}
        arrays = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in numbers}
        return _FORMAT.write_arrays(path, numbers, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "DeepCurve":
        """Read what ``save`` wrote."""
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(Path(path)):
            for name, array in arrays.items():
                if array.dtype.kind not in "iuf":
                    raise ValueError(f"{name} is {array.dtype}")
            seed, discount = whole_number(about["seed"], high=2**64), finite_number(about["discount"])
            return cls(**arrays, seed=seed, discount=discount)


class Outcomes(NamedTuple):
    """Unshaped results of some episodes."""

    returns: NDArray[np.float64]
    """(episodes,) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(episodes,) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(episodes,)"""


def evaluate(
    model: BaseAlgorithm, envs: VecEnv, episodes: int, *, discount: float, seed: int, epsilon: float = 0.0
) -> Outcomes:
    """Play episodes, unshaped; the global random generators are left alone.

    Each environment plays its share whatever the others do: taking the first ones that end would favour short ones.

    Args:
        model: Its actions are the best known ones; it may be recurrent, or take action masks.
        envs: Where to play.
        episodes: How many.
        discount: Of the discounted returns.
        seed: Of the environments and of random actions.
        epsilon: Probability of a random action.
    """
    n = envs.num_envs
    share = (episodes + np.arange(n)) // n
    rng = np.random.default_rng(seed)
    space: gym.Space[Any] = deepcopy(envs.action_space)  # training samples its actions from the other
    space.seed(int(rng.integers(2**31)))
    normaliser = model.get_vec_normalize_env()
    masked = "action_masks" in inspect.signature(model.predict).parameters and envs.has_attr("action_masks")
    envs.seed(int(rng.integers(2**31 - n)))
    observations: Any = envs.reset()
    state, started = None, np.ones(n, np.bool_)  # the state of recurrent agents
    returns, discounted, factors = np.zeros(n), np.zeros(n), np.ones(n)
    lengths, played = np.zeros(n, np.int64), np.zeros(n, np.int64)
    results: list[tuple[int, int, float, float, int]] = []
    while (played < share).any():
        seen = observations if normaliser is None else normaliser.normalize_obs(observations)
        masks = {"action_masks": np.stack(envs.env_method("action_masks"))} if masked else {}
        actions, state = model.predict(seen, state=state, episode_start=started, deterministic=True, **masks)
        actions = np.array(actions)
        for i in np.flatnonzero(rng.random(n) < epsilon).tolist():
            actions[i] = space.sample(mask=masks["action_masks"][i].astype(np.int8) if masked else None)
        observations, rewards, started, infos = envs.step(actions)
        # Also environments that arrive shaped are evaluated unshaped.
        unshaped = np.array([info.get("env_reward", r) for info, r in zip(infos, rewards.tolist(), strict=True)])
        returns += unshaped
        discounted += factors * unshaped
        factors *= discount
        lengths += 1
        for i in np.flatnonzero(started).tolist():
            if played[i] < share[i]:
                results.append((int(played[i]), i, returns[i], discounted[i], int(lengths[i])))
            played[i] += 1
            returns[i], discounted[i], factors[i], lengths[i] = 0, 0, 1, 0
    results.sort()  # by environment, not by who was quicker
    _, _, *columns = zip(*results, strict=True)
    return Outcomes(np.array(columns[0]), np.array(columns[1]), np.array(columns[2], np.int64))


class CurveCallback(BaseCallback):
    """Fills a curve: an evaluation whenever another ``every`` steps have passed, and each training episode."""

    def __init__(
        self, total: int, gamma: float, seed: int, envs: VecEnv | None, every: int, episodes: int, epsilon: float,
        tick: Tick,
    ) -> None:  # fmt: skip
        super().__init__()
        self._total, self._gamma, self._seed = total, gamma, seed
        self._envs, self._every, self._episodes, self._epsilon = envs, every, episodes, epsilon
        self._tick = tick
        self._evaluations: list[tuple[int, Any, Any, Any]] = []
        self._trained: list[tuple[int, float, float, int]] = []
        self._message = ""

    def evaluate(self) -> None:
        """Evaluate what has been learned so far; once per number of steps."""
        step = self.model.num_timesteps
        if self._envs is None or (self._evaluations and self._evaluations[-1][0] == step):
            return
        # Not a stream that goes on: an evaluation does not depend on those before it, nor training on evaluations.
        seed = int(np.random.SeedSequence([self._seed, 1, step]).generate_state(1)[0])
        outcomes = evaluate(
            self.model, self._envs, self._episodes, discount=self._gamma, seed=seed, epsilon=self._epsilon
        )
        self._evaluations.append((step, *outcomes))
        mean = float(outcomes.returns.mean())
        self._message = f"evaluated: {mean:.2f}"
        self.model.logger.record("secret/evaluation_return", mean)
        self.model.logger.dump(step)

    def curve(self) -> DeepCurve:
        """The curve so far."""
        steps, *outcomes = zip(*self._evaluations, strict=True) if self._evaluations else ([],) * 4
        returns, discounted, lengths = (np.reshape(part, (len(steps), -1 if len(steps) else 0)) for part in outcomes)
        ends, unshaped, shaped, taken = zip(*self._trained, strict=True) if self._trained else ([],) * 4
        return DeepCurve(
            np.array(steps, np.int64), returns, discounted, lengths.astype(np.int64),
            np.array(ends, np.int64), np.array(unshaped, np.float64), np.array(shaped, np.float64),
            np.array(taken, np.int64), self._seed, self._gamma,
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
        self._unshaped_sums, self._shaped_sums = np.zeros(envs.num_envs), np.zeros(envs.num_envs)
        newest = self._trained[-self.model._stats_window_size :]
        self._window = deque((shaped for _, _, shaped, _ in newest), self.model._stats_window_size)
        self._next = (self.num_timesteps // self._every + 1) * self._every if self._every else self._total

    def _on_step(self) -> bool:
        if "infos" in self.locals:
            self._record(self.locals["infos"], np.asarray(self.locals["dones"]))
        if self._next <= self.num_timesteps < self._total:  # the last one comes after the last update
            self.evaluate()
            self._next = (self.num_timesteps // self._every + 1) * self._every
        self._tick(self._message, min(self.num_timesteps, self._total), self._total)
        return True

    def _record(self, infos: list[dict[str, Any]], ended: Any) -> None:
        if self._shaped:
            self._unshaped_sums += [info["env_reward"] for info in infos]
            self._shaped_sums += [info["env_reward"] + info["shaping_reward"] for info in infos]
        for i in np.flatnonzero(ended).tolist():
            episode = infos[i].get("episode")
            if episode is None:  # a monitor of the user's own that reports nothing
                continue
            unshaped = float(self._unshaped_sums[i]) if self._shaped else float(episode["r"])
            shaped = float(self._shaped_sums[i]) if self._shaped else unshaped
            self._trained.append((self.num_timesteps, unshaped, shaped, int(episode["l"])))
            self._window.append(shaped)
            self.model.logger.record("secret/shaped_return_mean", float(np.mean(self._window)))
        self._unshaped_sums[ended] = self._shaped_sums[ended] = 0


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
            before = buffer.shaping
            gamma: float = self.model.gamma  # type: ignore[attr-defined]
            known = isinstance(before, ReplayShaping)
            shaping = before.clone_with(potential) if known else ReplayShaping(potential, gamma)
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
    if changing is not None and gamma is not None and any(d != gamma for d in envs.get_attr("shaping_discount")):
        raise ValueError(f"the environments are shaped with another discount than the agent's, {gamma}: use the same")
    if buffer is not None and online.needs_states:
        raise ValueError(
            f'potential="{online.potential}" is a table over info["state"], which a replay buffer does not keep: use '
            'potential="learned", or potential_options={"state": Observed()} where observations tell states apart'
        )
    layer = envs
    while isinstance(layer, VecEnvWrapper):
        if isinstance(layer, VecTransposeImage) or (isinstance(layer, VecNormalize) and layer.norm_obs):
            raise ValueError(
                f"{type(layer).__name__} changes what the agent observes, and credit is learned on what the "
                "environments give: use images with channels first, and VecNormalize(norm_obs=False)"
            )
        layer = layer.venv


def _row(observations: Any, i: int) -> Any:
    """What one environment observed; of a ``Discrete`` space a number."""
    return map_arrays(lambda array: np.asarray(array)[i], observations)
