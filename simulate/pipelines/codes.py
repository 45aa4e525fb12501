"""Numbers that compiled pipelines use for words: filters, switch laws, streams of draws, ledger columns."""

from __future__ import annotations

ALL, WITHOUT_SUCCESS, NO_REPETITION = 0, 1, 2
PSI = {"all": ALL, "without_success": WITHOUT_SUCCESS, "no_repetition": NO_REPETITION}

UNIFORM, FIXED, START, TEACHER = 0, 1, 2, 3
LAW = {"uniform": UNIFORM, "fixed": FIXED, "start": START, "teacher": TEACHER}

DEMO, ROLLOUT, SWITCH, CONTINUE = 0, 1, 2, 3
STREAMS = 4

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
