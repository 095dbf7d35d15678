from .building import Recorder as Recorder
from .collecting import collect as collect
from .rollouts import TooFewSuccessesError as TooFewSuccessesError
from .types import Episode as Episode
from .types import Summary as Summary
from .types import Trajectories as Trajectories
