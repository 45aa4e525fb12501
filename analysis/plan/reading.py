"""By what a context is told apart from others: the finest description under which contexts come again.

What a label teaches, it teaches wherever the student reads the same. In a prompt that holds the whole
history nothing is read twice, so coarser descriptions are tried in turn: the environment's own state, what
the last observation says, and how it begins. The coarser one is, the more of what is learnt is a guess.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.plan.pilot import Flags, Ints

IDENTITIES = ("context_id", "state_id", "observation", "opening")
"""From the finest to the coarsest: the whole history; the environment's state; the last observation, its
numbers masked; its first words, and the turn."""
COARSER = IDENTITIES[1:]
"""Those that stand for many contexts: how fast a student learns there is a guess with a prior of its own."""
LEAST_REPEATED = 0.25
"""Share of the student's turns that must be at contexts which another task met too."""
WORDS, TURNS = 4, 8
"""First words of an observation that are read; turns from here on are one."""


def repeated_share(node: Ints, cluster: Ints, teacher: Flags) -> float:
    """Share of the student's turns at nodes that at least two tasks met: what identity can tell."""
    pairs = np.unique(np.column_stack([node, cluster]), axis=0)
    tasks = np.bincount(pairs[:, 0], minlength=int(node.max(initial=0)) + 1)
    return float((tasks[node[~teacher]] > 1).mean()) if (~teacher).any() else 0.0


def identity_of(turns: pd.DataFrame) -> str:
    """The finest identity that comes again and tells contexts apart; the whole history's where none does.

    turns: rows of `turns` with `cluster`, sorted by episode and turn.
    """
    cluster, teacher = turns["cluster"].to_numpy(np.int64), (turns["author"] == "teacher").to_numpy(bool)
    for identity in IDENTITIES:
        if identity == "state_id" and not turns["state_id"].notna().all():
            continue
        node = np.asarray(pd.factorize(names(turns, identity))[0], np.int64)
        says_something = identity != "observation" or node.max(initial=0) >= TURNS
        if says_something and repeated_share(node, cluster, teacher) >= LEAST_REPEATED:
            return identity
    return IDENTITIES[0]


def names(turns: pd.DataFrame, identity: str) -> pd.Series[str]:
    """What the context before each turn is called; turns are sorted by episode and turn."""
    if identity in ("context_id", "state_id"):
        return turns[identity]
    # Only numbers differ between drawer 1 and drawer 2, or between two places of one kind.
    said = _last_observation(turns).str.lower().str.replace(r"\d+", "#", regex=True)
    if identity == "observation":
        return said
    opening = said.str.split().str[:WORDS].str.join(" ")
    return turns["t"].clip(upper=TURNS).astype(str) + " " + opening


def _last_observation(turns: pd.DataFrame) -> pd.Series[str]:
    """What the policy read last: empty before turn 1, where it read the task.

    An episode that goes on from another stores its own turns only: what came before its first one is known
    from the turn with the same context.
    """
    before = turns.groupby("episode_id", sort=False)["observation"].shift()
    known = before.notna()
    elsewhere = before[known].groupby(turns["context_id"][known]).first()
    before = before.where(known, turns["context_id"].map(elsewhere)).where(turns["t"] > 1, "")
    # Nobody recorded it: a context of its own.
    return before.where(before.notna(), turns["context_id"])
