"""What happened: collecting, keeping and reading trajectories."""

from secret_rl.trajectories.building import Recorder
from secret_rl.trajectories.collect import collect
from secret_rl.trajectories.rollouts import TooFewSuccessesError
from secret_rl.trajectories.types import Episode, Summary, Trajectories

__all__ = ["Episode", "Recorder", "Summary", "TooFewSuccessesError", "Trajectories", "collect"]
