"""Recorded turns as steps of a chain: what was before each, who played it, what came after.

What a label teaches, it teaches wherever the student reads the same. So a step is known by the context that
the student read, where contexts come again, and else by the environment's own state.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from simulate.plan.pilot import STEP_KINDS as KINDS
from simulate.plan.pilot import Flags, Ints, Steps

LEAST_REPEATED = 0.25
"""Share of the student's turns that must be at contexts which another task met too."""


def repeated_share(node: Ints, cluster: Ints, teacher: Flags) -> float:
    """Share of the student's turns at nodes that at least two tasks met: what identity can tell."""
    pairs = np.unique(np.column_stack([node, cluster]), axis=0)
    tasks = np.bincount(pairs[:, 0], minlength=int(node.max()) + 1)
    return float((tasks[node[~teacher]] > 1).mean()) if (~teacher).any() else 0.0


def steps_of(episodes: pd.DataFrame, turns: pd.DataFrame) -> Steps:
    """Steps of the episodes (with the reader's columns `cluster` and `value`) from their turns."""
    columns = ["episode_id", "cluster", "length", "value", "status"]
    turns = turns[turns["kind"].isin(KINDS)].merge(episodes[columns], on="episode_id")
    turns = turns.sort_values(["episode_id", "t"], kind="stable")
    episode = turns["episode_id"].to_numpy(str)
    last = np.append(episode[1:] != episode[:-1], True)[: len(episode)]
    ended = last & (turns["status"] == "finished").to_numpy(bool)
    first = np.flatnonzero(np.append(True, last[:-1])[: len(episode)])
    own = np.arange(len(turns)) - np.repeat(first, np.diff(np.append(first, len(turns))))
    t = turns["t"].to_numpy(np.int64)
    cluster, taught = turns["cluster"].to_numpy(np.int64), (turns["author"] == "teacher").to_numpy(bool)
    node = _codes(turns["context_id"])
    state = node
    if len(turns) and turns["state_id"].notna().all():
        state = _codes(turns["state_id"])
        if repeated_share(node, cluster, taught) < LEAST_REPEATED <= repeated_share(state, cluster, taught):
            node = state
        elif len(np.unique(np.column_stack([node, state]), axis=0)) > state.max() + 1:
            state = node  # one state is read in several ways: the reading tells more
    value = turns["value"].to_numpy(float)
    return Steps(
        cluster=cluster,
        kind=np.array([KINDS.index(kind) for kind in turns["kind"]], np.int64),
        t=t,
        j=own,
        length=turns["length"].to_numpy(np.int64),
        teacher=taught,
        node=node,
        state=state,
        after=np.where(last, -1, np.arange(len(turns)) + 1),
        final=np.where(ended, value, np.nan),
        R=value,
        tokens=turns["output_tokens"].to_numpy(float),
        start=(own == 0) & (t == 1),
    )


def _codes(values: pd.Series[str]) -> Ints:
    return np.asarray(pd.factorize(values)[0], np.int64)
