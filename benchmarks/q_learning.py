"""Steps per second of tabular Q-learning on Triggers, from scratch: ours beside the same algorithm in Python and NumPy.

All learn with the paper's learning rate and epsilon of 0.1 and break ties at random. The plain learners work on the
same arrays as ours, which spares them stepping an environment; one that steps it is there for comparison.
"""

import random
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import gymnasium as gym
import numpy as np
from paper.q_learners import learn_many

import secret_rl  # noqa: F401  registers the environments
from benchmarks.results_file import Row, interleaved, per_second, write
from secret_rl.agents import QLearning
from secret_rl.envs.tabular import TabularModel

ROUNDS = 5
MAZES, SEEDS, EPISODES = 30, 5, 1200  # the size of one condition of a transfer experiment
IN_STEP = 1024  # learners side by side in NumPy; fewer and more are slower
STEPS_IN_STEP = 100
LEARNING_RATE = EPSILON = 0.1
DISCOUNT = 0.99

OURS = f"ours, {MAZES} mazes x {SEEDS} seeds x {EPISODES:,} episodes in one call"
PYTHON = "plain Python on the same arrays"
NUMPY = f"NumPy on the same arrays, {IN_STEP:,} learners in step"


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    envs = [gym.make("secret_rl/Triggers-v0", layout_seed=maze) for maze in range(MAZES)]
    models = [env.unwrapped.tabular() for env in envs]
    contenders = {
        OURS: ours(models),
        "ours, one learner at a time": one_at_a_time(envs),
        PYTHON: plain_python(models),
        NUMPY: numpy_in_step(models[0]),
        "plain Python stepping the environment": stepping(envs),
    }
    speeds = interleaved(
        {name: lambda w=work: per_second(w, clock=time.process_time) for name, work in contenders.items()}, ROUNDS
    )
    mean = float(learn_many(models, range(SEEDS), EPISODES)[0].mean())
    plain_mean = float(np.mean([python_learner(model, seed)[1] for model in models for seed in range(SEEDS)]))
    rows = [Row(name, speed, "steps/s", ">= 40 M" if name == OURS else "") for name, speed in speeds.items()]
    rows += [
        Row("ours over plain Python", speeds[OURS] / speeds[PYTHON], "x"),
        Row("ours over NumPy", speeds[OURS] / speeds[NUMPY], "x"),
        Row("mean return over training, ours", mean),
        Row("mean return over training, plain Python", plain_mean),
        Row("the curve of a stepped environment equal bit for bit", equal_curves(envs[0]), asked="yes"),
    ]
    write("q_learning", "Tabular Q-learning on Triggers 8x8 3T1P, from scratch, one core", rows)


def ours(models: list[TabularModel]) -> Callable[[], int]:
    """Every maze and seed in one compiled call; checking and copying the arrays included."""

    def work() -> int:
        _, lengths = learn_many(models, range(SEEDS), EPISODES)
        return int(lengths.sum())

    work()
    return work


def one_at_a_time(envs: list[Any]) -> Callable[[], int]:
    """``QLearning.learn`` on one maze after another; making the arrays included."""
    following = cycle(envs)

    def work() -> int:
        return int(QLearning().learn(next(following), EPISODES).curve.lengths.sum())

    work()
    return work


def plain_python(models: list[TabularModel]) -> Callable[[], int]:
    """One maze after another."""
    following = cycle(enumerate(models))

    def work() -> int:
        seed, model = next(following)
        return python_learner(model, seed)[0]

    return work


def python_learner(model: TabularModel, seed: int) -> tuple[int, float]:
    """Steps taken and the mean return; states are lists that refer to each other, the fastest we found in Python."""
    states: list[tuple[list[float], list[Any]]] = [([0.0] * 4, []) for _ in model.states]
    table = zip(states, model.next_states.tolist(), model.rewards.tolist(), model.terminated.tolist(), strict=True)
    for (_, moves), *columns in table:
        moves += [(reward, *states[after], ends) for after, reward, ends in zip(*columns, strict=True)]
    learning_rate, epsilon, discount = LEARNING_RATE, EPSILON, DISCOUNT  # names of the function are found faster
    powers = [discount**t for t in range(model.max_steps)]
    uniform = random.Random(seed).random
    steps, total = 0, 0.0
    for _ in range(EPISODES):
        values, moves = states[model.start]
        for t in range(model.max_steps):
            chance = uniform()
            if chance < epsilon:
                action = int(chance / epsilon * 4)
            else:
                best = max(values)
                tied = values.count(best)
                if tied == 4:
                    action = int(uniform() * 4)
                else:
                    action = values.index(best)
                    if tied > 1:
                        for _ in range(int(uniform() * tied)):
                            action = values.index(best, action + 1)
            reward, next_values, next_moves, terminated = moves[action]
            if reward:
                total += powers[t] * reward
            if terminated:
                values[action] += learning_rate * (reward - values[action])
                break
            values[action] += learning_rate * (reward + discount * max(next_values) - values[action])
            values, moves = next_values, next_moves
        steps += t + 1
    return steps, total / EPISODES


def numpy_in_step(model: TabularModel) -> Callable[[], int]:
    """Many learners on one maze, a step of all at once; returns are added up and not kept."""
    rng = np.random.default_rng(0)
    states, actions = model.next_states.shape
    next_states, rewards, going_on = (a.ravel() for a in (model.next_states, model.rewards, ~model.terminated))
    q = np.zeros((IN_STEP * states, actions))
    flat = q.ravel()
    base = np.arange(IN_STEP) * states
    here, time = np.full(IN_STEP, model.start), np.zeros(IN_STEP, int)
    gained, power = np.zeros(IN_STEP), np.ones(IN_STEP)

    def work() -> int:
        for _ in range(STEPS_IN_STEP):
            values = q[base + here]
            lots = rng.random((IN_STEP, actions), np.float32)
            lots[values != values.max(1, keepdims=True)] = -1
            action = lots.argmax(1)
            exploring = np.flatnonzero(rng.random(IN_STEP) < EPSILON)
            action[exploring] = rng.integers(0, actions, len(exploring))
            pair = here * actions + action
            at = base * actions + pair
            after = next_states[pair]
            target = rewards[pair] + DISCOUNT * q[base + after].max(1) * going_on[pair]
            flat[at] += LEARNING_RATE * (target - flat[at])
            np.add(gained, power * rewards[pair], out=gained)
            np.multiply(power, DISCOUNT, out=power)
            np.add(time, 1, out=time)
            here[:] = after
            over = np.flatnonzero(~going_on[pair] | (time == model.max_steps))
            here[over], time[over], gained[over], power[over] = model.start, 0, 0, 1
        return IN_STEP * STEPS_IN_STEP

    work()
    return work


def stepping(envs: list[Any]) -> Callable[[], int]:
    """Our own learner for any environment, one episode at a time."""
    following = cycle(envs)

    def work() -> int:
        agent = QLearning().learn(next(following), 20, state=lambda _, info: info["state"])
        return int(agent.curve.lengths.sum())

    work()
    return work


def equal_curves(env: Any) -> bool:
    """Whether the compiled learner and the one that steps the environment gain the same in every episode."""
    compiled, stepped = (QLearning().learn(env, 200, state=s) for s in (None, lambda _, info: info["state"]))
    return bool(np.array_equal(compiled.curve.returns, stepped.curve.returns))
