"""What happened: collecting, keeping and reading trajectories."""

from secret_rl.trajectories.building import Recorder
from secret_rl.trajectories.collecting import collect
from secret_rl.trajectories.selection import TooFewSuccessesError
from secret_rl.trajectories.summary import Summary
from secret_rl.trajectories.types import Episode, Trajectories

__all__ = ["Episode", "Recorder", "Summary", "TooFewSuccessesError", "Trajectories", "collect"]
