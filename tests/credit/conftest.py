"""A memory task small enough to be learned in seconds, and models for it."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.quick import quick_fits

from secret_rl.credit import ModelOptions, RewardClasses, RewardPredictor, Secret
from secret_rl.credit.secret import fit as fitting
from secret_rl.credit.secret import memoryless
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.spaces import to_json

FILLER, GOOD_CUE, BAD_CUE, DOOR = range(4)
LENGTH = 8
SIGNS = RewardClasses((-1.0, 0.0, 1.0), (-0.05, 0.05))


@contextmanager
def single_threaded():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums come out the same to the last bit whatever the machine, and tiny models run faster."""
    with single_threaded():
        yield


def same_weights(one, other):
    """Whether two models are the same to the bit, their predictors without memory included."""
    mine, theirs = ({**s.model.state_dict(), **s.memoryless.state_dict(prefix="alone.")} for s in (one, other))
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def episodes_of(observations, rewards, actions=None, seen=None, done=None):
    """Trajectories of what was observed, paid and done (0 unless given) in each episode, in two spaces."""
    actions = [np.zeros(len(r), np.int64) for r in rewards] if actions is None else actions
    made = [
        {"observations": o, "actions": a, "rewards": np.asarray(r, float)}
        for o, a, r in zip(observations, actions, rewards, strict=True)
    ]
    seen = seen or spaces.Discrete(int(np.max(observations)) + 1)
    return Trajectories.from_episodes(made, observation_space=seen, action_space=done or spaces.Discrete(2))


def cut(data, steps):
    """Some steps of each episode, by its number."""
    made = []
    for number, episode in enumerate(data):
        columns = {name: getattr(episode, name)[steps(number)] for name in ("observations", "actions", "rewards")}
        made.append({**columns, "annotations": {"cue": episode.annotations["cue"][steps(number)]}})
    return type(data).from_episodes(made, observation_space=data.observation_space, action_space=data.action_space)


def cue_trajectories(count, seed=0, kinds=(1, -1, 0), doors=None):
    """Episodes of 8 steps: a cue at an early step, and at the last step a door whose reward the cue decides.

    ``kinds`` are the rewards that occur, equally often; without a cue the door gives nothing. Were there a cue in
    every episode, "no good cue so far" would tell as much as the bad cue, and attention might rightly ignore it.
    ``doors`` are the symbols of the door by reward, if they differ.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for number in range(count):
        reward = kinds[number % len(kinds)]
        observations = np.full(LENGTH, FILLER)
        cue_step = int(rng.integers(LENGTH - 2))
        observations[cue_step] = {1: GOOD_CUE, -1: BAD_CUE, 0: FILLER}[reward]
        observations[-1] = doors[reward] if doors else DOOR
        rewards = np.zeros(LENGTH)
        rewards[-1] = reward
        annotations = {"cue": (np.arange(LENGTH) == cue_step) & (reward != 0)}
        episode = {"observations": observations, "actions": rng.integers(0, 2, LENGTH), "rewards": rewards}
        episodes.append({**episode, "terminated": True, "annotations": annotations})
    symbols = max(doors.values()) + 1 if doors else DOOR + 1
    return Trajectories.from_episodes(
        episodes, observation_space=spaces.Discrete(symbols), action_space=spaces.Discrete(2)
    )


def random_model(observation_space, action_space, seed=0, kind=RewardPredictor, classes=3, **options):
    """A predictor whose weights, those of the sink included, are far from zero: attention has peaks."""
    options = ModelOptions(**{"units": 16, **options})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(to_json(observation_space), to_json(action_space), classes, options)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture
def cues():
    return cue_trajectories


@pytest.fixture
def make_model():
    return random_model


@pytest.fixture(scope="session")
def signs():
    """Classes of negative rewards, zeros and positive rewards."""
    return SIGNS


@pytest.fixture(scope="session")
def learned():
    """A predictor that has learned the memory task; not to be changed."""
    with single_threaded():
        return Secret(units=32, steps=400, device="cpu").fit(cue_trajectories(600))


@contextmanager
def little_work():
    """A few updates of the predictors without memory and of the one that pools the past; any data is learned from."""
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch, updates=2, batch=64)
        patch.setattr(memoryless, "_VALIDATE_EVERY", 2)
        patch.setattr(fitting, "_NOTHING_OPEN", 0.0)
        yield


@pytest.fixture
def quick():
    """Spend no time on what is not tested."""
    with little_work():
        yield
