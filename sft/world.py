"""The processes that train together, as torchrun starts them; one process needs no launcher."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class World:
    """One process among `size`."""

    rank: int
    size: int
    device: torch.device
    mesh: Any = None
    """Device mesh for sharding; None where parameters are not sharded."""

    def sum(self, *values: torch.Tensor) -> list[torch.Tensor]:
        """Sums over all processes."""
        if self.size > 1:
            for value in values:
                dist.all_reduce(value)
        return list(values)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()


def join(*, sharded: bool = False) -> World:
    """Join the processes of this launch; `sharded` builds a mesh even for one process."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if size == 1 and not (sharded and cuda):
        return World(rank, size, device)
    if not dist.is_initialized():
        if size == 1:
            store = dist.HashStore()
            dist.init_process_group("nccl", store=store, rank=0, world_size=1)
        else:
            dist.init_process_group("nccl" if cuda else "gloo")
    from torch.distributed.device_mesh import init_device_mesh

    return World(rank, size, device, init_device_mesh(device.type, (size,)))


def leave() -> None:
    """Close what `join` opened."""
    if dist.is_initialized():
        dist.destroy_process_group()
