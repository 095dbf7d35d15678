"""PPO on pictures: what is learned, what is bootstrapped, what bonuses pay and how it is played."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from paper.pixel_bonuses import Novelty, StatePotential, StepCredit, TrueEvents
from paper.pixel_ppo import PixelOptions, Played, _Learners, pixel_ppo

import secret_rl as srl
from paper import keys_doors_bonus

SMALL = PixelOptions(side_by_side=4, rollout=32, units=16, filters=8, batches=2, learning_rate=0.005)


class Lights(gym.Env):
    """A picture is lit on one of two sides; the action on that side pays 1."""

    observation_space = gym.spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=6, terminates=True):
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.paid = 0, 0
        return self._seen(), {"won": False, "side": self.side}

    def step(self, action):
        reward = float(action == self.side)
        self.time, self.paid = self.time + 1, self.paid + reward
        over, before = self.time == self.length, self.side
        info = {"won": over and self.paid == self.length, "side": before}
        return self._seen(), reward, over and self.terminates, over and not self.terminates, info

    def _seen(self):
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((10, 10, 1), np.uint8)
        picture[:, 5 * self.side : 5 * self.side + 5] = 255
        return picture


def test_every_learner_learns_from_what_it_sees():
    successes = [[], []]
    for progress in pixel_ppo([Lights, Lights], 2_560, SMALL, success="won", workers=1, device="cpu", seed=3):
        for found, new in zip(successes, progress.success, strict=True):
            found.extend(new.tolist())
    assert progress.steps == 2_560 and progress.seconds > 0
    assert all(len(found) == 2_560 // 6 // 4 * 4 for found in successes)
    for found in successes:
        assert np.mean(found[:40]) < 0.3 and np.mean(found[-80:]) > 0.9


@pytest.mark.parametrize("terminates", [True, False])
def test_a_truncated_episode_is_bootstrapped_from_what_was_seen_last(terminates):
    learners = _Learners([lambda: Lights(3, terminates)] * 2, SMALL, [(), ()], ("won", "side"), 0, 1, "cpu")
    with torch.no_grad():
        learners._play()
        rollout, success = learners._rollout()
        following = torch.zeros(2, 32, 4)
        learners._correct_truncated(following)
        expected = torch.zeros(2, 32, 4)
        for number, group in enumerate(learners._groups):
            for (step, row), picture in group.last.items():
                seen = torch.as_tensor(picture).expand(2, 1, 10, 10, 1).contiguous()
                expected[row // 2, step, row % 2 + 2 * number] = learners._outputs(seen)[1][row // 2, 0]
    learners.close()
    ends = 4 * (32 // 3)
    assert [len(one) for one in success] == [ends, ends]
    assert (expected != 0).sum() == (0 if terminates else 2 * ends)
    assert torch.allclose(following, expected, atol=1e-6)
    assert [tuple(part.shape[:2]) for part in rollout] == [(2, 32 * 4)] * 5


def test_bonuses_see_what_was_played_and_pay_their_own_learner():
    class Recorder:
        def __init__(self):
            self.seen = []

        def paid(self, rollout):
            self.seen.append(rollout)
            return np.full(rollout.actions.shape, 7.0, np.float32)

    class Five:
        def paid(self, rollout):
            assert rollout.actions.shape == (32, 4), "of its one learner"
            return np.full(rollout.actions.shape, 5.0, np.float32)

    recorder, advantages = Recorder(), []
    learners = _Learners([Lights] * 3, SMALL, [(), (recorder,), (Five(), recorder)], ("won", "side"), 0, 1, "cpu")
    with torch.no_grad():
        for _ in range(2):
            learners._play()
            rollout, _ = learners._rollout()
            advantages.append(rollout[3])
    learners.close()
    for rollout in recorder.seen:
        assert rollout.actions.shape == rollout.rewards.shape == rollout.ended.shape == (32, 8), "of both"
        lit = (rollout.observations.numpy()[..., 5:, 0].mean((2, 3)) > 0).astype(int)
        np.testing.assert_array_equal(rollout.infos["side"], lit, "also of the last step of an episode")
        np.testing.assert_array_equal(rollout.rewards, rollout.actions == lit)
    assert (recorder.seen[0].ended.argmax(0) == 5).all(), "episodes of six steps"
    for none, one, two in (found.mean(1) for found in advantages):
        assert one > none + 5 and two > one + 3


def test_true_events_pay_once_a_colour_and_episode():
    key, door = np.zeros((6, 1)), np.zeros((6, 1))
    key[[0, 1, 2, 4], 0] = 2, 2, 1, 2
    door[[2, 5], 0] = 2, 2
    ended = np.zeros((6, 1), bool)
    ended[3] = True
    bonus = TrueEvents(key=0.5, door=0.25)
    rollout = Played(
        torch.zeros(6, 1, 1), np.zeros((6, 1), int), np.zeros((6, 1)), ended, {"key_picked": key, "door_opened": door}
    )
    assert bonus.paid(rollout)[:, 0].tolist() == [0.5, 0, 0.75, 0, 0.5, 0.25]
    assert bonus.paid(rollout)[:, 0].tolist() == [0, 0, 0.5, 0, 0.5, 0.25], "the episode goes on in the next rollout"


class Grown:
    """A model to which a step has as much credit as the first pixel gets brighter, if its action is 1."""

    transitions = True

    def step_credit(self, observations, actions, next_observations):
        first, then = (pictures.reshape(len(actions), -1)[:, 0] / 100 for pictures in (observations, next_observations))
        return np.where(actions == 1, np.clip(then - first, 0, 1), 0.0)


def _rollout(pictures, actions, ended, goal):
    pictures = torch.as_tensor((100 * np.array(pictures)).astype(np.uint8)[:, None, None])
    actions, ended, goal = (np.array(column)[:, None] for column in (actions, ended, goal))
    return Played(pictures, actions, np.zeros(actions.shape), ended > 0, {"goal_reached": goal})


def test_credit_is_paid_for_what_a_step_led_to():
    played = _rollout([0.0, 0.5, 0.7, 0.7, 1.1, 0.0, 0.5], [1, 1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 1, 0, 0], [0] * 7)
    bonus = StepCredit(Grown(), scale=2.0, threshold=0.3, cap=1.5)
    # paid, too little, nothing, the other action, the end of an episode, paid, not yet known
    np.testing.assert_allclose(bonus.paid(played)[:, 0], [1.0, 0, 0, 0, 0, 1.0, 0], atol=1e-6)
    np.testing.assert_allclose(bonus.paid(played)[:, 0], [0.5, 0, 0, 0, 0, 1.0, 0], atol=1e-6, err_msg="the cap")


def test_credit_is_paid_as_the_wrapper_of_the_library_pays_it():
    options = {"threshold": 0.3, "scale": 0.1, "reward": 5.0, "cap": 0.3, "repeat": True}
    env = srl.CreditBonus(Lights(40), srl.OnlineCredit(Grown(), **options))
    rng = np.random.default_rng(0)
    pictures, actions, paid = [env.reset(seed=1)[0]], rng.integers(0, 2, 40), []
    for action in actions:
        picture, reward, *_, info = env.step(action)
        pictures.append(picture)
        paid.append(reward - info["env_reward"])
    ended = np.arange(40)[:, None] == 39
    played = Played(torch.as_tensor(np.stack(pictures[:-1])[:, None]), actions[:, None], np.zeros((40, 1)), ended, {})
    ours = StepCredit(Grown(), scale=0.5, threshold=0.3, cap=1.5).paid(played)[:, 0]
    np.testing.assert_allclose(ours[:-1], paid[:-1], atol=1e-6)
    assert sum(paid) == pytest.approx(1.5) and np.count_nonzero(paid) == 3, "up to the cap"


def test_credit_as_a_potential_telescopes():
    # the first episode reaches the goal, the second is truncated
    played = _rollout([0.0, 0.5, 0.5, 0.0, 0.9, 0.9], [1] * 6, [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0])
    paid = StepCredit(Grown(), scale=1.0, threshold=0.2, cap=2.0, discount=0.9).paid(played)[:, 0]
    weights = 0.9 ** np.arange(3)
    assert paid[0] == pytest.approx(0.9 * 0.5, abs=1e-6)
    assert paid[:3] @ weights == pytest.approx(0, abs=1e-6), "nothing is left of it once the goal is reached"
    assert paid[3:] @ weights == pytest.approx(0.9**3 * 0.9, abs=1e-6), "the last potential is kept at a time limit"


def test_the_value_of_states_telescopes_over_rollouts():
    states = np.array([[1, 5], [2, 5], [3, 5], [4, 5]])[:, None]  # (steps, environments, numbers)

    def rollout(ended, goal):
        infos = {"state": states, "goal_reached": np.array(goal)[:, None]}
        none = np.zeros((4, 1))
        return Played(torch.zeros(4, 1, 1), none.astype(int), none, np.array(ended)[:, None] > 0, infos)

    bonus = StatePotential(lambda rows: rows[:, 0] / 10.0, discount=0.9)
    first = bonus.paid(rollout([0, 0, 1, 0], [0, 0, 1, 0]))[:, 0]
    second = bonus.paid(rollout([1, 0, 0, 0], [0, 0, 0, 0]))[:, 0]
    weights = 0.9 ** np.arange(4)
    assert first[:3] @ weights[:3] == pytest.approx(0, abs=1e-6), "nothing is left of it once the goal is reached"
    assert first[3] == pytest.approx(0.9 * 0.4), "an episode begins at 0"
    assert second[0] == pytest.approx(0.9 * 0.1 - 0.4), "it goes on in the next rollout"
    assert second[1:] @ weights[:3] == pytest.approx(0.9**3 * 0.4)


def test_novelty_pays_for_what_is_rarely_seen():
    rng = np.random.default_rng(0)
    common = rng.integers(0, 255, (1, 1, 5, 5, 1)).repeat(64, 0)

    def rollout(pictures):
        none = np.zeros(pictures.shape[:2])
        return Played(torch.as_tensor(pictures.astype(np.uint8)), none.astype(int), none, none > 0, {})

    bonus, other = Novelty(scale=2.0, seed=3), Novelty(scale=2.0, seed=3)
    found = []
    for _ in range(60):
        pictures = common.copy()
        pictures[-1] = rng.integers(0, 255, (1, 5, 5, 1))
        found.append(bonus.paid(rollout(pictures)))
        np.testing.assert_array_equal(found[-1], other.paid(rollout(pictures)), "by its seed alone")
    assert found[-1].shape == (64, 1) and (found[-1] >= 0).all()
    assert np.mean(found[-20:], 0)[-1] > 5 * np.mean(found[-20:], 0)[:-1].mean()


def test_the_study_in_keys_and_doors_runs_once_and_is_told(tmp_path, monkeypatch):
    pytest.importorskip("vizdoom")
    monkeypatch.setattr(keys_doors_bonus, "RESULTS", tmp_path)
    monkeypatch.setattr(keys_doors_bonus, "MODELS", tmp_path)
    (path,) = keys_doors_bonus.main(True, "the command")
    page = (tmp_path / "keys_doors_bonus-quick.md").read_text()
    assert path == str(tmp_path / "keys_doors_bonus-quick.md") and "`the command`" in page
    assert (
        "| none | 0.000" in page
        and "| true events | 0.000" in page
        and "| value of 1,000 trajectories | 0.000" in page
        and "| RND | 0.000" in page
        and "2 maps x 1 learners x 64 steps" in page
    )
    before = keys_doors_bonus.result(True).path.read_bytes()
    monkeypatch.setattr(keys_doors_bonus, "learned", lambda *_: pytest.fail("run twice"))
    keys_doors_bonus.main(True, "another command")
    assert keys_doors_bonus.result(True).path.read_bytes() == before


def test_steps_to_solve_are_those_of_a_window_of_episodes():
    reached = [[[0, 10, 10, 0], [0, 0, 9, 10]], [[8, 8, 8, 8], [5, 5, 5, 5]]]
    entry = {"steps_per_rollout": 100, "ended": np.full((2, 2, 4), 10).tolist(), "reached": reached}
    steps = keys_doors_bonus.steps_to(entry, 0.8, 20)
    assert steps.tolist() == [[300, 400], [200, np.inf]]
