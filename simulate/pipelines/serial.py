"""Algorithm 1 for one pipeline, in numba: base install only, a fraction of a millisecond, seeds one by one.

It is apart from the JAX program because `truth` adds seeds until its standard error is small enough, which no
program of fixed shape does, and because it must run without JAX. Draws are keyed by (seed, stream, turn,
episode): those of a proposal depend neither on K nor on the budget, so a recipe with a smaller K plays a
prefix of what one with a larger K plays.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occupancy.kernels.compiled import compiled
from occupancy.kernels.draw import GOLDEN, HALF, LOW, mix, uniform
from simulate.pipelines import order as orders
from simulate.pipelines.order import Order
from simulate.solving.laws import LEAP_BELOW
from simulate.worlds.types import Float64, Int32, Int64

_UNIT = 2.0**-32


class Tables(NamedTuple):
    """A world as compiled code reads it; `running` arrays are running sums along the last axis."""

    start: Float64
    """[S]"""
    running_start: Float64
    """[S] whose last entry is exactly 1."""
    successors: Int32
    """[S, U]"""
    chances: Float64
    """[S, A, U]"""
    running_chances: Float64
    """[S, A, U]"""
    teacher: Float64
    """[S, A] pi_e."""
    running_teacher: Float64
    """[S, A]"""
    contexts: Int32
    """[S]"""
    tokens: Int64
    """[S] tokens of a teacher turn."""
    base: Float64
    """[X, A] pi_0."""
    features: Float64
    """[X, D]"""


class Turns(NamedTuple):
    """Room for the turns of one episode, [T] each."""

    states: Int32
    actions: Int32


@compiled
def bits_of(keys: np.ndarray, stream: int, t: int, episode: int) -> np.uint64:
    """64 random bits of one turn of one episode; keys [STREAMS, T + 1]."""
    return mix(keys[stream, t] + GOLDEN + GOLDEN * np.uint64(episode))  # type: ignore[no-any-return]


@compiled
def invert(running: Float64, u: float) -> int:
    """Index of the first running sum above u; the last index where rounding leaves none."""
    i, last = 0, running.size - 1
    while i < last and running[i] <= u:
        i += 1
    return i


@compiled
def first_state(tables: Tables, keys: np.ndarray, stream: int, task: int) -> int:
    """State that a task starts in."""
    return int(np.searchsorted(tables.running_start, uniform(bits_of(keys, stream, 0, task)), side="right"))


@compiled
def play(
    tables: Tables, policy: Float64, keys: np.ndarray, stream: int, episode: int, t: int, K: int, turns: Turns
) -> tuple[int, int]:
    """Play turns t, t + 1, .., K at most, from the state in turns.states[0]; their number and the last state.

    policy: [S, A] running sums.
    """
    S, T = tables.contexts.size, keys.shape[1] - 1
    s, L = turns.states[0], 0
    while L < K and t + L <= T and s < S:
        bits = bits_of(keys, stream, t + L, episode)
        a = invert(policy[s], np.float64(bits & LOW) * _UNIT)
        turns.states[L], turns.actions[L] = s, a
        s = tables.successors[s, invert(tables.running_chances[s, a], np.float64(bits >> HALF) * _UNIT)]
        L += 1
    return L, s


@compiled
def fitting(tables: Tables, turns: Turns, L: int, budget: int) -> int:
    """Number of first turns whose tokens stay within the budget."""
    spent = 0
    for j in range(L):
        spent += tables.tokens[turns.states[j]]
        if spent > budget:
            return j
    return L


@compiled
def train_on(tables: Tables, turns: Turns, L: int, in_tokens: bool, data: Float64) -> int:
    """Add the first L turns to data [X, A], each as 1 or as its tokens; returns all their tokens."""
    total = 0
    for j in range(L):
        cost = tables.tokens[turns.states[j]]
        data[tables.contexts[turns.states[j]], turns.actions[j]] += cost if in_tokens else 1
        total += cost
    return total


@compiled
def collect_demos(
    tables: Tables, order: Order, keys: np.ndarray, in_tokens: bool, data: Float64, ledger: Int64
) -> None:
    """Buy demonstrations until the teacher reaches the turn that would pass the budget; data [X, A]."""
    T, task = keys.shape[1] - 1, 0
    turns = Turns(np.empty(T, np.int32), np.empty(T, np.int32))
    while ledger[orders.C_I_BC] < order.demos:
        turns.states[0] = first_state(tables, keys, orders.DEMO, task)
        L, _ = play(tables, tables.running_teacher, keys, orders.DEMO, task, 1, T, turns)
        kept = fitting(tables, turns, L, order.demos - ledger[orders.C_I_BC])
        ledger[orders.C_I_BC] += train_on(tables, turns, kept, in_tokens, data)
        ledger[orders.LABELS_BC] += kept
        ledger[orders.TASKS_BC] += kept > 0
        task += 1
        if kept < L:
            return


@compiled
def switch_turn(tables: Tables, order: Order, keys: np.ndarray, proposal: int, rollout: Turns, T: int) -> int:
    """t' of a rollout, or 0 where the draw is invalid."""
    if order.law == orders.START:
        return 1
    if order.law == orders.TEACHER:
        for t in range(T):
            if tables.teacher[rollout.states[t], rollout.actions[t]] < LEAP_BELOW:
                return t + 1
        return 0
    u = uniform(bits_of(keys, orders.SWITCH, 0, proposal))
    if order.law == orders.UNIFORM:
        return 1 + int(u * T)
    t_prime = 1 + int(np.searchsorted(order.nu, u, side="right"))
    return t_prime if t_prime <= T else 0


@compiled
def kept_by_psi(tables: Tables, order: Order, rollout: Turns, T: int, success: bool) -> bool:
    """Verdict of the prefix filter on a rollout."""
    if order.psi == orders.WITHOUT_SUCCESS:
        return not success
    if order.psi == orders.NO_REPETITION:
        run = 1
        for t in range(1, T):
            same = rollout.actions[t] == rollout.actions[t - 1]
            same &= tables.contexts[rollout.states[t]] == tables.contexts[rollout.states[t - 1]]
            run = run + 1 if same else 1
            if run >= order.repetition:
                return False
    return True


@compiled
def collect(
    tables: Tables,
    order: Order,
    student: Float64,
    keys: np.ndarray,
    span: tuple[int, int, int],
    in_tokens: bool,
    data: Float64,
    ledger: Int64,
) -> int:
    """Algorithm 1 with rollouts of `student` [S, A] (running sums), until D_OP has cost what is ordered.

    span: first proposal, tokens that D_OP may have cost at the end, most proposals.
    Returns the next proposal.
    """
    proposal, budget, most = span
    S, T_max = tables.contexts.size, keys.shape[1] - 1
    rollout = Turns(np.empty(T_max, np.int32), np.empty(T_max, np.int32))
    taught = Turns(np.empty(T_max, np.int32), np.empty(T_max, np.int32))
    axis = orders.C_TR_OP if order.by_training else orders.C_I_OP
    while ledger[axis] < budget and proposal < most:
        rollout.states[0] = first_state(tables, keys, orders.ROLLOUT, proposal // order.n)
        T, end = play(tables, student, keys, orders.ROLLOUT, proposal, 1, T_max, rollout)
        t_prime = switch_turn(tables, order, keys, proposal, rollout, T)
        if t_prime and kept_by_psi(tables, order, rollout, T, end == S):
            ledger[orders.SWITCHED] += 1
            taught.states[0] = rollout.states[t_prime - 1]
            L, end = play(
                tables, tables.running_teacher, keys, orders.CONTINUE, proposal, t_prime, order.K, taught
            )
            fits = fitting(tables, taught, L, budget - ledger[axis])
            # The teacher stops at the budget, unless the axis counts accepted tokens and the end decides.
            played_out = order.success_only and order.by_training
            played = L if played_out else fits
            accepted = fits > 0 and (not order.success_only or (end == S and played == L))
            kept = fits if accepted else 0
            for j in range(played):
                ledger[orders.C_I_OP] += tables.tokens[taught.states[j]]
            ledger[orders.C_TR_OP] += train_on(tables, taught, kept, in_tokens, data)
            ledger[orders.ACCEPTED] += accepted
            ledger[orders.LABELS_OP] += kept
            if fits < L and (end == S or not played_out):
                return proposal + 1
        proposal += 1
    return proposal


@compiled
def values(tables: Tables, policy: Float64, T: int) -> Float64:
    """[S] chance of success with T turns ahead, under a policy [S, A]; by dynamic programming."""
    S, A, U = tables.chances.shape
    probs, value, after = np.empty((S, U)), np.zeros(S + 2), np.zeros(S + 2)
    for s in range(S):
        for u in range(U):
            total = 0.0
            for a in range(A):
                total += policy[s, a] * tables.chances[s, a, u]
            probs[s, u] = total
    value[S] = after[S] = 1.0
    for _ in range(T):
        for s in range(S):
            total = 0.0
            for u in range(U):
                total += probs[s, u] * after[tables.successors[s, u]]
            value[s] = total
        value, after = after, value
    return after[:S].copy()
