"""Occupancies over a Ray cluster: one Ray task a unit of row groups, merged in file order.

Units depend on the files and the memory setting only, so results do not depend on the number of machines, nor
on lost ones: Ray runs their tasks again. Tallies have the same bits as on a single machine. Files must be
readable under the same path on every node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from occupancy.record.columns import Names
from occupancy.record.errors import imported
from occupancy.streaming.estimate import Pass, StreamEstimate
from occupancy.streaming.partial import CELL_MEMORY, Partial, partial_of, with_ids
from occupancy.streaming.scan import RowGroups, batches_of, row_groups
from occupancy.streaming.stream import ROW_BYTES, Together, TurnStream, joined, starts_of, to_part

Unit = TypeVar("Unit")
Result = TypeVar("Result")
RETRIES = 10


@dataclass(frozen=True)
class Piece:
    """What a unit holds: sums of whole trajectories, and the rows at both ends that neighbours may share."""

    inner: Partial | None
    edges: tuple[dict[str, Any], ...]
    firsts: Any
    """Trajectory of every run of rows, as the file names it."""
    states: list[Any]
    """Texts of the states by id, empty for ids."""
    tasks: list[Any]


def estimate_on_ray(
    stream: TurnStream, *, n_empty: int = 0, cell_memory: int = CELL_MEMORY, tasks_at_once: int | None = None
) -> tuple[StreamEstimate, list[Any]]:
    """As `estimate_stream`, and the texts of the states; `ray.init` first for a cluster of yours."""
    units = row_groups(stream.files, stream.memory // ROW_BYTES)
    pieces = on_ray(
        lambda unit: read_piece(unit, stream, cells=cell_memory > 0), units, tasks_at_once=tasks_at_once
    )
    return merge(pieces, n_empty=n_empty, cell_memory=cell_memory)


def on_ray(
    work: Callable[[Unit], Result], units: Sequence[Unit], *, tasks_at_once: int | None = None
) -> Iterator[Result]:
    """work(unit) of every unit, in order; a unit lost with its machine is done again."""
    ray = imported("ray", "ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    resources: dict[str, float] = ray.cluster_resources()
    most = tasks_at_once or 2 * max(1, int(resources.get("CPU", 1)))
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(work)
    under_way: deque[Any] = deque()

    def done() -> Result:
        try:
            result: Result = ray.get(under_way.popleft())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # Ray's own has the traceback of the task for its message
        return result

    for unit in units:
        if len(under_way) == most:
            yield done()
        under_way.append(task.remote(unit))
    while under_way:
        yield done()


def read_piece(unit: RowGroups, stream: TurnStream, *, cells: bool = True) -> Piece:
    """Rows of a unit, cut into whole trajectories, which are summed up, and edges."""
    stream = TurnStream([unit.file], stream.columns, stream.memory, stream.keep, stream.read)
    wanted = stream.columns.needed if stream.read is None else stream.read
    found = map(stream.kept, batches_of(unit, stream.columns, wanted, stream.memory))
    batches = [{n: v.copy() for n, v in stream.arrays(b).items()} for b in found if b.num_rows]
    if not batches:
        return Piece(None, (), np.empty(0, np.int64), [], [])
    rows = joined(batches)
    starts = starts_of(rows["trajectory"])
    names = stream.trajectories.in_order
    raw = np.array(names, object) if names else None
    firsts = rows["trajectory"][starts] if raw is None else raw[rows["trajectory"][starts]]
    first = int(starts[1]) if len(starts) > 1 else len(rows["state"])
    last = int(starts[-1])
    spans = [(0, first, 0), (last, len(rows["state"]), -1)][: len(starts)]
    edges = tuple(
        {name: values[begin:end] for name, values in rows.items()} | {"name": firsts[at]}
        for begin, end, at in spans
    )
    inner = None
    if len(starts) > 2:
        whole = {name: values[first:last] for name, values in rows.items()}
        inner = partial_of(to_part(whole, starts[1:-1] - first), cells=cells, workers=1)
    return Piece(inner, edges, firsts, stream.states.in_order, stream.tasks.in_order)


def merge(
    pieces: Iterator[Piece], *, n_empty: int = 0, cell_memory: int = CELL_MEMORY
) -> tuple[StreamEstimate, list[Any]]:
    """Estimates from pieces in file order."""
    states, tasks, guard = Names(), Names(), Together()
    total = Pass(cell_memory)
    edges: list[dict[str, Any]] = []
    number = -1
    for piece in pieces:
        if not len(piece.firsts):
            continue
        lookup = {"state": states.lookup(piece.states), "task": tasks.lookup(piece.tasks)}
        continues = bool(edges) and edges[-1]["name"] == piece.firsts[0]
        guard.see(piece.firsts[1:] if continues else piece.firsts)
        if piece.inner is not None:
            total.add_sums(with_ids(piece.inner, lookup["state"], lookup["task"]))
        for edge in piece.edges:
            number += not edges or edges[-1]["name"] != edge["name"]
            ids = {n: edge[n] if known is None else known[edge[n]] for n, known in lookup.items()}
            edges.append(edge | ids | {"trajectory": np.full(len(edge["state"]), number)})
    guard.finish()
    if edges:
        rows = joined([{n: v for n, v in edge.items() if n != "name"} for edge in edges])
        part = to_part(rows, starts_of(rows["trajectory"]))
        total.add_sums(partial_of(part, cells=cell_memory > 0, workers=1))
    return total.finish(n_empty=n_empty), states.in_order
