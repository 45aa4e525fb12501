"""The turns of a run folder as a stream: one kind of episode, without failures, clustered by task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy.record.columns import Columns
from occupancy.record.errors import DataError
from occupancy.runs import open_run
from occupancy.streaming.stream import MEMORY, TurnStream

RUN_COLUMNS = Columns(trajectory="episode_id", state="context_id", task="cluster_id")
COUNTED = ("finished", "horizon", "turn_length", "context", "bad_parse", "capped")
"""Ends of an episode whose contexts count: those that are no error, and not the budget."""


@dataclass(frozen=True)
class RunTurns:
    """A stream of turns and the episodes that have none."""

    stream: TurnStream
    n_empty: int
    """Episodes of length 0."""
    n_left_out: int
    """Episodes that ended in an error or at the budget: no data for occupancies."""


def is_run(source: str | Path) -> bool:
    """Whether a path is a run folder."""
    return (Path(source) / "run.json").is_file()


def open_run_turns(
    folder: str | Path, columns: Columns = RUN_COLUMNS, *, kind: str = "rollout", memory: int = MEMORY
) -> RunTurns:
    """Turns of the episodes of one kind; the cluster of each comes from the table of episodes.

    A continuation stores its own turns only, so its contexts are those of the teacher.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    run = open_run(folder)
    episodes = run.read("episodes", columns=["episode_id", "cluster_id", "kind", "status", "length"])
    of_kind = episodes.filter(pc.equal(episodes["kind"], kind))
    if of_kind.num_rows == 0:
        kinds = sorted(set(episodes["kind"].to_pylist()))
        raise DataError(f"{folder} has no episodes of kind {kind!r}: expected one of {', '.join(kinds)}")
    counted = of_kind.filter(pc.is_in(of_kind["status"], value_set=pa.array(COUNTED, pa.large_string())))
    empty = int(pc.sum(pc.equal(counted["length"], 0)).as_py() or 0)
    ids, clusters = counted["episode_id"].combine_chunks(), counted["cluster_id"].combine_chunks()

    def keep(batch: Any) -> Any:
        at = pc.index_in(batch.column("episode_id"), value_set=ids)
        rows = pc.is_valid(at)
        kept = batch.filter(rows)
        return kept.append_column(RUN_COLUMNS.task, clusters.take(at.filter(rows)))

    stored = [name for name in columns.needed if name != RUN_COLUMNS.task]
    read = list(dict.fromkeys(["episode_id", *stored]))
    stream = TurnStream(run.files("turns"), columns, memory, keep, read)
    return RunTurns(stream, empty, of_kind.num_rows - counted.num_rows)
