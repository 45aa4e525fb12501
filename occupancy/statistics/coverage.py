"""Missing mass of an occupancy (Good-Turing), and its coverage by a training set.

New contexts come from new tasks, so a state is unseen if no other task has visited it: `by_task` is the
leave-one-task-out form of the Good-Turing estimate, with a clustered standard error. `by_turn`, f1 / n, is
the classical estimate for contexts drawn independently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from occupancy.record.errors import DataError
from occupancy.record.types import Int64, Trajectories
from occupancy.statistics.clusters import clusters
from occupancy.statistics.estimate import Mean, mean


@dataclass(frozen=True)
class MissingMass:
    """Share of contexts whose state has not been seen."""

    by_task: Mean
    """Weight in states that a single task visits: expected share of a new task that no task has seen."""
    by_turn: float
    """f1 / n of Good (1953): states met exactly once, over the turns."""
    singletons: int
    """f1."""


def missing_mass(trajectories: Trajectories, *, convention: str) -> MissingMass:
    """Good-Turing estimates of the unseen mass of a batch; arguments and errors as in `occupancy`.

    A turn whose weight is 0 visits nothing.
    """
    cluster, _ = clusters(trajectories)
    owner, states = np.repeat(cluster, trajectories.lengths), trajectories.states
    S, w = trajectories.n_states, trajectories.weights
    counted = slice(None) if convention != "weights" or w is None else w > 0
    pairs = np.unique((owner * S + states)[counted])
    tasks_of_state = np.bincount(pairs % S, minlength=S) if S else np.empty(0, np.int64)
    alone = (tasks_of_state == 1)[states]
    by_turn, singletons = good_turing(states[counted])
    by_task = mean(replace(trajectories, features=alone), convention=convention)
    return MissingMass(by_task, by_turn, singletons)


def good_turing(ids: npt.ArrayLike) -> tuple[float, int]:
    """Estimated mass of unseen values f1 / n (Good 1953), and f1: the values that occur once among n ids."""
    values = np.asarray(ids)
    singletons = int((np.unique(values, return_counts=True)[1] == 1).sum())
    return singletons / len(values) if len(values) else math.nan, singletons


def coverage(trajectories: Trajectories, training_states: npt.ArrayLike, *, convention: str) -> Mean:
    """Fraction of the contexts whose state is in the training set, with its standard error.

    Args:
        trajectories: The learner's trajectories.
        training_states: [n] state ids, in any order, repeats allowed.
        convention: As in `occupancy`.

    Raises:
        DataError: A training state is no state id, or no context has weight.
    """
    trained = np.asarray(training_states)
    if trained.size and (trained.dtype.kind not in "iu" or trained.min() < 0):
        raise DataError(f"training states of type {trained.dtype}: expected state ids from 0 up")
    seen = np.zeros(trajectories.n_states, bool)
    known: Int64 = trained.astype(np.int64)
    seen[known[known < trajectories.n_states]] = True
    return mean(replace(trajectories, features=seen[trajectories.states]), convention=convention)
