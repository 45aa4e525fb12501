"""Serial numba kernels of Algorithm 1 in a world: rollout, switch, continuation, count, evaluate.

Draws are keyed by (seed, stream, turn, episode): a proposal's draws do not depend on K, on the budget or on
how many came before it. So a recipe with a smaller K plays a prefix of what one with a larger K plays.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occupancy.kernels.compiled import compiled
from simulate.exact.draws import entry
from simulate.pipelines.codes import (
    ACCEPTED,
    C_I_BC,
    C_I_OP,
    C_TR_OP,
    CONTINUE,
    DEMO,
    LABELS_BC,
    LABELS_OP,
    NO_REPETITION,
    PROPOSALS,
    ROLLOUT,
    START,
    SWITCH,
    SWITCHED,
    TASKS_BC,
    TASKS_OP,
    TEACHER,
    UNIFORM,
    WITHOUT_SUCCESS,
)
from simulate.worlds.types import Float64, Int32, Int64

Buffers = tuple[Int32, Int32, Int64]
"""Contexts, actions and tokens of one continuation, [T] each."""
_LOW, _HALF, _UNIT = np.uint64(0xFFFF_FFFF), np.uint64(32), 2.0**-32


class Tables(NamedTuple):
    """A world as the kernels read it."""

    start: Float64
    """[S] running sum of the start law."""
    successors: Int32
    """[S, U]"""
    chances: Float64
    """[S, A, U] running sums of the rows."""
    teacher: Float64
    """[S, A] running sums of the rows."""
    pi_e: Float64
    """[S, A]"""
    contexts: Int32
    """[S]"""
    tokens: Int64
    """[S]"""


class Plan(NamedTuple):
    """A recipe with its budget as the kernels read it."""

    psi: int
    law: int
    success_only: bool
    K: int
    n: int
    repetition: int
    leap_below: float
    nu: Float64
    """[T] running sum of nu; read by the fixed law."""
    on_policy: int
    """Teacher tokens for D_OP."""
    demos: int
    """Teacher tokens for D_BC."""
    by_training: bool
    """Whether D_OP is charged by C_tr instead of C_i."""
    most: int
    """Proposals after which the pipeline gives up."""


@compiled
def bits_of(keys: np.ndarray, stream: int, t: int, episode: int) -> np.uint64:
    """64 random bits of one turn of one episode; keys [STREAMS, T + 1]."""
    return entry(keys[stream, t], np.uint64(episode))  # type: ignore[no-any-return]


@compiled
def invert(cdf: Float64, u: float) -> int:
    """Index of the first running sum above u; the last index where rounding leaves none."""
    i, last = 0, cdf.size - 1
    while i < last and cdf[i] <= u:
        i += 1
    return i


@compiled
def first_state(tables: Tables, keys: np.ndarray, stream: int, task: int) -> int:
    """State that a task starts in."""
    u = np.float64(bits_of(keys, stream, 0, task) >> np.uint64(11)) * 2.0**-53
    return int(np.searchsorted(tables.start, u, side="right"))


@compiled
def continue_teacher(
    tables: Tables,
    keys: np.ndarray,
    stream: int,
    episode: int,
    s: int,
    t: int,
    K: int,
    contexts: Int32,
    actions: Int32,
    tokens: Int64,
) -> tuple[int, int]:
    """Let the teacher play turns t, t + 1, .., K at most; returns their number and the last state."""
    S, T = tables.contexts.size, keys.shape[1] - 1
    L = 0
    while L < K and t + L <= T and s < S:
        bits = bits_of(keys, stream, t + L, episode)
        a = invert(tables.teacher[s], np.float64(bits & _LOW) * _UNIT)
        contexts[L], actions[L], tokens[L] = tables.contexts[s], a, tables.tokens[s]
        s = tables.successors[s, invert(tables.chances[s, a], np.float64(bits >> _HALF) * _UNIT)]
        L += 1
    return L, s


@compiled
def collect_demos(
    tables: Tables, plan: Plan, keys: np.ndarray, counts: Float64, ledger: Int64, buffers: Buffers
) -> None:
    """Buy demonstrations until the teacher reaches the turn that would pass the budget; counts [X, A]."""
    contexts, actions, tokens = buffers
    T, task = keys.shape[1] - 1, 0
    while ledger[C_I_BC] < plan.demos:
        s = first_state(tables, keys, DEMO, task)
        L, _ = continue_teacher(tables, keys, DEMO, task, s, 1, T, contexts, actions, tokens)
        kept = fitting(tokens, L, plan.demos - ledger[C_I_BC])
        for j in range(kept):
            ledger[C_I_BC] += tokens[j]
            counts[contexts[j], actions[j]] += 1.0
        ledger[LABELS_BC] += kept
        ledger[TASKS_BC] += kept > 0
        task += 1
        if kept < L:
            return


@compiled
def switch_turn(
    tables: Tables, plan: Plan, keys: np.ndarray, proposal: int, states: Int32, played: Int32, T: int
) -> int:
    """t' of a rollout, or 0 where the draw is invalid."""
    if plan.law == START:
        return 1
    if plan.law == TEACHER:
        for t in range(T):
            if tables.pi_e[states[t], played[t]] < plan.leap_below:
                return t + 1
        return 0
    u = np.float64(bits_of(keys, SWITCH, 0, proposal) >> np.uint64(11)) * 2.0**-53
    if plan.law == UNIFORM:
        return 1 + int(u * T)
    t_prime = 1 + int(np.searchsorted(plan.nu, u, side="right"))
    return t_prime if t_prime <= T else 0


@compiled
def kept_by_psi(tables: Tables, plan: Plan, states: Int32, played: Int32, T: int, success: bool) -> bool:
    """Verdict of the prefix filter on a rollout."""
    if plan.psi == WITHOUT_SUCCESS:
        return not success
    if plan.psi == NO_REPETITION:
        run = 1
        for t in range(1, T):
            same = played[t] == played[t - 1]
            same &= tables.contexts[states[t]] == tables.contexts[states[t - 1]]
            run = run + 1 if same else 1
            if run >= plan.repetition:
                return False
    return True


@compiled
def collect(
    tables: Tables,
    plan: Plan,
    student: Float64,
    keys: np.ndarray,
    first: int,
    budget: int,
    counts: Float64,
    ledger: Int64,
    buffers: Buffers,
) -> int:
    """Algorithm 1 with rollouts of `student` [X, A] from proposal `first` on, until D_OP has cost `budget`.

    Returns the next proposal's number; a pipeline that needs more than plan.most of them returns at that.
    """
    contexts, actions, tokens = buffers
    S, T_max = tables.contexts.size, keys.shape[1] - 1
    states, played = np.empty(T_max, np.int32), np.empty(T_max, np.int32)
    cdf = np.empty_like(student)
    for x in range(student.shape[0]):
        running = 0.0
        for a in range(student.shape[1]):
            running += student[x, a]
            cdf[x, a] = running
    proposal = first
    axis = C_TR_OP if plan.by_training else C_I_OP
    while ledger[axis] < budget and proposal < plan.most:
        s, T = first_state(tables, keys, ROLLOUT, proposal // plan.n), 0
        while s < S and T_max > T:
            bits = bits_of(keys, ROLLOUT, T + 1, proposal)
            a = invert(cdf[tables.contexts[s]], np.float64(bits & _LOW) * _UNIT)
            states[T], played[T] = s, a
            s = tables.successors[s, invert(tables.chances[s, a], np.float64(bits >> _HALF) * _UNIT)]
            T += 1
        t_prime = switch_turn(tables, plan, keys, proposal, states, played, T)
        if t_prime and kept_by_psi(tables, plan, states, played, T, s == S):
            ledger[SWITCHED] += 1
            s = states[t_prime - 1]
            L, end = continue_teacher(
                tables, keys, CONTINUE, proposal, s, t_prime, plan.K, contexts, actions, tokens
            )
            fits = fitting(tokens, L, budget - ledger[axis])
            # The teacher stops at the budget, unless the axis counts accepted tokens and the end decides.
            played_out = plan.success_only and plan.by_training
            taught = L if played_out else fits
            accepted = fits > 0 and (not plan.success_only or (end == S and taught == L))
            kept = fits if accepted else 0
            for j in range(taught):
                ledger[C_I_OP] += tokens[j]
            for j in range(kept):
                ledger[C_TR_OP] += tokens[j]
                counts[contexts[j], actions[j]] += 1.0
            ledger[ACCEPTED] += accepted
            ledger[LABELS_OP] += kept
            if fits < L and (end == S or not played_out):
                return proposal + 1
        proposal += 1
    return proposal


@compiled
def fitting(tokens: Int64, L: int, budget: int) -> int:
    """Number of first turns whose tokens stay within the budget."""
    spent = 0
    for j in range(L):
        spent += tokens[j]
        if spent > budget:
            return j
    return L


@compiled
def learn(base: Float64, counts: Float64, kappa: float, alpha: float, student: Float64) -> None:
    """The tabular student [X, A]: (1 - g) pi_0 + g * empirical law, g = 1 - (1 + n / kappa)^-alpha."""
    X, A = base.shape
    for x in range(X):
        n = counts[x].sum()
        g = 1.0 - (1.0 + n / kappa) ** -alpha if n > 0 else 0.0
        for a in range(A):
            student[x, a] = (1.0 - g) * base[x, a] + (g * counts[x, a] / n if n > 0 else 0.0)


@compiled
def evaluate(
    start: Float64, successors: Int32, chances: Float64, contexts: Int32, student: Float64, T: int
) -> float:
    """pass@1 of a student [X, A] by dynamic programming."""
    S, A, U = chances.shape
    probs, value, after = np.empty((S, U)), np.zeros(S + 2), np.zeros(S + 2)
    for s in range(S):
        for u in range(U):
            total = 0.0
            for a in range(A):
                total += student[contexts[s], a] * chances[s, a, u]
            probs[s, u] = total
    value[S] = after[S] = 1.0
    for _ in range(T):
        for s in range(S):
            total = 0.0
            for u in range(U):
                total += probs[s, u] * after[successors[s, u]]
            value[s] = total
        value, after = after, value
    return float((start * after[:S]).sum())


@compiled
def pipeline(
    tables: Tables,
    plan: Plan,
    start: Float64,
    chances: Float64,
    base: Float64,
    owned_demos: Float64,
    owned_on_policy: Float64,
    keys: np.ndarray,
    rounds: int,
    kappa: float,
    alpha: float,
    keep_demos: bool,
    ledger: Int64,
    student: Float64,
) -> float:
    """Demonstrations, student, rounds of collection and training, evaluation: pass@1 of the last student.

    owned_demos, owned_on_policy: [X, A] labels that were paid before, trained on beside the new ones.
    The ledger [LEDGER] is filled; `student` [X, A] ends as the trained student.
    """
    T = keys.shape[1] - 1
    buffers = np.empty(T, np.int32), np.empty(T, np.int32), np.empty(T, np.int64)
    demos, counts = owned_demos.copy(), owned_on_policy.copy()
    collect_demos(tables, plan, keys, demos, ledger, buffers)
    learn(base, demos, kappa, alpha, student)
    proposal = 0
    for k in range(rounds):
        share = plan.on_policy * (k + 1) // rounds
        proposal = collect(tables, plan, student, keys, proposal, share, counts, ledger, buffers)
        learn(base, demos + counts if keep_demos else counts, kappa, alpha, student)
    ledger[PROPOSALS] = proposal
    ledger[TASKS_OP] = (proposal + plan.n - 1) // plan.n
    return evaluate(start, tables.successors, chances, tables.contexts, student, T)
