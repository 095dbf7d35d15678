"""Tasks with known causes of their rewards: what credit methods are compared on."""

from secret_rl.tasks.task import HELD_OUT, TRAINING, Data, Task, load_data, register_task, task_of, tasks

__all__ = ["HELD_OUT", "TRAINING", "Data", "Task", "load_data", "register_task", "task_of", "tasks"]
