"""Batches of trajectories as tables of turns."""

import numpy as np
import pyarrow as pa

from occupancy import Trajectories
from occupancy.record.columns import Columns

COLUMNS = Columns(weight="w", feature=("f", "g"))


def table_of(batch: Trajectories, *, text: bool = False, first: int = 0) -> pa.Table:
    owner = np.repeat(np.arange(len(batch)), batch.lengths) + first
    named = (lambda prefix, ids: [f"{prefix}{i}" for i in ids]) if text else (lambda prefix, ids: ids)
    return pa.table(
        {
            "trajectory": named("run", owner),
            "state": named("s", batch.states),
            "task": named("task", np.repeat(batch.tasks, batch.lengths)),
            "w": batch.weights,
            "f": batch.features[:, 0],
            "g": batch.features[:, 1],
        }
    )


def dense(batch: Trajectories) -> Trajectories:
    """The batch as a file can hold it: no empty trajectories, states numbered by first appearance."""
    kept = batch.lengths > 0
    return Trajectories(
        np.concatenate([[0], np.cumsum(batch.lengths[kept])]),
        batch.states,
        batch.tasks[kept],
        features=batch.features,
        weights=batch.weights,
    )
