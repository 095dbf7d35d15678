"""Any algorithm of Stable-Baselines3, trained through one function."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv

from secret_rl.checks import check_integer
from secret_rl.loggers import Logger, check_logger
from secret_rl.progress import progress_bar
from secret_rl.sb3.callbacks import OnlineSecretCallback
from secret_rl.sb3.checkpoint import TrainingFile, end_running_episodes, load_weights, training_file
from secret_rl.sb3.curves import CurveCallback, DeepCurve, evaluate
from secret_rl.sb3.envs import EnvLike, Shaping, learning_envs, sb3_envs
from secret_rl.sb3.logging import LoggerWriter


class Trained(NamedTuple):
    """An agent that has learned, and how it did."""

    model: BaseAlgorithm
    curve: DeepCurve

    def __repr__(self) -> str:
        return f"Trained({type(self.model).__name__}, {self.curve!r})"


def train(
    algorithm: type[BaseAlgorithm],
    env: EnvLike,
    steps: int,
    *,
    gamma: float = 0.99,
    shaping: Shaping | Sequence[Shaping] | None = None,
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
    logger: Logger | None = None,
    callback: Any = None,
    progress: bool | None = None,
    initial: BaseAlgorithm | str | Path | None = None,
    **options: Any,
) -> Trained:
    """Train an algorithm of Stable-Baselines3 or sb3-contrib that discounts for ``steps`` environment steps.

    Monitors stay inside the shaping, so every return that is logged is unshaped. The agent is evaluated before the
    first step, every ``evaluate_every`` steps and at the end, unshaped, in environments of their own. Evaluations
    change nothing in training.

    ``folder`` keeps the agent and its curve, and repeating the call reads them. With ``checkpoint_every``, a call that
    is repeated after an interruption goes on from the last checkpoint and ends where it would have ended, to the bit
    (with as many threads of PyTorch). For that the training is divided into parts, interrupted or not: each
    begins with new episodes, which end as truncated with the part, and freshly seeded generators. The environments
    must be such that seeding and resetting them is a fresh start; callbacks keep their own state.

    Args:
        algorithm: A class such as ``DQN`` or ``PPO``.
        env: An id or a function that makes one, of which there will be ``n_envs``; or a ``VecEnv``, or a Gymnasium
            vector environment that resets within the step.
        steps: Environment steps, of all environments together.
        gamma: Discount of one step, of the agent and of the shaping, also where an agent learns from several steps.
        shaping: Makes shaped environments of environments: ``shape_with(potential)``, or ``bonus_with(credit)``; or
            several of them, the innermost first.
        policy: Name or class of the policy.
        n_envs: Environments at a time.
        env_options: Options of an environment given by id.
        evaluation_env: Environments to evaluate in; by default more of the same.
        evaluate_every: Steps between evaluations; None: 50 evaluations; 0: none.
        evaluation_episodes: Episodes of each evaluation.
        evaluation_epsilon: Probability of a random action in evaluations; others are the best known ones.
        seed: Of everything random.
        folder: Where to keep the agent and its curve.
        checkpoint_every: Steps between checkpoints in ``folder``.
        tensorboard: A folder for logs.
        logger: Receives what is logged: ``WandbLogger(...)``, or any object with ``log(step, {name: number})``.
        callback: Callbacks of Stable-Baselines3, passed on.
        progress: Show a progress bar; by default if the terminal is interactive.
        initial: A trained model, or a file of ``save_weights``, whose policy this one starts from.
        options: Other options of the algorithm, such as ``learning_rate``, ``policy_kwargs``, ``device``.
    """
    every = max(1, steps // 50) if evaluate_every is None else evaluate_every
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        raise TypeError(f"algorithm must be a class of Stable-Baselines3 or sb3-contrib such as DQN, got {algorithm!r}")
    for name, value in {"steps": steps, "n_envs": n_envs, "evaluation_episodes": evaluation_episodes}.items():
        check_integer(name, value, 1)
    for name, value in {"evaluate_every": every, "seed": seed}.items():
        check_integer(name, value, 0)
    if not (0 < gamma <= 1 and 0 <= evaluation_epsilon <= 1):
        raise ValueError(f"gamma and evaluation_epsilon must be in [0, 1], got {gamma!r} and {evaluation_epsilon!r}")
    if "tensorboard_log" in options:
        raise ValueError(f"give tensorboard instead of tensorboard_log={options['tensorboard_log']!r}")
    check_logger(logger)
    callbacks = callback if isinstance(callback, list) else [] if callback is None else [callback]
    if checkpoint_every is not None:
        check_integer("checkpoint_every", checkpoint_every, 1)
        if folder is None:
            raise ValueError(f"checkpoint_every={checkpoint_every} needs a folder to keep checkpoints in")
        if options.get("optimize_memory_usage"):
            raise ValueError("optimize_memory_usage cannot tell a checkpoint from the end of an episode: leave one out")
        if any(isinstance(one, OnlineSecretCallback) for one in callbacks):
            raise ValueError("credit learned online is not kept in checkpoints: leave checkpoint_every out")
    settings = {
        "algorithm": algorithm, "env": env, "steps": steps, "gamma": gamma, "shaping": shaping, "policy": policy,
        "n_envs": n_envs, "env_options": env_options, "evaluation_env": evaluation_env, "evaluate_every": every,
        "evaluation_episodes": evaluation_episodes, "evaluation_epsilon": evaluation_epsilon, "seed": seed,
        "checkpoint_every": checkpoint_every, "initial": initial, **options,
    }  # fmt: skip
    with training_file(Path(folder), settings) if folder is not None else nullcontext() as store:
        envs = learning_envs(sb3_envs(env, n_envs, env_options=env_options), shaping, gamma)
        tests = _evaluation_envs(evaluation_env, env, evaluation_episodes, env_options) if every else None
        if tests is not None:
            check_for_correct_spaces(tests, envs.observation_space, envs.action_space)
        # Copies: Stable-Baselines3 writes into policy_kwargs, which the caller may want to use again.
        own: dict[str, Any] = {name: dict(v) if isinstance(v, Mapping) else v for name, v in options.items()}
        model = algorithm(policy, envs, seed=seed, gamma=gamma, **own)  # type: ignore[call-arg]
        shaped_for = getattr(getattr(model, "replay_buffer", None), "shaping_discount", None)
        if shaped_for not in (gamma, None):
            raise ValueError(f"the replay buffer shapes for discount {shaped_for}, but the agent discounts by {gamma}")
        if initial is not None:
            load_weights(model, initial)
        formats = ["stdout"] * bool(model.verbose) + ["tensorboard"] * (tensorboard is not None)
        model.set_logger(configure(None if tensorboard is None else str(tensorboard), formats or [""]))
        if logger is not None:
            model.logger.output_formats.append(LoggerWriter(logger))
        play = None
        if tests is not None:
            play = partial(evaluate, model, tests, evaluation_episodes, discount=gamma, epsilon=evaluation_epsilon)
        with progress_bar(progress, "steps", steps) as tick:
            recorder = CurveCallback(steps, gamma, seed, every, play, tick)
            recorder.init_callback(model)
            _learn(model, recorder, callbacks, steps, seed, checkpoint_every or steps, store)
        if tests is not None and tests is not evaluation_env:
            tests.close()
        return Trained(model, recorder.curve())


def _learn(
    model: BaseAlgorithm, recorder: CurveCallback, callbacks: list[Any], steps: int, seed: int, part_steps: int,
    store: TrainingFile | None,
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
    of_user = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in callbacks]
    all_callbacks = _Callbacks([recorder, *of_user])
    with _schedules_over(model, steps):
        while model.num_timesteps < steps and not all_callbacks.stopped:
            _seed(model, seed, part)
            model._last_obs = None  # new episodes
            part += 1
            target = min(steps, (model.num_timesteps // part_steps + 1) * part_steps)
            model.learn(target - model.num_timesteps, all_callbacks, reset_num_timesteps=False)
            if model.num_timesteps < steps and not all_callbacks.stopped and store is not None:
                end_running_episodes(model)
                store.save(model, recorder.curve(), part, finished=False)
        recorder.evaluate()
    if store is not None:
        store.save(model, recorder.curve(), part, finished=True)


class _Callbacks(CallbackList):
    """Remembers whether one of them ended the training."""

    stopped = False

    def _on_step(self) -> bool:
        self.stopped = not super()._on_step()
        return not self.stopped


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


def _evaluation_envs(
    evaluation_env: EnvLike | None, env: EnvLike, n: int, env_options: Mapping[str, Any] | None
) -> VecEnv:
    """Environments of their own to evaluate in: by default more of the same."""
    source = env if evaluation_env is None else evaluation_env
    if evaluation_env is None and isinstance(env, VecEnv | VectorEnv | gym.Env):
        raise ValueError(
            "the agent is evaluated in environments of their own, and env cannot be made again: give evaluation_env "
            "(an id, a function that makes one, or environments), or evaluate_every=0"
        )
    return sb3_envs(source, n, env_options=env_options if isinstance(source, str) else None)
