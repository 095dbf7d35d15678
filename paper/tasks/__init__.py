"""Tasks of others, each with the steps that truly earned its rewards: what credit is judged on beyond our own mazes."""

from paper.tasks import bsuite, minigrid, mountain_car, no_past, popgym, taxi
from paper.tasks.task import HELD_OUT, TRAINING, Data, Task

_FAMILIES = (bsuite, minigrid, mountain_car, popgym, taxi, no_past)
TASKS: dict[str, Task] = {task.name: task for family in _FAMILIES for task in family.TASKS}

__all__ = ["HELD_OUT", "TASKS", "TRAINING", "Data", "Task"]
