"""Tabular Q-learning on any Gymnasium environment with discrete actions and hashable states.

An environment that is given as arrays (``secret_rl.envs.tabular``) is learned by a compiled loop, ``_play``. Any other
is stepped (``PlainRun``), with the same random numbers, choices and updates.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numba import int64, njit, uint32, uint64
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.display import curves_html
from secret_rl.envs.tabular import TabularModel, TabularShaping, check_task, tabular_of
from secret_rl.envs.triggers.rules import WEYL, mix
from secret_rl.progress import Show, progress_bar

StateOf = Callable[[Any, Mapping[str, Any]], Hashable]
_RECENT = 100  # episodes in the mean return that the progress bar shows
_STEPS_AT_A_TIME = 1 << 23  # of compiled code between two updates of the progress bar, or chances for Ctrl-C
_STREAM = uint64(0x2545F4914F6CDD1D)  # an agent's numbers are independent of the mazes of the same seed
_HALF, _LOWER = uint64(32), uint64(2**32 - 1)


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """What an agent gained while it learned, and the options it learned with."""

    returns: NDArray[np.float64]
    """(episodes,) discounted sum of the unshaped rewards of each episode."""
    lengths: NDArray[np.int64]
    """(episodes,) steps of each episode."""
    seed: int
    learning_rate: float
    epsilon: float
    discount: float

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        return f"LearningCurve({len(self):,} episodes, mean return {self.returns.mean():.3f}, seed {self.seed})"

    def _repr_html_(self) -> str:
        return curves_html({"return": (np.arange(1, len(self) + 1), self.returns)}, "episodes", repr(self))


@dataclass(frozen=True, kw_only=True)
class QLearning:
    """Watkins' Q-learning; the defaults are the paper's (appendix A), and a discount of 0.99.

    Values start at 0, ties are broken at random, and actions are epsilon-greedy. The target of a step is
    reward + discount * max Q(next state), and the reward alone where the episode terminated, but not at a time limit.

    >>> import gymnasium as gym, secret_rl
    >>> env = gym.make("secret_rl/Triggers-v0", size=5, triggers=1, layout_seed=3)
    >>> agent = QLearning(seed=1).learn(env, episodes=500)
    >>> bool(agent.curve.returns[-100:].mean() > agent.curve.returns[:100].mean())
    True
    >>> observation, info = env.reset()
    >>> bool(agent.act(observation, info) == agent.q[info["state"]].argmax())
    True
    """

    learning_rate: float = 0.1
    epsilon: float = 0.1
    """Share of steps that explore: an action drawn from all."""
    discount: float = 0.99
    """Must be that of the shaping, where rewards are shaped."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("learning_rate", "(0, 1]"), ("epsilon", "[0, 1]"), ("discount", "(0, 1]")):
            value = getattr(self, name)
            if isinstance(value, bool) or not hasattr(value, "__float__"):
                raise TypeError(f"{name} must be a number in {allowed}, got {value!r}")
            if not (0 < value <= 1 or (allowed[0] == "[" and value == 0)):  # NaN, too
                raise ValueError(f"{name} must lie in {allowed}, got {value!r}")
        check_integer("seed", self.seed, 0, 2**64 - 1)

    def learn(
        self, env: gym.Env[Any, Any], episodes: int, *, progress: Show = None, state: StateOf | None = None
    ) -> "TabularAgent":
        """Learn from scratch for so many episodes; the returns in ``curve`` are discounted and never shaped.

        Where the environment has arrays (``tabular()``), and its wrappers change nothing or shape rewards, the learner
        is compiled and does not step it. Otherwise it does, with the same result, more slowly.

        Args:
            env: Its actions must be ``Discrete``.
            episodes: How many to play.
            progress: Show a progress bar; by default if the terminal is interactive. A function of (what is going
                on, episodes done, of how many) is called instead.
            state: A function of (observation, info) that gives the state, which must be hashable. By default
                ``info["state"]``, and where there is none a ``Discrete`` observation.
        """
        episodes = check_integer("episodes", episodes, 1)
        arrays = tabular_of(env) if state is None else None
        run = PlainRun(env, self, state) if arrays is None else CompiledRun(*arrays, self)
        returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
        with progress_bar(progress, "episodes", episodes) as tick:
            for first in range(0, episodes, run.at_a_time):
                last = min(first + run.at_a_time, episodes)
                run.play(returns[first:last], lengths[first:last])
                recent = returns[max(0, last - _RECENT) : last]
                tick(f"return {recent.mean():.2f} over {len(recent)} episodes", last, episodes)
        curve = LearningCurve(returns=returns, lengths=lengths, **asdict(self))
        return TabularAgent(run.values, curve, run.state_of, int(env.action_space.start))  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class TabularAgent:
    """What ``QLearning.learn`` returns: the values that were learned, and the learning curve."""

    q: dict[Hashable, NDArray[np.float64]]
    """State -> (actions,) expected return; with shaped rewards, less the potential of the state."""
    curve: LearningCurve
    """Return and length of each episode of training."""
    state_of: StateOf
    """Gives the state of (observation, info)."""
    first_action: int = 0
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False)

    def __repr__(self) -> str:
        return f"TabularAgent({len(self.q):,} states, {self.curve!r})"

    def act(self, observation: Any, info: Mapping[str, Any] | None = None) -> int:
        """An action of the highest value, drawn where several have it; in a state never met, any action.

        Args:
            observation: What the environment returned.
            info: What it returned beside; needed where the state is in ``info["state"]``.
        """
        values = self.q.get(self.state_of(observation, info or {}))
        if values is None:
            values = np.zeros_like(next(iter(self.q.values())))
        return self.first_action + int(self._rng.choice(np.flatnonzero(values == values.max())))


def _check_discount(shaping: float | None, own: float) -> None:
    """Raise where rewards were shaped for another discount: that would change which policies are best."""
    if shaping is not None and shaping != own:
        use = f"give both the same, e.g. QLearning(discount={shaping})"
        raise ValueError(f"the rewards are shaped with discount {shaping}, but the agent's is {own}: {use}")


def _state_in_info(_: Any, info: Mapping[str, Any]) -> Hashable:
    if "state" in info:
        return info["state"]  # type: ignore[no-any-return]
    raise ValueError(
        f'the state is in info["state"], but info has {sorted(map(str, info))}: the environment must give it at every '
        "step, act(observation, info) needs it, or pass state= to learn, a function of (observation, info)"
    )


class PlainRun:
    """One learner that steps an environment, some episodes at a time."""

    at_a_time = 1  # episodes between two updates of the progress bar

    def __init__(self, env: gym.Env[Any, Any], agent: QLearning, state: StateOf | None = None) -> None:
        if not isinstance(env, gym.Env):
            hint = ': make it first, gym.make("...")' if isinstance(env, str) else ""
            raise TypeError(f"env must be one Gymnasium environment, got {env!r}{hint}")
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise TypeError(f"tabular Q-learning needs Discrete actions, but env has {env.action_space}")
        layer: Any = env
        while isinstance(layer, gym.Wrapper):
            _check_discount(getattr(layer, "shaping_discount", None), agent.discount)
            layer = layer.env
        self.state_of: Any = state  # where it is None, known after the first reset
        self._env = env
        self._env_seed: int | None = int(agent.seed)  # for the first reset; the environment goes on from there
        self._actions, self._first_action = int(env.action_space.n), int(env.action_space.start)
        self._numbers = _numbers(agent, self._actions)
        self._step = 0
        self._rows: dict[Hashable, int] = {}
        self._q = np.zeros((64, self._actions))

    @property
    def values(self) -> dict[Hashable, NDArray[np.float64]]:
        """State -> (actions,) what has been learned so far."""
        return {state: self._q[row].copy() for state, row in self._rows.items()}

    def play(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Play on for as many episodes as there are entries to fill."""
        for episode in range(len(returns)):
            observation, info = self._env.reset(seed=self._env_seed)
            self._env_seed = None
            if self.state_of is None:
                self.state_of = self._default_state(info)
            row = self._row(observation, info)
            gained, weight, length, over = 0.0, 1.0, 0, False
            while not over:
                self._step += 1
                length += 1
                action = int(_choose(self._actions, self._q, row, self._step, self._numbers))
                observation, reward, terminated, truncated, info = self._env.step(self._first_action + action)
                reward, over = float(reward), terminated or truncated
                if not isfinite(reward):
                    raise ValueError(f"the environment gave the reward {reward} at step {length}: expected a number")
                gained += weight * float(info.get("env_reward", reward))  # what a shaping wrapper was given
                weight *= self._numbers.discount
                next_row = self._row(observation, info)
                _update(self._actions, self._q, row, action, reward, next_row, bool(terminated), self._numbers)
                row = next_row
            returns[episode], lengths[episode] = gained, length

    def _default_state(self, info: Mapping[str, Any]) -> StateOf:
        """``info["state"]`` if the first info has one, or a Discrete observation."""
        if "state" in info:
            return _state_in_info
        space = self._env.observation_space
        if isinstance(space, gym.spaces.Discrete):
            return lambda observation, _: int(observation)
        raise ValueError(
            f'nothing tells states apart: observations are {space}, expected Discrete, and info has no "state" but '
            f"{sorted(map(str, info))}: pass state=, a function of (observation, info)"
        )

    def _row(self, observation: Any, info: Mapping[str, Any]) -> int:
        """The row of a state in the table of values; a state never met gets a new one."""
        state = self.state_of(observation, info)
        try:
            row = self._rows.setdefault(state, len(self._rows))
        except TypeError:
            raise TypeError(
                f"a state must be hashable, got {type(state).__name__}: pass e.g. "
                "state=lambda observation, info: tuple(observation.ravel().tolist())"
            ) from None
        if row == len(self._q):
            self._q = np.concatenate([self._q, np.zeros_like(self._q)])
        return row


class CompiledRun:
    """One learner on a task as arrays; plays on as ``PlainRun`` does."""

    state_of = staticmethod(_state_in_info)

    def __init__(self, model: TabularModel, shaping: TabularShaping | None, agent: QLearning) -> None:
        shaping = TabularShaping.of(model, agent.discount) if shaping is None else shaping
        check_task(model, shaping)
        _check_discount(shaping.discount, agent.discount)
        self._model, self._shaping = model._replace(states=None, observations=None), shaping
        self._states, self._steps = model.states, np.zeros(1, np.int64)
        self._q = np.zeros_like(model.next_states, np.float64)
        self._numbers = _numbers(agent, self._q.shape[1])
        self.at_a_time = max(1, _STEPS_AT_A_TIME // model.max_steps)

    @property
    def values(self) -> dict[Hashable, NDArray[np.float64]]:
        """State -> (actions,) what has been learned so far."""
        names = [tuple(s) if isinstance(s, list) else s for s in np.asarray(self._states).tolist()]
        return dict(zip(names, self._q, strict=True))

    def play(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Play on for as many episodes as there are entries to fill."""
        _play(self._model, self._shaping, self._numbers, self._q, self._steps, returns, lengths)


class _Numbers(NamedTuple):
    """The options of a learner as compiled code takes them."""

    learning_rate: float
    discount: float
    explore_below: np.uint64  # of 2**32
    parts: np.uint64  # into which 32 random bits are divided to choose among 1, 2, ... actions
    key: np.uint64  # where the random numbers of the seed begin


def _numbers(agent: QLearning, actions: int) -> _Numbers:
    rates = float(agent.learning_rate), float(agent.discount), np.uint64(round(agent.epsilon * 2**32))
    parts = np.uint64(12 if actions <= 4 else 2**32)  # 12 divides evenly by 1, 2, 3 and 4
    return _Numbers(*rates, parts, np.uint64(_stream_key(np.uint64(agent.seed))))


@njit(cache=True, nogil=True, error_model="numpy")
def _play(model, shaping, numbers, q, steps, returns, lengths):
    """Learn for as many episodes as there are returns and lengths to fill.

    ``q`` (states, actions) and ``steps`` (1,) are what has been learned and how many steps were taken so far.
    """
    actions = q.shape[1]
    # Arrays by name: reaching into a tuple counts references.
    next_states, rewards, terminations = model.next_states, model.rewards, model.terminated
    potentials, pairs, credits = shaping.potential, shaping.pairs, shaping.credit
    shaped = potentials.any() or credits.any()
    paid = np.zeros(len(credits), np.int64)  # the last episode (from 1) in which a row of credit was paid
    step = steps[0]
    for episode in range(len(returns)):
        state, length, over = model.start, 0, False
        gained, weight = 0.0, 1.0
        earned, potential = 0.0, shaping.scale * potentials[model.start]
        while not over:
            step += 1
            length += 1
            action = _choose(actions, q, state, step, numbers)
            next_state = int64(next_states[state, action])
            reward = rewards[state, action]
            terminated = terminations[state, action]
            over = terminated or length == model.max_steps
            gained += weight * reward
            weight *= numbers.discount
            if shaped:
                pair = pairs[state, action]
                credit = credits[pair]
                if shaping.once and credit != 0.0:
                    if paid[pair] == episode + 1:
                        credit = 0.0
                    paid[pair] = episode + 1
                earned += credit
                next_potential = shaping.scale * (potentials[next_state] + min(shaping.cap, earned))
                if terminated or (over and not shaping.keep_on_truncation):
                    next_potential = 0.0
                reward += numbers.discount * next_potential - potential
                potential = next_potential
            _update(actions, q, state, action, reward, next_state, terminated, numbers)
            state = next_state
        returns[episode] = gained
        lengths[episode] = length
    steps[0] = step


@njit(cache=True, inline="always", error_model="numpy")
def _choose(actions, q, state, step, numbers):
    """Epsilon-greedy: any action, or one of those with the highest value, each equally likely."""
    bits = mix(numbers.key + uint64(step) * WEYL)  # SplitMix64
    part = uint32(((bits & _LOWER) * numbers.parts) >> _HALF)
    if (bits >> _HALF) < numbers.explore_below:
        return int64(part % uint32(actions))
    # Without branches: which action is best cannot be predicted.
    highest = _highest(actions, q, state)
    ties = 0
    for action in range(actions):
        ties += q[state, action] == highest
    left = int64(part % uint32(ties)) if ties > 1 else 0  # how many of them to pass over
    chosen = 0
    for action in range(actions):
        tied = q[state, action] == highest
        chosen = action if tied and left == 0 else chosen
        left -= tied
    return chosen


@njit(cache=True, inline="always", error_model="numpy")
def _update(actions, q, state, action, reward, next_state, terminated, numbers):
    """Move a value towards reward + discount * max Q(next state)."""
    following = 0.0 if terminated else _highest(actions, q, next_state)
    q[state, action] += numbers.learning_rate * (reward + numbers.discount * following - q[state, action])


@njit(cache=True, inline="always", error_model="numpy")
def _highest(actions, q, state):
    best = q[state, 0]
    for action in range(1, actions):
        value = q[state, action]
        best = value if value > best else best
    return best


@njit(cache=True)
def _stream_key(seed):
    return mix(mix(seed + WEYL) ^ _STREAM)
