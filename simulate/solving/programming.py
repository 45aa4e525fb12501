"""Exact answers by dynamic programming in JAX: pure functions of arrays, differentiable, batched by vmap.

A chain is what a world becomes under one policy. Everything is either pushed forward (`occupancies`,
`labelled`) or pulled backward (`backward`): values, E[1/T | s_t = s] and hand-backs are backward
passes that differ in what an end is worth.

Run inside `jax.enable_x64(True)`; `simulate.solving.solve` does so and returns numpy arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from simulate.solving.jax64 import jitted

Array = Any


class Chain(NamedTuple):
    """A world under one policy."""

    start: Array
    """[S] law of the first state."""
    successors: Array
    """[S, U] ids; S is success, S + 1 failure."""
    probs: Array
    """[S, U] law of the successor."""


def chain(start: Array, successors: Array, chances: Array, policy: Array) -> Chain:
    """The chain that a policy [S, A] makes of a world's start, successors and chances."""
    return Chain(start, successors, jnp.einsum("sa,sau->su", policy, chances))


def push(chain: Chain, mass: Array) -> Array:
    """[S + 2] where one turn carries a mass [S] over states, ends included."""
    S = chain.start.shape[0]
    return jnp.zeros(S + 2, mass.dtype).at[chain.successors].add(mass[:, None] * chain.probs)


@jitted("horizon")
def occupancies(chain: Chain, horizon: int) -> Array:
    """[T, S] d_t(s) = P(s_t = s, the episode still runs); row 0 is turn 1."""
    S = chain.start.shape[0]

    def turn(mass: Array, _: None) -> tuple[Array, Array]:
        return push(chain, mass)[:S], mass

    return jax.lax.scan(turn, chain.start, None, length=horizon)[1]


@jitted()
def backward(chain: Chain, *, ends: Array, at_horizon: float) -> Array:
    """[T, S] expectation, given s_t = s, of what the end is worth.

    `ends` [T, 2] is the worth of success and of failure in turn t, `at_horizon` that of T_max turns
    without an end.
    """

    def turn(after: Array, worth: Array) -> tuple[Array, Array]:
        value = (chain.probs * jnp.concatenate([after, worth])[chain.successors]).sum(-1)
        return value, value

    last = jnp.full(chain.start.shape[0], at_horizon, jnp.result_type(float))
    return jax.lax.scan(turn, last, ends, reverse=True)[1]


def worth(horizon: int, success: float, failure: float) -> Array:
    """[T, 2] ends whose worth does not depend on the turn."""
    return jnp.tile(jnp.array([success, failure], jnp.result_type(float)), (horizon, 1))


@jitted("horizon")
def value(chain: Chain, horizon: int) -> Array:
    """[T, S] chance of success from the context before turn t on."""
    return backward(chain, ends=worth(horizon, 1.0, 0.0), at_horizon=0.0)


@jitted("horizon")
def inverse_length(chain: Chain, horizon: int) -> Array:
    """[T, S] u_t(s) = E[1/T | s_t = s]."""
    ends = jnp.tile(1.0 / jnp.arange(1, horizon + 1)[:, None], 2)
    return backward(chain, ends=ends, at_horizon=1.0 / horizon)


@jitted()
def hand_backs(teacher: Chain, student_value: Array) -> Array:
    """[K + 1, T, S] U_k: the teacher plays k turns, then the student finishes; K = T_max.

    `student_value` [T, S] is U_0. A hand-back at the horizon is a failure.
    """
    T = len(student_value)

    def one_more(after: Array, _: None) -> tuple[Array, Array]:
        following = jnp.concatenate([after[1:], jnp.zeros_like(after[:1])])
        at_ends = jnp.concatenate([following, worth(T, 1.0, 0.0)], axis=1)
        now = jax.vmap(lambda v: (teacher.probs * v[teacher.successors]).sum(-1))(at_ends)
        return now, now

    return jnp.concatenate(
        [student_value[None], jax.lax.scan(one_more, student_value, None, length=T)[1]], axis=0
    )


@jitted("K")
def labelled(teacher: Chain, switched: Array, K: int) -> Array:
    """[T, S] expected teacher turns, from contexts [T, S] where the teacher takes over, K turns at most."""
    S = switched.shape[1]

    def one_more(mass: Array, _: None) -> tuple[Array, Array]:
        moved = jax.vmap(lambda m: push(teacher, m)[:S])(mass)
        return jnp.concatenate([jnp.zeros_like(moved[:1]), moved[:-1]]), mass

    return jax.lax.scan(one_more, switched, None, length=K)[1].sum(axis=0)
