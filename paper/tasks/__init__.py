"""Tasks of others, each with the steps that truly earned its rewards: what credit is judged on beyond our own mazes."""

from paper.tasks import bsuite, minigrid, popgym, taxi
from paper.tasks.task import HELD_OUT, TRAINING, Data, Task

TASKS: dict[str, Task] = {task.name: task for family in (bsuite, minigrid, popgym, taxi) for task in family.TASKS}

__all__ = ["HELD_OUT", "TASKS", "TRAINING", "Data", "Task"]
