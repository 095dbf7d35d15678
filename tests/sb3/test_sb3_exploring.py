"""ExploringDQN: the acting network learns from shaped rewards, the judged one from those of the environment alone."""

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from tests.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, AtSteps, Hallway, agent_in

from secret_rl.sb3 import ExploringDQN, ShapedReplayBuffer, bonus_with, load_weights, save_weights, train
from secret_rl.shaping import EventCredit, VisitCounts

OPTIONS = {
    "env_options": MAZE, "n_envs": 2, "evaluate_every": 100, "learning_starts": 20, "buffer_size": 120, "train_freq": 1,
    "batch_size": 8, "target_update_interval": 20, "gamma": 0.9, **SMALL,
}  # fmt: skip
BONUSES = [bonus_with(EventCredit("trigger_activated", amount=0.5)), bonus_with(VisitCounts(), scale=0.1)]


def same(mine, theirs):
    pairs = zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Staying:
    """Phi grows with every step that stays."""

    def init(self, n):
        return np.zeros(n)

    def step(self, carry, batch):
        carry = np.where(batch.starts, 0.0, carry)
        return (after := carry + 0.5 * batch.steps * (0 if batch.actions is None else batch.actions == 0)), after


def test_each_network_learns_as_dqn_does():
    """To the bit: the acting one as a DQN that is paid the bonus; without a bonus both as a DQN without one."""
    mine = train(ExploringDQN, TRIGGERS, 300, shaping=BONUSES, **OPTIONS).model
    shaped = train(sb3.DQN, TRIGGERS, 300, shaping=BONUSES, replay_buffer_class=ShapedReplayBuffer, **OPTIONS).model
    assert same(mine.acting_policy, shaped.policy) and not same(mine.policy, shaped.policy)
    unshaped = train(sb3.DQN, TRIGGERS, 300, **OPTIONS).model
    for shaping in (None, bonus_with(EventCredit("trigger_activated"), scale=0)):
        mine = train(ExploringDQN, TRIGGERS, 300, shaping=shaping, **OPTIONS).model
        assert same(mine.policy, unshaped.policy) and same(mine.acting_policy, unshaped.policy)


def test_a_harmful_bonus_ruins_what_acts_and_not_what_is_judged():
    options = {
        "n_envs": 4, "gamma": 0.9, "learning_starts": 50, "buffer_size": 2_000, "train_freq": 1, "learning_rate": 0.01,
        "target_update_interval": 40, "exploration_final_eps": 0.4, "evaluate_every": 2_000, "evaluation_episodes": 1,
        "policy_kwargs": {"net_arch": [16]}, "device": "cpu",
    }  # fmt: skip
    trained = train(ExploringDQN, Hallway, 2_000, shaping=bonus_with(Staying()), **options)
    cells = np.eye(4, dtype=np.float32)[:3]
    assert trained.model.predict(cells, deterministic=True)[0].tolist() == [1, 1, 1]
    assert trained.model.acting_policy.predict(cells, deterministic=True)[0].tolist() == [0, 0, 0]
    assert trained.curve.returns[-1].tolist() == [1.0], "agents are judged by what they learned of the true reward"


def test_one_network_acts_and_the_other_answers(tmp_path):
    never_random = {"exploration_initial_eps": 0, "exploration_final_eps": 0, "learning_starts": 0}
    model = agent_in(ExploringDQN, Hallway(), batch_size=1, gradient_steps=0, **never_random)
    with torch.no_grad():
        model.policy.q_net.q_net[-1].bias += torch.tensor([9.0, 0.0])
        model.acting_policy.q_net.q_net[-1].bias += torch.tensor([0.0, 9.0])
    answers = []
    model.learn(12, AtSteps(lambda now: answers.append(int(now.model.predict(np.eye(4, dtype=np.float32)[0])[0]))))
    assert answers == [0] * 12 and (model.replay_buffer.actions[:12] == 1).all()
    model.save(tmp_path / "model.zip")
    again = ExploringDQN.load(tmp_path / "model.zip")
    assert same(again.policy, model.policy) and same(again.acting_policy, model.acting_policy)


def test_both_start_from_given_weights(tmp_path):
    source, model = (agent_in(ExploringDQN, Hallway(), seed=seed) for seed in range(2))
    with torch.no_grad():
        source.acting_policy.q_net.q_net[-1].bias += 1
    load_weights(model, save_weights(source, tmp_path / "weights"))
    assert same(model.policy, source.policy) and same(model.acting_policy, source.policy)


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="replay_buffer_class is ReplayBuffer, which does not keep"):
        agent_in(ExploringDQN, Hallway(), replay_buffer_class=ReplayBuffer)
    with pytest.raises(ValueError, match="learns from single steps, got n_steps=3"):
        agent_in(ExploringDQN, Hallway(), n_steps=3)
