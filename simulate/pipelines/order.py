"""What a pipeline is asked to buy, as the numbers that compiled code reads, and the columns of its ledger."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occupancy import Recipe

AXES = ("inference", "training")
ALL, WITHOUT_SUCCESS, NO_REPETITION = 0, 1, 2
PSI = {"all": ALL, "without_success": WITHOUT_SUCCESS, "no_repetition": NO_REPETITION}
UNIFORM, FIXED, START, TEACHER = 0, 1, 2, 3
LAW = {"uniform": UNIFORM, "fixed": FIXED, "start": START, "teacher": TEACHER}

DEMO, ROLLOUT, SWITCH, CONTINUE = 0, 1, 2, 3
STREAMS = 4
"""Streams of draws: demonstrations, rollouts, switch times, continuations."""

LEDGER = (
    "C_i_bc",
    "C_i_op",
    "C_tr_op",
    "tasks_bc",
    "tasks_op",
    "proposals",
    "switched",
    "accepted",
    "labels_bc",
    "labels_op",
)
"""Columns of a pipeline's ledger: teacher tokens bought for D_BC, for D_OP, and trained on in D_OP; tasks of
each; proposals made, switched and accepted; teacher turns trained on in each."""
(C_I_BC, C_I_OP, C_TR_OP, TASKS_BC, TASKS_OP, PROPOSALS, SWITCHED, ACCEPTED, LABELS_BC, LABELS_OP) = range(
    len(LEDGER)
)


class Order(NamedTuple):
    """A recipe with its budget; numbers of one pipeline, or arrays [P] of many."""

    psi: Any
    law: Any
    success_only: Any
    K: Any
    n: Any
    repetition: Any
    nu: Any
    """[T] running sum of nu; read by the fixed law."""
    on_policy: Any
    """Teacher tokens for D_OP."""
    demos: Any
    """Teacher tokens for D_BC."""
    by_training: Any
    """Whether D_OP is charged by C_tr instead of C_i."""


def order(recipe: Recipe, *, budget: int, r: float, axis: str) -> Order:
    """The order of one pipeline: round(r budget) tokens for the recipe, the rest for demonstrations."""
    T = recipe.T_max
    nu = np.ones(T)
    given = recipe.switch.nu or (1.0 / T,) * T
    # From the last entry on the sum is exactly 1, so that a draw below 1 gives at most that turn.
    nu[: len(given) - 1] = np.cumsum(given)[:-1]
    on_policy = 0 if recipe.rho == "teacher" else round(budget * r)
    return Order(
        psi=PSI[recipe.psi],
        law=LAW[recipe.switch.law],
        success_only=recipe.phi == "success",
        K=recipe.cap(1),
        n=recipe.n,
        repetition=recipe.repetition,
        nu=nu,
        on_policy=on_policy,
        demos=budget - on_policy,
        by_training=axis == "training",
    )
