"""Held-out NLL of the teacher's turns by depth and by class of context: the planner is calibrated on it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from occupancy.record.errors import InputError
from sft.model import DevicePack
from sft.packing import TrainingRows, make_batch
from sft.world import World

Array = NDArray[Any]
BATCH = 64
"""Rows that are packed at a time."""


@dataclass(frozen=True)
class HeldOut:
    """Mean NLL in nats per target token, with the number of targets."""

    nll: float
    targets: int
    by_depth: dict[int, tuple[float, int]]
    """j of the teacher turn -> (mean, targets)."""
    by_class: dict[str, tuple[float, int]]
    """Class of the context -> (mean, targets)."""
    by_turn: tuple[tuple[str, int, float, int], ...] = ()
    """(episode, j of the teacher turn, mean, targets); empty where the rows name no episodes."""


def split(rows: TrainingRows, *, share: float, seed: int) -> tuple[TrainingRows, TrainingRows]:
    """(rows to train on, rows held out); a cluster is on one side only, the same for any other data."""
    digests = (hashlib.blake2b(f"{seed}:{c}".encode(), digest_size=8).digest() for c in rows.clusters)
    limit = int(share * 2**64)
    held = np.array([int.from_bytes(digest, "big") < limit for digest in digests], bool)
    if held.all():
        raise InputError(
            f"held_out={share} leaves nothing of {len(rows)} rows to train on: lower it, or add tasks"
        )
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


@torch.no_grad()
def measure(objective: nn.Module, rows: TrainingRows, *, capacity: int, kernel: str, world: World) -> HeldOut:
    """Mean NLL of every target of the rows under the model as it is, in nats; sums are in float64.

    Args:
        objective: the model with its loss, on its device.
        rows: n held-out rows.
        capacity: most ids of a pack.
        kernel: attention kernel, see `attention.choose`.
        world: the processes that measure together; each gets all numbers.
    """
    if not len(rows):
        raise InputError("no rows are held out: raise held_out, or add tasks")
    depths = int(rows.depth.max()) + 1
    turns = torch.zeros(2, len(rows), depths, dtype=torch.float64, device=world.device)
    was_training = objective.training
    objective.eval()
    for start in range(0, len(rows), BATCH):
        index = list(range(start, min(start + BATCH, len(rows))))
        step = make_batch(rows, index, capacity=capacity, world=world.size)
        for pack in step.of_rank(world.rank, world.size):
            _, nll = objective(DevicePack(pack, kernel=kernel, device=world.device), None)
            turn = torch.from_numpy(pack.rows.astype(np.int64) * depths + pack.depth).to(world.device)
            both = torch.stack([nll.double(), torch.ones_like(nll, dtype=torch.float64)])
            turns.view(2, -1).index_add_(1, turn, both)
    objective.train(was_training)
    world.sum(turns)
    sums, counts = turns.cpu().numpy()
    return _report(sums, counts, rows)


def _report(sums: Array, counts: Array, rows: TrainingRows) -> HeldOut:
    """From the summed NLL and the number of targets of every teacher turn, [n, depths] each."""
    owner = np.repeat(np.arange(len(rows)), rows.lengths)[rows.targets]
    classes = np.zeros(counts.shape, np.int64)
    classes[owner, rows.depth[rows.targets]] = rows.classes[rows.targets]
    names, (row, depth) = rows.episodes, counts.nonzero()
    total, targets = sums[row, depth], counts[row, depth]

    def means(group: Array) -> dict[int, tuple[float, int]]:
        nll, n = np.bincount(group, total), np.bincount(group, targets)
        return {int(g): (float(nll[g] / n[g]), int(n[g])) for g in np.flatnonzero(n)}

    turns = zip(row, depth, total / targets, targets, strict=True)
    return HeldOut(
        nll=float(total.sum() / targets.sum()),
        targets=int(targets.sum()),
        by_depth=means(depth),
        by_class={rows.class_names[c]: cell for c, cell in means(classes[row, depth]).items()},
        by_turn=tuple((names[i], int(j), float(nll), int(n)) for i, j, nll, n in turns) if names else (),
    )


def from_dict(entry: Mapping[str, Any] | None) -> HeldOut | None:
    """Inverse of `dataclasses.asdict`, from JSON, where every key is a text."""
    if entry is None:
        return None

    def cells(found: dict[Any, Any], key: Any) -> dict[Any, tuple[float, int]]:
        return {key(k): (float(v[0]), int(v[1])) for k, v in found.items()}

    return HeldOut(
        nll=entry["nll"],
        targets=entry["targets"],
        by_depth=cells(entry["by_depth"], int),
        by_class=cells(entry["by_class"], str),
        by_turn=tuple((str(e), int(j), float(nll), int(n)) for e, j, nll, n in entry.get("by_turn", ())),
    )
