"""Held-out NLL of the teacher's turns by depth and by class of context: the planner is calibrated on it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from occupancy.record.errors import InputError
from sft.model import DevicePack
from sft.packing import TrainingRows, make_batch
from sft.world import World


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
    kept, out = _sides(rows.clusters, share, seed)
    if not kept:
        raise InputError(
            f"held_out={share} leaves nothing of {len(rows)} rows to train on: lower it, or add tasks"
        )
    return rows.take(kept), rows.take(out)


def _sides(clusters: Sequence[str], share: float, seed: int) -> tuple[list[int], list[int]]:
    limit = int(share * 2**64)
    held: dict[str, bool] = {}
    for cluster in set(clusters):
        digest = hashlib.blake2b(f"{seed}:{cluster}".encode(), digest_size=8).digest()
        held[cluster] = int.from_bytes(digest, "big") < limit
    index = range(len(clusters))
    return [i for i in index if not held[clusters[i]]], [i for i in index if held[clusters[i]]]


@torch.no_grad()
def measure(
    objective: nn.Module, rows: TrainingRows, *, capacity: int, kernel: str, world: World, batch: int = 64
) -> HeldOut:
    """Mean NLL of every target of the rows under the model as it is, in nats; sums are in float64.

    Args:
        objective: the model with its loss, on its device.
        rows: n held-out rows.
        capacity: most ids of a pack.
        kernel: attention kernel, see `attention.choose`.
        world: the processes that measure together; each gets all numbers.
        batch: rows packed at a time.
    """
    if not len(rows):
        raise InputError("no rows are held out: raise held_out, or add tasks")
    deepest = int(rows.depth.max())
    sums = torch.zeros(len(rows.class_names), deepest + 1, dtype=torch.float64, device=world.device)
    counts = torch.zeros_like(sums)
    turns = torch.zeros(2, len(rows), deepest + 1, dtype=torch.float64, device=world.device)
    was_training = objective.training
    objective.eval()
    for start in range(0, len(rows), batch):
        index = list(range(start, min(start + batch, len(rows))))
        step = make_batch(rows, index, capacity=capacity, world=world.size)
        for pack in step.of_rank(world.rank, world.size):
            _, nll = objective(DevicePack(pack, kernel=kernel, device=world.device), None)
            cell = torch.from_numpy(pack.classes.astype(np.int64) * (deepest + 1) + pack.depth)
            cell = cell.to(world.device)
            turn = torch.from_numpy(pack.rows.astype(np.int64) * (deepest + 1) + pack.depth)
            turn = turn.to(world.device)
            nll = nll.double()
            for total, place in ((sums, cell), (turns[0], turn)):
                total.view(-1).index_add_(0, place, nll)
            for total, place in ((counts, cell), (turns[1], turn)):
                total.view(-1).index_add_(0, place, torch.ones_like(nll))
    objective.train(was_training)
    world.sum(sums, counts, turns)
    by_turn = _by_turn(turns[0].cpu(), turns[1].cpu(), rows.episodes) if rows.episodes else ()
    return dataclasses.replace(_report(sums.cpu(), counts.cpu(), rows.class_names), by_turn=by_turn)


def _by_turn(
    sums: Tensor, counts: Tensor, episodes: tuple[str, ...]
) -> tuple[tuple[str, int, float, int], ...]:
    places = counts.nonzero().tolist()
    return tuple((episodes[i], j, float(sums[i, j] / counts[i, j]), int(counts[i, j])) for i, j in places)


def _report(sums: Tensor, counts: Tensor, names: tuple[str, ...]) -> HeldOut:
    def cells(axis: int) -> dict[int, tuple[float, int]]:
        s, n = sums.sum(axis), counts.sum(axis)
        return {j: (float(s[j] / n[j]), int(n[j])) for j in range(len(n)) if n[j]}

    by_class = {names[c]: cell for c, cell in cells(1).items()}
    return HeldOut(float(sums.sum() / counts.sum()), int(counts.sum()), cells(0), by_class)


def choose(measured: Sequence[tuple[str, HeldOut | None]], rule: str) -> str:
    """The checkpoint that the rule takes: the lowest NLL (the earliest of equals), or the last."""
    if rule == "last" or any(held is None for _, held in measured):
        return measured[-1][0]
    known = [(held.nll, at) for at, (_, held) in enumerate(measured) if held and math.isfinite(held.nll)]
    return measured[min(known)[1] if known else -1][0]


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
