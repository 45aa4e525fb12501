"""Recorded turns as steps of a chain: what was before each, who played it, what came after.

A step is known by its context as `reading` tells it apart, and by the environment's own state where that
tells more of where the episode is.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.plan.pilot import STEP_KINDS as KINDS
from analysis.plan.pilot import Ints, Steps
from analysis.plan.reading import LEAST_REPEATED, identity_of, names, repeated_share
from analysis.plan.signs import hashed_words


def steps_of(episodes: pd.DataFrame, turns: pd.DataFrame) -> Steps:
    """Steps of the episodes (with the reader's columns `cluster` and `value`) from their turns."""
    columns = ["episode_id", "cluster", "length", "value", "status"]
    turns = turns[turns["kind"].isin(KINDS)].merge(episodes[columns], on="episode_id")
    turns = turns.sort_values(["episode_id", "t"], kind="stable")
    episode = turns["episode_id"].to_numpy(str)
    last = np.append(episode[1:] != episode[:-1], True)[: len(episode)]
    value = turns["value"].to_numpy(float)
    # What the horizon cut and was yet a success has ended: the environment scores it there.
    ended = last & ((turns["status"] == "finished").to_numpy(bool) | (value > 0))
    first = np.flatnonzero(np.append(True, last[:-1])[: len(episode)])
    own = np.arange(len(turns)) - np.repeat(first, np.diff(np.append(first, len(turns))))
    t = turns["t"].to_numpy(np.int64)
    cluster, taught = turns["cluster"].to_numpy(np.int64), (turns["author"] == "teacher").to_numpy(bool)
    identity = identity_of(turns)
    node = _codes(names(turns, identity))
    state = node
    if turns["state_id"].notna().all():
        finer = _codes(turns["state_id"])
        one_reading = len(np.unique(np.column_stack([node, finer]), axis=0)) == len(np.unique(finer))
        if one_reading and repeated_share(finer, cluster, taught) >= LEAST_REPEATED:
            state = finer
    return Steps(
        cluster=cluster,
        kind=np.array([KINDS.index(kind) for kind in turns["kind"]], np.int64),
        t=t,
        j=own,
        length=turns["length"].to_numpy(np.int64),
        teacher=taught,
        identity=identity,
        node=node,
        state=state,
        after=np.where(last, -1, np.arange(len(turns)) + 1),
        final=np.where(ended, value, np.nan),
        R=value,
        tokens=turns["output_tokens"].to_numpy(float),
        start=(own == 0) & (t == 1),
        logprob=turns["logprob"].to_numpy(float, na_value=np.nan),
        unparsed=(turns["parse_status"] != "ok").to_numpy(bool),
        repeats=turns.duplicated(["episode_id", "text"]).to_numpy(bool),
        words=hashed_words(names(turns, "observation")),
    )


def _codes(values: pd.Series[str]) -> Ints:
    return np.asarray(pd.factorize(values)[0], np.int64)
