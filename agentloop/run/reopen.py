"""What is looked at before a run goes on.

Units whose world did not open are tried again by the same command, also once all others are done. A folder
that holds an episode twice is refused.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from agentloop.run.rows import Rows
from agentloop.types import Status
from occupancy.record.errors import DataError
from occupancy.runs import Run

WITHDRAWN = ".withdrawn-"
BROKEN = (Status.ENVIRONMENT_ERROR, Status.RETRIEVER_FAILED)


def never_began(rows: Rows) -> str | None:
    """What the world said, where a unit is one episode that failed before its first turn; else None."""
    episodes = rows.get("episodes", ())
    if len(episodes) != 1 or episodes[0]["status"] not in BROKEN or episodes[0]["length"]:
        return None
    return str(episodes[0]["error"])


def refuse_twice(run: Run) -> None:
    """DataError where an episode is there twice: its turns would be counted, and trained on, twice."""
    ids = run.read("episodes", columns=["episode_id"])["episode_id"]
    for row in ids.value_counts().to_pylist() if len(ids) > len(ids.unique()) else ():
        if row["counts"] > 1:
            raise DataError(
                f"{run.folder} holds episode {row['values']} {row['counts']} times: a part was copied, or "
                f"two runs were put into one folder; take one of its parts away"
            )


def withdraw_unopened(run: Run) -> bool:
    """Take back the parts that say only what did not open; whether there are or have been any.

    Nothing is deleted: such a part, which holds no turn, is renamed to `.withdrawn-…` and no longer read.
    """
    parts = run.folder / "parts"
    for part in sorted(parts.glob("[0-9]*")):
        if _unopened(part):
            part.rename(parts / f"{WITHDRAWN}{part.name}-{len(list(parts.glob(WITHDRAWN + '*')))}")
    return any(parts.glob(WITHDRAWN + "*"))


def _unopened(part: Path) -> bool:
    if (part / "turns.parquet").exists() or not (part / "episodes.parquet").exists():
        return False
    rows = pq.read_table(
        part / "episodes.parquet", columns=["status", "length"], partitioning=None
    ).to_pylist()
    return all(row["status"] in BROKEN and not row["length"] for row in rows)
