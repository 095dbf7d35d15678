"""Processes that share one fit: each learns from its part of every batch, and gradients are added up.

What is drawn at random is drawn for the whole batch by every process, which takes its part of it. A fit by several
processes therefore makes the updates of a fit by one; sums are added up in another order.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """By default this process alone."""

    rank: int = 0
    size: int = 1
    device: torch.device | str = "cpu"
    """Where tensors are that processes exchange."""

    @classmethod
    def join(cls, device: torch.device, distributed: bool | None = None) -> "Group":
        """The processes of ``torch.distributed``, which is set up where torchrun has started this one.

        Args:
            device: What this process computes on; "cuda" is the GPU of its local rank.
            distributed: False: this process alone; True: an error where there are no others to join.
        """
        started = dist.is_available() and (dist.is_initialized() or dist.is_torchelastic_launched())
        if distributed is False or not started:
            if distributed:
                raise ValueError(
                    "distributed=True, but torchrun has not started this process: torchrun --help says how"
                )
            return cls()
        if not dist.is_initialized():
            _initialise(device)
        return cls(dist.get_rank(), dist.get_world_size(), device) if dist.get_world_size() > 1 else cls()

    def leave(self) -> None:
        """What processes did together is done: each goes on alone."""
        if self.size > 1:
            dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    @property
    def part(self) -> slice | None:
        """Which of the episodes of a batch, or of other things in a row, are this process's; None: all of them."""
        return slice(self.rank, None, self.size) if self.size > 1 else None

    def share(self, items: list[T]) -> list[T]:
        """Those of some items that this process works on."""
        return items if self.part is None else items[self.part]

    def add_up(self, *tensors: Tensor) -> None:
        """Replace tensors of one type by their sums over all processes, the same to the bit in each."""
        if self.size == 1 or not tensors:
            return
        total = torch.cat([tensor.detach().reshape(-1).to(self.device) for tensor in tensors])
        dist.all_reduce(total)
        for tensor, part in zip(tensors, total.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def add_up_gradients(self, parameters: Iterable[Tensor]) -> None:
        """The same for gradients; every process has those of the same parameters."""
        self.add_up(*(parameter.grad for parameter in parameters if parameter.grad is not None))

    def add_up_array(self, array: NDArray[Any]) -> None:
        """The same for an array."""
        self.add_up(torch.from_numpy(array))

    def agree(self, module: torch.nn.Module) -> None:
        """Give a module the weights that it has in the first process."""
        if self.size > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                shared = tensor.detach().to(self.device)
                dist.broadcast(shared, 0)
                tensor.detach().copy_(shared)

    def of_first(self, value: T) -> T:
        """What the first process gives, in every process."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, 0, device=torch.device(self.device))
        return held[0]

    def check_same(self, **facts: Any) -> None:
        """An error in every process where what they are about to do is not the same."""
        if self.size == 1:
            return
        every: list[dict[str, Any]] = [{} for _ in range(self.size)]
        dist.all_gather_object(every, facts)
        for rank, other in enumerate(every):
            for name, value in every[0].items():
                if other.get(name) != value:
                    raise ValueError(
                        f"{name} {other.get(name)} in process {rank}, but {value} in process 0: all processes of "
                        "torchrun share one fit, so give them the same, or distributed=False for fits of their own"
                    )


ALONE = Group()


def _initialise(device: torch.device) -> None:
    """Set ``torch.distributed`` up as torchrun says; GPUs exchange gradients over NCCL, other devices over Gloo."""
    if device.type == "cuda":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= gpus:
            raise ValueError(
                f"{os.environ.get('LOCAL_WORLD_SIZE', local + 1)} processes on a machine with {gpus} GPUs: give "
                f"torchrun --nproc-per-node {gpus}, or device='cpu'"
            )
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
