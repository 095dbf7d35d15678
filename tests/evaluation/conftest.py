"""A benchmark small enough to run within a test, in its own process."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from tests.credit.conftest import cue_trajectories

from secret_rl.tasks import Data, Task, register_task, tasks
from secret_rl.tasks import task as registry


def cues(count, seed):
    """A cue decides the reward of a later door."""
    data = cue_trajectories(count, seed, kinds=(1, 0))
    return Data(replace(data, annotations={}), np.asarray(data.annotations["cue"], np.bool_))


@pytest.fixture
def cue_task(monkeypatch):
    """The task ``cue`` in the registry, for cells that run in this process."""
    tasks()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    return register_task(Task("cue", "here", "The door pays after the cue.", cues, 60, quick=60, judged="positive"))


def boxed(count, seed):
    """As ``cues``, with continuous actions."""
    made = cues(count, seed)
    data = made.trajectories
    actions = np.asarray(data.actions, np.float32)[:, None]
    return replace(made, trajectories=replace(data, actions=actions, action_space=spaces.Box(0, 1, (1,), np.float32)))
