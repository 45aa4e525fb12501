"""The exact law of the contexts that a recipe accepts, with what a proposal costs.

A proposal is a rollout tau of rho and a switch time t'. With d_t(s) the chance of being in s at turn t,

    P(t' = t, s_t = s, Psi) = d_t(s) nu_t E[g_T 1{Psi} | s_t = s]

where g_T = 1/T, nu = 1 for Unif{1..T(tau)} and g_T = 1 for a fixed nu. Psi = "without success" lets only
failed ends count; Psi = "no repetition" needs the chain that remembers the last equal turns. The
continuation filter multiplies by the teacher's chance of success.

Two choices of this package: a turn's text names its context and action, so turns repeat where the agent
stays in a context and plays the same action; and the teacher that decides (LEAP) takes the first turn that
it would itself play with a chance below `LEAP_BELOW`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy import Recipe, RecipeError
from simulate.solving.jax64 import double_precision
from simulate.worlds.types import Float64, World

LEAP_BELOW = 0.1


@dataclass(frozen=True, eq=False)
class AcceptedLaw:
    """What one proposal of a recipe becomes, in expectation; row t - 1 belongs to turn t."""

    switched: Float64
    """[T, S] chance that the teacher takes over at turn t in state s; sums below 1 where Psi or t' refuse."""
    contexts: Float64
    """[T, S] law of the accepted contexts (t', s), filters included; sums to 1."""
    labels: Float64
    """[T, S] expected number of trained teacher turns."""
    acceptance: float
    """Chance that a proposal becomes a training trace."""
    C_i: float
    """Expected teacher tokens of a proposal before filters; with K turns at most this is m(K)."""
    C_tr: float
    """Expected teacher tokens of a proposal that are trained on."""


def accepted_law(world: World, recipe: Recipe, student: Any = None) -> AcceptedLaw:
    """Exact law under a recipe whose prefixes a student [X, A] makes, by default pi_0."""
    check_recipe(world, recipe)
    with double_precision():
        from simulate.solving import programming

        rest = world.start, world.successors, world.chances
        teacher = programming.chain(*rest, world.teacher)
        V_e = np.asarray(programming.value(teacher, world.horizon))
        switched = _switched(world, recipe, world.base if student is None else student)
        taught = np.asarray(programming.labelled(teacher, switched, recipe.cap(1)))
    keeps = V_e if recipe.phi == "success" else np.ones_like(V_e)
    accepted, labels = switched * keeps, taught * keeps
    total = float(accepted.sum())
    if total <= 0:
        raise RecipeError(
            f"recipe {recipe.name!r} accepts no context in world {world.name!r}: psi={recipe.psi!r} and "
            f"phi={recipe.phi!r} refuse everything; use a recipe without filters"
        )
    return AcceptedLaw(
        switched=switched,
        contexts=accepted / total,
        labels=labels,
        acceptance=total,
        C_i=float((taught * world.tokens).sum()),
        C_tr=float((labels * world.tokens).sum()),
    )


def check_recipe(world: World, recipe: Recipe) -> None:
    """Refuse a recipe that no world plays."""
    if recipe.T_max != world.horizon:
        raise RecipeError(
            f"T_max={recipe.T_max} in a world of horizon {world.horizon}: expected the same; "
            f"use preset(name, T_max={world.horizon})"
        )
    if recipe.context != "all":
        raise RecipeError(f"context={recipe.context!r} is not played in worlds: use context='all'")
    if recipe.switch.law == "weights":
        raise RecipeError("switch law 'weights' needs logged trajectories: use another law in a world")


def _switched(world: World, recipe: Recipe, student: Any) -> Float64:
    T, S = world.horizon, world.S
    if recipe.rho == "teacher":
        first: Float64 = np.zeros((T, S))
        first[0] = world.start
        return first
    policy = world.by_state(student)
    law = recipe.switch.law
    if law == "teacher":
        return _first_critical(world, recipe, policy)
    uniform = law == "uniform"
    g = 1.0 / np.arange(1, T + 1) if uniform else np.ones(T)
    mass = _kept(world, recipe, policy, g)
    if law == "start":
        return np.asarray(mass * (np.arange(T) == 0)[:, None])
    if law == "fixed":
        nu = np.zeros(T)
        given = recipe.switch.nu or [1.0 / T] * T
        nu[: len(given)] = given
        return np.asarray(mass * nu[:, None])
    return mass


def _kept(world: World, recipe: Recipe, policy: Float64, g: Float64) -> Float64:
    """[T, S] d_t(s) E[g_T 1{Psi} | s_t = s]."""
    from simulate.solving import programming

    T, S = world.horizon, world.S
    if recipe.psi == "no_repetition":
        student = _with_memory(world, policy, recipe.repetition)
        ends = np.stack([g, np.zeros(T)], axis=1)
    else:
        student = programming.chain(world.start, world.successors, world.chances, policy)
        ends = np.stack([g if recipe.psi == "all" else np.zeros(T), g], axis=1)
    weight = programming.backward(student, ends=ends, at_horizon=g[-1])
    mass = np.asarray(programming.occupancies(student, T) * weight)
    return np.asarray(mass.reshape(T, -1, S).sum(axis=1))


def _with_memory(world: World, policy: Float64, repetition: int) -> Any:
    """The student's chain on (run of equal turns, state), whose ends are "ended" and "repeated".

    Memory 0 is a new context; memory 1 + a (repetition - 1) + j - 1 says that the context stayed while
    action a was played j times in a row.
    """
    from simulate.solving.programming import Chain

    S, A, U = world.S, world.A, world.successors.shape[1]
    memories = 1 + A * (repetition - 1)
    size = memories * S
    following = np.broadcast_to(world.successors[:, None, :], (S, A, U))
    ended = following >= S
    stays = world.contexts[np.where(ended, 0, following)] == world.contexts[:, None, None]
    probs = policy[:, :, None] * world.chances
    action = np.arange(A)[:, None]
    successors = np.empty((memories, S, A, U), np.int32)
    for memory in range(memories):
        last, run = divmod(memory - 1, repetition - 1) if memory else (-1, -1)
        now = np.where(action == last, run + 2, 1)
        kept = np.where(stays, (1 + action * (repetition - 1) + now - 1) * S + following, following)
        successors[memory] = np.where(now >= repetition, size + 1, np.where(ended, size, kept))
    start = np.zeros(size)
    start[:S] = world.start
    return Chain(start, successors.reshape(size, A * U), np.tile(probs.reshape(S, A * U), (memories, 1)))


def _first_critical(world: World, recipe: Recipe, policy: Float64) -> Float64:
    """[T, S] chance that t is the first turn which the teacher would not have played, with Psi."""
    from simulate.solving import programming

    if recipe.psi == "no_repetition":
        raise RecipeError(
            "psi='no_repetition' with switch law 'teacher' has no exact law here: use psi='all' or "
            "'without_success'"
        )
    T, S = world.horizon, world.S
    critical = world.teacher < LEAP_BELOW
    rest = world.start, world.successors, world.chances
    failing = float(recipe.psi == "without_success")
    ends = programming.worth(T, 1.0 - failing, 1.0)
    onward = np.asarray(programming.backward(programming.chain(*rest, policy), ends=ends, at_horizon=1.0))
    after = np.concatenate([onward[1:], np.ones((1, S))])
    after = np.concatenate([after, np.asarray(ends)], axis=1)[:, world.successors]
    error = np.einsum("sa,sau,tsu->ts", policy * critical, world.chances, after)
    untouched = programming.occupancies(programming.chain(*rest, policy * ~critical), T)
    first: Float64 = np.asarray(untouched) * error
    return first
