"""A world fitted to a pilot: classes of contexts as states, and the kernels of student and teacher.

In class x the student moves by P_S(x, .) and the teacher by P_E(x, .). A world with these two moves as its
actions, in which pi_0 always plays the first and pi_e the second, has exactly the chain of a student that
plays as the teacher in a fraction p_x of its turns: diag(1 - p) P_S + diag(p) P_E. What is learned in one
context of a class says nothing about another, so each class is copied into as many contexts as it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occupancy.runs import Run
from simulate.worlds.recovery import zipf as zipf_law
from simulate.worlds.types import Float64, Int64, World, WorldError

ENDS = 2


def fitted_world(
    *,
    start: Float64,
    student: Float64,
    teacher: Float64,
    tokens: Any,
    horizon: int,
    diversity: Any = None,
    zipf: float = 1.0,
    name: str = "fitted",
) -> World:
    """A world from class kernels.

    `student` and `teacher` [X, X + 2] hold the law of the following class, with success and failure as the
    last two columns; `start` [X]; `tokens` [X] mean tokens of a teacher turn; `diversity` [X] the number of
    contexts in each class (default 1), whose frequencies follow a Zipf law.
    """
    student, teacher = np.asarray(student, np.float64), np.asarray(teacher, np.float64)
    X = len(student)
    if student.shape != (X, X + ENDS) or teacher.shape != (X, X + ENDS):
        raise WorldError(
            f"student and teacher have shapes {student.shape} and {teacher.shape}: expected both "
            f"({X}, {X + ENDS}), classes by classes and the two ends"
        )
    copies = np.ones(X, np.int64) if diversity is None else np.asarray(diversity, np.int64)
    if copies.shape != (X,) or (copies < 1).any():
        raise WorldError(f"diversity={copies.tolist()}: expected at least 1 context for each of {X} classes")
    own = np.repeat(np.arange(X), copies)
    share = np.concatenate([zipf_law(n, zipf) for n in copies])
    S = len(own)
    # Every state lists every context that its class can move to; columns S and S + 1 are the ends.
    target = np.concatenate([own, [X, X + 1]])
    weight = np.concatenate([share, [1.0, 1.0]])
    successors = np.tile(np.arange(S + ENDS, dtype=np.int32), (S, 1))
    chances = np.stack([student[own][:, target] * weight, teacher[own][:, target] * weight], axis=1)
    plays_student, plays_teacher = np.tile([1.0, 0.0], (S, 1)), np.tile([0.0, 1.0], (S, 1))
    return World(
        name=name,
        start=np.asarray(start, np.float64)[own] * share,
        successors=successors,
        chances=chances,
        teacher=plays_teacher,
        base=plays_student,
        contexts=np.arange(S, dtype=np.int32),
        features=np.eye(S),
        tokens=np.rint(np.asarray(tokens, np.float64)[own]).astype(np.int64),
        horizon=horizon,
    )


def fit_world(run: Run, *, column: str = "context_id", least: int = 3, prior: float = 1.0) -> World:
    """A world fitted to a pilot's own turns.

    Classes are the values of a column of `turns`; those seen fewer than `least` times are one class with
    as many contexts as it has values. A kernel's row is the counts plus `prior` turns spread as all turns
    of its author are.
    """
    turns = run.read("turns", columns=["episode_id", "t", "author", "output_tokens", column]).to_pandas()
    ends = run.read("episodes", columns=["episode_id", "R", "status"]).to_pandas()
    turns = turns.merge(ends[ends["status"].isin(("finished", "horizon"))], on="episode_id")
    authors = set(turns["author"])
    if authors != {"student", "teacher"}:
        raise WorldError(
            f"the run has turns of {sorted(authors)}: expected student and teacher; play a pilot"
        )
    turns = turns.sort_values(["episode_id", "t"], kind="stable")
    counts = turns[column].value_counts()
    common = sorted(counts[counts >= least].index)
    codes = {value: i for i, value in enumerate(common)}
    rare = len(counts) - len(common)
    X = len(common) + (rare > 0)
    own = turns[column].map(codes).fillna(X - 1).to_numpy(np.int64)
    last = turns["episode_id"].ne(turns["episode_id"].shift(-1)).to_numpy()
    won = turns["R"].fillna(0).ge(run.recipe.success_at).to_numpy()
    following = np.append(own[1:], 0)
    following[last] = np.where(won[last], X, X + 1)
    # The horizon is the world's own; an episode that met it says nothing about its last move.
    usable = ~(last & turns["status"].eq("horizon").to_numpy())
    kernels = {}
    for author in ("student", "teacher"):
        mine = usable & turns["author"].eq(author).to_numpy()
        kernels[author] = _kernel(own[mine], following[mine], X, prior)
    tokens = np.bincount(own, turns["output_tokens"].to_numpy(np.float64), X) / np.bincount(own, minlength=X)
    first = np.bincount(own[turns["t"].eq(1).to_numpy()], minlength=X).astype(np.float64)
    return fitted_world(
        start=first / first.sum(),
        student=kernels["student"],
        teacher=kernels["teacher"],
        tokens=np.maximum(tokens, 1),
        horizon=run.recipe.T_max,
        diversity=np.append(np.ones(len(common), np.int64), [rare] if rare else []).astype(np.int64),
        name=f"fitted to {run.folder.name}",
    )


def _kernel(own: Int64, following: Int64, X: int, prior: float) -> Float64:
    counts = np.zeros((X, X + ENDS))
    np.add.at(counts, (own, following), 1.0)
    pooled = counts.sum(axis=0) / counts.sum()
    rows = counts + prior * pooled
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))
