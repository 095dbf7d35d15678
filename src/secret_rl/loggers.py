"""Where numbers go while something learns: TensorBoard, Weights & Biases, or any object with ``log``.

``Secret.fit`` and ``sb3.train`` take one as ``logger=``. Each library is imported when its logger is made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self


class Logger(Protocol):
    """What ``logger=`` takes: numbers by name, at a step.

    >>> class Printed:
    ...     def log(self, step, values):
    ...         print(step, values)
    >>> Printed().log(10, {"fit/gain": 0.5})
    10 {'fit/gain': 0.5}
    """

    def log(self, step: int, values: Mapping[str, float], /) -> None:
        """Numbers that belong to a step; it may be called several times for one."""


class TensorBoardLogger:
    """Writes to a folder for ``tensorboard --logdir``. Needs the extra ``tensorboard``.

    Args:
        folder: Where to write; one folder for each run.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as missing:
            needed = 'TensorBoardLogger needs the tensorboard extra: pip install "secret-rl[tensorboard]"'
            raise ModuleNotFoundError(needed) from missing
        self.folder = Path(folder)
        self._writer = SummaryWriter(str(folder))

    def log(self, step: int, values: Mapping[str, float], /) -> None:
        """Write numbers."""
        for name, value in values.items():
            self._writer.add_scalar(name, float(value), step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WandbLogger:
    """A run of Weights & Biases. Needs the extra ``wandb``.

    With ``mode="offline"``, or ``WANDB_MODE=offline`` in the environment, nothing is sent; ``wandb sync`` does so.

    Args:
        project: Name of the project.
        options: Others of ``wandb.init``, such as ``name``, ``config``, ``mode``, ``dir``.
    """

    def __init__(self, project: str | None = None, **options: Any) -> None:
        try:
            import wandb
        except ModuleNotFoundError as missing:
            needed = 'WandbLogger needs the wandb extra: pip install "secret-rl[wandb]"'
            raise ModuleNotFoundError(needed) from missing
        self.run = wandb.init(project=project, **options)
        """The run, for what else you want to keep in it."""
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float], /) -> None:
        """Add numbers. Steps may start again from 0: they are a number among the others."""
        self.run.log({"step": step, **{name: float(value) for name, value in values.items()}})

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_logger(logger: Any) -> None:
    """An error unless it has ``log``."""
    if logger is not None and not callable(getattr(logger, "log", None)):
        expected = "an object with log(step, {name: number}), such as TensorBoardLogger(folder)"
        raise TypeError(f"logger must be {expected}, got {logger!r}")
