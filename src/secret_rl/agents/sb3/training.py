"""Any algorithm of Stable-Baselines3, trained through one function."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from secret_rl.agents.sb3.checkpoint import TrainingFolder
from secret_rl.agents.sb3.curve import DeepCurve
from secret_rl.agents.sb3.environments import (
    EnvLike,
    Shaping,
    check_same_spaces,
    check_shaping_discount,
    evaluation_envs,
    is_shaped,
    learning_envs,
)
from secret_rl.agents.sb3.fingerprint import described
from secret_rl.agents.sb3.recording import Recorder
from secret_rl.agents.sb3.states import end_running_episodes
from secret_rl.agents.sb3.values import ValuesFrom
from secret_rl.agents.sb3.weights import load_weights
from secret_rl.progress import progress_bar


class Trained(NamedTuple):
    """An agent that has learned, and how it did."""

    model: BaseAlgorithm
    curve: DeepCurve


def train(
    algorithm: type[BaseAlgorithm],
    env: EnvLike,
    steps: int,
    *,
    discount: float = 0.99,
    shaping: Shaping | None = None,
    policy: Any = "MlpPolicy",
    n_envs: int = 8,
    env_options: Mapping[str, Any] | None = None,
    evaluation_env: EnvLike | None = None,
    evaluate_every: int | None = None,
    evaluation_episodes: int = 10,
    evaluation_epsilon: float = 0.0,
    seed: int = 0,
    folder: str | Path | None = None,
    checkpoint_every: int | None = None,
    tensorboard: str | Path | None = None,
    callback: Any = None,
    progress: bool | None = None,
    initial: BaseAlgorithm | ValuesFrom | str | Path | None = None,
    **options: Any,
) -> Trained:
    """Train an algorithm of Stable-Baselines3 or sb3-contrib for ``steps`` environment steps; ``options`` are its own.

    ``env``: an id (with ``env_options``) or a function that makes one, of which there will be ``n_envs``; or a
    ``VecEnv``, or a Gymnasium vector environment that resets within the step. ``shaping`` makes shaped environments
    of them: ``shape_with(potential)`` of ``secret_rl.shaping.sb3``. Monitors stay inside, so every return that is
    logged is unshaped. ``discount`` becomes the agent's ``gamma`` and the shaping's: the discount of one step, also
    where an agent learns from several (``n_steps``).

    The agent is evaluated before the first step, whenever ``evaluate_every`` more have passed (default: 50 times; 0:
    never) and at the end, unshaped, in environments of their own; its actions are the best known ones, or random with
    probability ``evaluation_epsilon``. Evaluations change nothing in training.

    ``folder`` keeps the agent and its curve, and repeating the call reads them. With ``checkpoint_every`` it also
    keeps training itself: however it is interrupted, repeating the call goes on from the last checkpoint and ends
    where it would have ended, to the bit, if the number of PyTorch's threads is the same. For that the training is
    divided into parts, whether interrupted or not: each begins with new episodes and freshly seeded generators;
    episodes that the end of a part cuts short count as truncated. One process at a time may train in a folder. The
    environments must be such that seeding and resetting them is a fresh start; callbacks keep their own state.

    ``initial``: a trained model, or a file of ``save_weights``, whose policy this one starts from; or ``ValuesFrom``,
    to start from a potential. ``tensorboard``: a folder for logs. ``callback`` is passed on.
    """
    every = max(1, steps // 50) if evaluate_every is None else evaluate_every
    _check_numbers(steps, discount, n_envs, every, evaluation_episodes, evaluation_epsilon, seed)
    _check_options(algorithm, options, folder, checkpoint_every)
    store: TrainingFolder | None = None
    if folder is not None:
        asked = {
            "algorithm": algorithm, "env": _origin(env), "steps": steps, "discount": discount, "shaping": shaping,
            "policy": policy, "n_envs": n_envs, "env_options": env_options, "evaluation_env": _origin(evaluation_env),
            "evaluate_every": every, "evaluation_episodes": evaluation_episodes,
            "evaluation_epsilon": evaluation_epsilon, "seed": seed, "checkpoint_every": checkpoint_every,
            "initial": initial, **options,
        }  # fmt: skip
        store = TrainingFolder(Path(folder), {name: described(value) for name, value in asked.items()})
    try:
        envs = learning_envs(env, n_envs, env_options, shaping, discount)
        check_shaping_discount(envs, discount)
        tests = evaluation_envs(evaluation_env, env, evaluation_episodes, env_options) if every else None
        if tests is not None:
            check_same_spaces(envs, tests)
        model = _model(algorithm, policy, envs, discount, seed, options)
        if isinstance(initial, ValuesFrom):
            initial.prepare(model)
        elif initial is not None:
            load_weights(model, initial)
        _set_logger(model, tensorboard)
        with progress_bar(progress, "steps") as tick:
            recorder = Recorder(steps, discount, seed, tests, every, evaluation_episodes, evaluation_epsilon, tick)
            recorder.init_callback(model)
            _learn(model, recorder, callback, steps, seed, checkpoint_every or steps, store)
        if tests is not None and tests is not evaluation_env:
            tests.close()
        return Trained(model, recorder.curve())
    finally:
        if store is not None:
            store.close()


def _learn(
    model: BaseAlgorithm, recorder: Recorder, callback: Any, steps: int, seed: int, part_steps: int,
    store: TrainingFolder | None,
) -> None:  # fmt: skip
    """Learn part by part, from wherever the folder was left."""
    part = 0
    if store is not None and store.part:
        recorder.restore(store.load(model))
        part = store.part
        if store.finished:
            return
    else:
        recorder.evaluate()
    watching = _Watching(recorder, callback)
    with _schedules_over(model, steps):
        while model.num_timesteps < steps and not watching.stopped:
            _seed(model, seed, part)
            model._last_obs = None  # new episodes
            part += 1
            target = min(steps, (model.num_timesteps // part_steps + 1) * part_steps)
            model.learn(target - model.num_timesteps, watching, reset_num_timesteps=False)
            if model.num_timesteps < steps and not watching.stopped and store is not None:
                end_running_episodes(model)
                store.save(model, recorder.curve(), part, finished=False)
        recorder.evaluate()
    if store is not None:
        store.save(model, recorder.curve(), part, finished=True)


def _seed(model: BaseAlgorithm, seed: int, part: int) -> None:
    """Give the agent and its environments random streams of their own for a part of the training."""
    own, of_envs = (int(np.random.SeedSequence([seed, of, part]).generate_state(1)[0] >> 1) for of in (0, 2))
    model.set_random_seed(own)
    # That seeds the environments and the action space alike. Off-policy agents explore by samples of the action space,
    # which would follow the noise of the first environment.
    if isinstance(model, OffPolicyAlgorithm) and model.env is not None:
        model.env.seed(of_envs)


@contextmanager
def _schedules_over(model: BaseAlgorithm, steps: int) -> Iterator[None]:
    """Let the schedules of a model refer to the whole of training, not to the part that ``learn`` is called for."""
    advance, unsaved = model._update_current_progress_remaining, model._excluded_save_params
    patches: dict[str, Any] = {
        "_update_current_progress_remaining": lambda now, _: advance(now, steps),
        "_excluded_save_params": lambda: [*unsaved(), *patches],  # callbacks may save the model meanwhile
    }
    vars(model).update(patches)
    try:
        yield
    finally:
        for name in patches:
            del vars(model)[name]


class _Watching(CallbackList):
    """The recorder, then the user's callbacks; remembers whether one of them ended the training."""

    def __init__(self, recorder: Recorder, callback: Any) -> None:
        given = callback if isinstance(callback, list) else [] if callback is None else [callback]
        own = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in given]
        super().__init__([recorder, *own])
        self.stopped = False

    def _on_step(self) -> bool:
        going_on = super()._on_step()
        self.stopped = self.stopped or not going_on
        return going_on


def _model(
    algorithm: type[BaseAlgorithm], policy: Any, envs: VecEnv, discount: float, seed: int, options: dict[str, Any]
) -> BaseAlgorithm:
    parameters = inspect.signature(algorithm).parameters
    discounts = "gamma" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not discounts and discount != 1 and is_shaped(envs):
        raise ValueError(f"{algorithm.__name__} does not discount, so its shaping must not either: use discount=1")
    own: dict[str, Any] = {"gamma": discount} if discounts else {}
    # Copies: Stable-Baselines3 writes into policy_kwargs, which the caller may want to use again.
    own |= {name: dict(value) if isinstance(value, dict) else value for name, value in options.items()}
    model = algorithm(policy, envs, seed=seed, **own)
    buffer = getattr(model, "replay_buffer", None)
    for name in ("gamma", "shaping_discount"):  # of returns of several steps, and of shaping
        theirs = getattr(buffer, name, None)
        if theirs is not None and theirs != discount:
            raise ValueError(f"the replay buffer has {name} {theirs}, but the agent discounts by {discount}")
    return model


def _set_logger(model: BaseAlgorithm, tensorboard: str | Path | None) -> None:
    formats = ["stdout"] if model.verbose else []
    if tensorboard is not None:
        if find_spec("tensorboard") is None:
            raise ModuleNotFoundError("logging for TensorBoard needs it: pip install tensorboard")
        formats.append("tensorboard")
    model.set_logger(configure(None if tensorboard is None else str(tensorboard), formats or [""]))


def _origin(env: Any) -> Any:
    """What is known of environments: an id or a function is told from another; made ones by type and spaces."""
    if not isinstance(env, VecEnv | VectorEnv | gym.Env):
        return env
    return [type(env).__name__, str(env.observation_space), str(env.action_space)]


def _check_numbers(
    steps: int, discount: float, n_envs: int, every: int, episodes: int, epsilon: float, seed: int
) -> None:
    least = {"steps": (steps, 1), "n_envs": (n_envs, 1), "evaluation_episodes": (episodes, 1)}
    for name, (value, minimum) in (least | {"evaluate_every": (every, 0), "seed": (seed, 0)}).items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < minimum:
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if not 0 < discount <= 1:
        raise ValueError(f"discount must be in (0, 1], got {discount!r}")
    if not 0 <= epsilon <= 1:
        raise ValueError(f"evaluation_epsilon must be in [0, 1], got {epsilon!r}")


def _check_options(
    algorithm: type[BaseAlgorithm], options: dict[str, Any], folder: Any, checkpoint_every: int | None
) -> None:
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        raise TypeError(f"algorithm must be a class of Stable-Baselines3 or sb3-contrib such as DQN, got {algorithm!r}")
    for name, instead in {"gamma": "discount", "tensorboard_log": "tensorboard", "env": "the second argument"}.items():
        if name in options:
            raise ValueError(f"give {instead} instead of {name}={options[name]!r}")
    if checkpoint_every is None:
        return
    if folder is None:
        raise ValueError(f"checkpoint_every={checkpoint_every} needs a folder to keep checkpoints in")
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
    if options.get("optimize_memory_usage"):
        raise ValueError(
            "checkpoints cut episodes short, which a replay buffer with optimize_memory_usage cannot tell from their "
            "end: leave one of the two out"
        )
