"""Online SECRET beside agents of Stable-Baselines3: what reaches them, and that nothing is paid twice or mixed."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tests.experimental.lever import SMALL_FIT, Lever
from tests.quick import quick_fits
from tests.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, AtSteps, agent_in

import secret_rl as srl
from secret_rl.experimental import OnlineSecret
from secret_rl.sb3 import ShapedReplayBuffer, train
from secret_rl.sb3.callbacks import OnlineSecretCallback
from secret_rl.sb3.shaping import shape_with
from secret_rl.shaping import ChangingPotential, NoPotential, ReplayShaping
from secret_rl.testing.shaping import Everything

USUAL = {"env": TRIGGERS, "env_options": MAZE, "gamma": 0.9, "n_envs": 3, "evaluate_every": 0, "batch_size": 8, **SMALL}
REPLAYED = USUAL | {
    "algorithm": sb3.DQN, "learning_starts": 20, "buffer_size": 160, "replay_buffer_class": ShapedReplayBuffer,
    "exploration_final_eps": 0.7,
}  # fmt: skip
GONE = object()
ROLLED_OUT = USUAL | {"algorithm": sb3.PPO, "n_steps": 8, "n_epochs": 1}


def learn(way, steps, online, *callbacks, **options):
    """Model, curve and callback of an agent that learns in one of the two ways, credit with it."""
    changing = None if way == "replay" else ChangingPotential(NoPotential())
    callback = OnlineSecretCallback(online, changing=changing)
    usual = REPLAYED if way == "replay" else ROLLED_OUT | {"shaping": shape_with(changing)}
    return *train(steps=steps, callback=[callback, *callbacks], **usual | options), callback


class Marked(Everything):
    """A potential of the whole history that differs from others of another number."""

    def __init__(self, number):
        super().__init__((), seed=number)
        self.number = number


def marked(growth=1.0):
    """Another potential at every episode, or nearly, without any model."""
    numbers = iter(range(1, 10**6))
    return OnlineSecret(lambda data: Marked(next(numbers)), first=10, growth=growth, min_successes=0)


class AtRolloutEnds(AtSteps):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.function(self.model)


def test_a_replay_buffer_never_holds_two_shapings():
    """Whenever the agent may learn, it is as if the present potential had always been there."""
    online, compared, running = marked(growth=1.1), [], []

    def look(model):
        buffer = model.replay_buffer
        if online.present is None:
            assert not buffer.terms.any()
            return
        assert buffer.shaping.potential is online.present and buffer.shaping.discount == 0.9
        other = deepcopy(buffer)
        other.relabel(ReplayShaping(online.present, 0.9))
        for name in ("terms", "_shaped_rewards", "rewards"):
            np.testing.assert_array_equal(getattr(buffer, name), getattr(other, name), err_msg=name)
        compared.append(online.present.number)
        running.append(int((buffer.dones[buffer.pos - 1] == 0).sum()))

    # The buffer is large enough for all, or histories would miss what was overwritten.
    *_, callback = learn("replay", 420, online, AtRolloutEnds(look), buffer_size=600, train_freq=1)
    assert len(set(compared)) > 5 and max(running) == 3, "several potentials, and swaps within episodes"
    assert online.history[-1].accepted and callback.history is online.history


@pytest.mark.parametrize("way", ["replay", "rollouts"])
def test_episodes_are_those_that_were_played(way):
    """All of them, from each environment, states and ends included; also when ``learn`` is called again."""
    online, played = marked(growth=50), []
    watch = AtSteps(lambda now: played.extend(info["episode"] for info in now.locals["infos"] if "episode" in info))
    model, _, callback = learn(way, 150, online, watch)
    model.learn(60, [callback, watch], reset_num_timesteps=False)  # the episodes that were running go on
    data = online.trajectories
    assert data.lengths.tolist() == [int(e["l"]) for e in played]
    assert data.returns.tolist() == [float(e["r"]) for e in played]
    assert (data.terminated | data.truncated)[data.offsets[1:] - 1].all()
    assert data.truncated.any() and data.terminated.any()
    assert data.states is not None
    env = srl.Recorder(gym.make(TRIGGERS, **MAZE))
    for episode in data:  # the maze and its start are always the same: playing the actions again gives the rest
        env.reset()
        for action in episode.actions.tolist():
            env.step(action)
    again = env.trajectories()
    for name in ("observations", "final_observations", "states", "final_states", "rewards"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name), err_msg=name)


@pytest.mark.parametrize("way", ["replay", "rollouts"])
def test_credit_is_learned_from_scratch_while_an_agent_learns(way, monkeypatch):
    quick_fits(monkeypatch, updates=300, batch=512)
    kind = "learned" if way == "replay" else "pending"
    options = {"potential_options": {"steps": 60}} if way == "replay" else {}
    online = OnlineSecret(kind, first=150, growth=10, secret_options=SMALL_FIT, **options)
    explores = {"exploration_final_eps": 1.0} if way == "replay" else {"ent_coef": 10.0}
    task = {"env": lambda: Lever(vector=True), "env_options": None}
    model, _, callback = learn(way, 900, online, **task, **explores)
    [refit] = callback.history
    assert refit.accepted and refit.history_gain > 0.2
    if way == "replay":
        assert (model.replay_buffer.terms != 0).any() and model.replay_buffer.shaping_discount == 0.9


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"replay_buffer_class": None}, {}, "ReplayBuffer, cannot shape rewards anew.*ShapedReplayBuffer"),
        ({"shaping": shape_with(NoPotential())}, {}, "environments are shaped: for DQN"),
        ({}, {"changing": ChangingPotential(NoPotential())}, "not shaped: .*shaping=shape_with"),
        ({}, {"online": OnlineSecret("pending")}, 'table over info."state".*potential="learned"'),
        ({"shaping": lambda envs, _: VecNormalize(envs)}, {}, "VecNormalize changes what the agent observes"),
        ({"folder": "unused", "checkpoint_every": 10}, {}, "not kept in checkpoints: leave checkpoint_every out"),
        (ROLLED_OUT | dict.fromkeys(REPLAYED.keys() - ROLLED_OUT.keys(), GONE), {}, "cannot reach the agent"),
    ],
)
def test_what_is_not_set_up_is_named(options, given, words):
    callback = OnlineSecretCallback(**{"online": marked(), **given})
    options = {name: value for name, value in (REPLAYED | options).items() if value is not GONE}
    with pytest.raises(ValueError, match=words):
        train(steps=30, callback=callback, **options)


def test_another_discount_is_named():
    potential = ChangingPotential(NoPotential())
    envs = shape_with(potential)(DummyVecEnv([Lever]), 0.5)
    model = agent_in(sb3.PPO, envs, n_steps=8, batch_size=8, gamma=0.9)
    with pytest.raises(ValueError, match="shaped with discount 0.5, but the agent learns with gamma 0.9"):
        model.learn(8, OnlineSecretCallback(marked(), changing=potential))
