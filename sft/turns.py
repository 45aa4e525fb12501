"""Every teacher turn of a training: what was trained on, and the NLL of what was not.

The planner reads these rows (table `trained_turns`): targets trained on and held-out NLL, before and after,
by whatever classes of contexts it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sft.held_out import HeldOut
from sft.rows import Data


def turn_rows(
    training_id: str, data: Data, *, before: HeldOut | None, after: HeldOut | None
) -> list[dict[str, Any]]:
    """Rows of `trained_turns`; turns that a length rule took away have none."""
    first, last = _by_turn(before), _by_turn(after)
    rows = []
    for trace, classes in zip(data.traces, data.classes, strict=True):
        for row in trace.rendered.rows:
            depths, targets = np.unique(row.depth[row.targets], return_counts=True)
            for j, n in zip(depths.tolist(), targets.tolist(), strict=True):
                turn = (trace.episode_id, j)
                rows.append(
                    {
                        "training_id": training_id,
                        "episode_id": trace.episode_id,
                        **trace.key,
                        "cluster_id": trace.cluster_id,
                        "t": trace.turns[j - 1],
                        "depth": j,
                        "context_class": classes[j - 1],
                        "targets": n,
                        "held_out": turn in last,
                        "nll_before": first.get(turn),
                        "nll": last.get(turn),
                    }
                )
    return rows


def _by_turn(held: HeldOut | None) -> dict[tuple[str, int], float]:
    return {} if held is None else {(episode, j): nll for episode, j, nll, _ in held.by_turn}
