"""Algorithm 1 for thousands of pipelines at once, as one JAX program: data, students, evaluation.

It is apart from the numba kernels because a GPU needs it: 3,840 pipelines with log-linear students take 2.0 s
on one H100 and 27 s on two CPU cores. The lanes P are the last axis of every table over contexts, so that
the gradient step of all students is one matrix product. Draws are those of `simulate.pipelines.serial`,
number by number: on the same student both collect the same turns.
"""

# ruff: noqa: PLR0917 - the parts of one program, called once each
from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from occupancy.kernels import rng
from simulate.pipelines import order as orders
from simulate.pipelines.lanes import Lanes
from simulate.pipelines.serial import Tables
from simulate.solving.jax64 import jitted
from simulate.solving.laws import LEAP_BELOW
from simulate.worlds.students import LEAST_CHANCE, LogLinear, Student, Tabular

Array = Any
BLOCK = 64
"""Episodes that a lane plays before it looks at its budget."""
GOLDEN = np.uint64(rng.GOLDEN)
WORDS = tuple(map(np.uint64, (*rng.MULTIPLIERS, rng.MASK)))


class Episodes(NamedTuple):
    """Turns [T, P, B] of episodes side by side, with the state after the last one [P, B]."""

    states: Array
    actions: Array
    played: Array
    """[T, P, B] whether there was such a turn."""
    end: Array


def bits_of(keys: Array, t: Array, episodes: Array) -> Array:
    """Random bits [P, B] of turn t [P, B] of episodes [P, B]; keys [P, T + 1] of one stream."""
    key = jnp.take_along_axis(keys, t, axis=1)
    return rng.mix(key + GOLDEN + GOLDEN * episodes.astype(jnp.uint64), *WORDS)


def unit53(bits: Array) -> Array:
    """Upper 53 bits as a double in [0, 1)."""
    return (bits >> np.uint64(11)).astype(jnp.float64) * 2.0**-53


def invert(cdf: Array, u: Array) -> Array:
    """Index of the first running sum above u along the last axis."""
    return (cdf[..., :-1] <= u[..., None]).sum(-1)


def first_states(tables: Tables, keys: Array, tasks: Array) -> Array:
    """[P, B] states that tasks start in; keys [P, T + 1] of one stream."""
    u = unit53(bits_of(keys, jnp.zeros_like(tasks), tasks))
    return jnp.searchsorted(tables.running_start, u, side="right")


def step(tables: Tables, s: Array, cdf: Array, bits: Array) -> tuple[Array, Array]:
    """Action and following state, from running sums [.., A] of the policy."""
    a = invert(cdf, (bits & np.uint64(0xFFFF_FFFF)).astype(jnp.float64) * 2.0**-32)
    u = invert(tables.running_chances[s, a], (bits >> np.uint64(32)).astype(jnp.float64) * 2.0**-32)
    return a, tables.successors[s, u]


def roll(
    tables: Tables, T: int, policy: Any, keys: Array, episodes: Array, s: Array, t: Array, K: Array
) -> Episodes:
    """Play turns t, t + 1, .. from states s, at most K and none after T; `policy(s)` gives running sums."""
    S = tables.contexts.shape[0]

    def turn(state: Array, j: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        on = (state < S) & (t + j <= T) & (j < K)
        here = jnp.where(on, state, 0)
        bits = bits_of(keys, jnp.minimum(t + j, T), episodes)
        a, following = step(tables, here, policy(here), bits)
        return jnp.where(on, following, state), (here, a, on)

    end, (states, actions, played) = jax.lax.scan(turn, s.astype(jnp.int32), jnp.arange(T))
    return Episodes(states, actions, played, end)


def add(data: Array, tables: Tables, turns: Episodes, weight: Array) -> Array:
    """data [X, A, P] plus the weights [T, P, B] of turns, 0 for those that are not kept."""
    X, A, P = data.shape
    cell = (tables.contexts[turns.states] * A + turns.actions) * P + jnp.arange(P)[:, None]
    flat = data.reshape(-1).at[cell].add(weight.astype(data.dtype))
    return flat.reshape(X, A, P)


def running(tokens: Array) -> Array:
    """[T, P, B] running sum in the order of play: episode by episode, turn by turn."""
    T, P, B = tokens.shape
    return jnp.cumsum(tokens.transpose(1, 2, 0).reshape(P, B * T), axis=1).reshape(P, B, T).transpose(2, 0, 1)


def demonstrations(
    tables: Tables, T: int, keys: Array, budget: Array, data: Array, *, in_tokens: bool
) -> tuple[Array, Array]:
    """Demonstrations up to `budget` [P]: data [X, A, P] and the ledger [P, LEDGER]."""
    P, keys = budget.shape[0], keys[:, orders.DEMO]

    def more(carry: Any) -> Array:
        return (carry[2] < budget).any()

    def block(carry: Any) -> Any:
        data, ledger, before, number = carry
        tasks = jnp.broadcast_to(number * BLOCK + jnp.arange(BLOCK), (P, BLOCK))
        s, ones = first_states(tables, keys, tasks), jnp.ones_like(tasks)
        turns = roll(tables, T, lambda s: tables.running_teacher[s], keys, tasks, s, ones, T * ones)
        cost = jnp.where(turns.played, tables.tokens[turns.states], 0)
        kept = turns.played & (before[:, None] + running(cost) <= budget[:, None])
        ledger = ledger.at[:, orders.C_I_BC].add(jnp.where(kept, cost, 0).sum((0, 2)))
        ledger = ledger.at[:, orders.LABELS_BC].add(kept.sum((0, 2)))
        ledger = ledger.at[:, orders.TASKS_BC].add(kept.any(0).sum(1))
        return (
            add(data, tables, turns, kept * (cost if in_tokens else 1)),
            ledger,
            before + cost.sum((0, 2)),
            number + 1,
        )

    start = data, jnp.zeros((P, len(orders.LEDGER)), jnp.int64), jnp.zeros(P, jnp.int64), 0
    data, ledger, _, _ = jax.lax.while_loop(more, block, start)
    return data, ledger


def collection(
    tables: Tables,
    T: int,
    lanes: Lanes,
    student: Array,
    goal: Array,
    state: Any,
    *,
    most: int,
    in_tokens: bool,
) -> Any:
    """Proposals until D_OP has cost `goal` [P].

    state = data [X, A, P], ledger [P, LEDGER], tokens asked for on the axis [P], next proposal [P].
    """
    S, P = tables.contexts.shape[0], goal.shape[0]
    cdf = jnp.moveaxis(jnp.cumsum(student, axis=1), -1, 0)
    lane = jnp.arange(P)[:, None]
    psi, law = lanes.order.psi[:, None], lanes.order.law[:, None]
    filtered, by_training = lanes.order.success_only[:, None], lanes.order.by_training[:, None]

    def more(carry: Any) -> Array:
        _, _, asked, proposal = carry
        return ((asked < goal) & (proposal < most)).any()

    def block(carry: Any) -> Any:
        data, ledger, asked, proposal = carry
        numbers = proposal[:, None] + jnp.arange(BLOCK)
        tasks, zero = numbers // lanes.order.n[:, None], jnp.zeros_like(numbers)
        s = first_states(tables, lanes.keys[:, orders.ROLLOUT], tasks)
        policy = lambda s: cdf[lane, tables.contexts[s]]  # noqa: E731
        prefix = roll(tables, T, policy, lanes.keys[:, orders.ROLLOUT], numbers, s, zero + 1, zero + T)
        length = prefix.played.sum(0)
        u = unit53(bits_of(lanes.keys[:, orders.SWITCH], zero, numbers))
        t_prime = switch_turns(tables, prefix, length, u, lanes, law)
        success = prefix.end == S
        refused = (psi == orders.WITHOUT_SUCCESS) & success
        looped = repeats(tables, prefix, lanes.order.repetition[:, None])
        refused |= (psi == orders.NO_REPETITION) & looped
        switched = (t_prime > 0) & (t_prime <= length) & ~refused
        at = jnp.take_along_axis(prefix.states, jnp.maximum(t_prime - 1, 0)[None], axis=0)[0]
        cap = jnp.where(switched, lanes.order.K[:, None], 0)
        keys, policy = lanes.keys[:, orders.CONTINUE], lambda s: tables.running_teacher[s]
        turns = roll(tables, T, policy, keys, numbers, at, t_prime, cap)

        cost = jnp.where(turns.played, tables.tokens[turns.states], 0)
        won = switched & (~filtered | (turns.end == S))
        charged = jnp.where(won | ~(filtered & by_training), cost, 0)
        total = asked[:, None] + running(charged)
        fits = turns.played & (total <= goal[:, None])
        # A proposal starts where the tokens asked for before it leave room.
        started = (total[-1] - charged.sum(0)) < goal[:, None]
        played_out = filtered & by_training
        taught = started & jnp.where(played_out, turns.played, fits)
        whole = (taught == turns.played).all(0)
        accepted = started & won & fits.any(0) & (~filtered | played_out | whole)
        kept = fits & accepted
        ledger = ledger.at[:, orders.C_I_OP].add(jnp.where(taught, cost, 0).sum((0, 2)))
        ledger = ledger.at[:, orders.C_TR_OP].add(jnp.where(kept, cost, 0).sum((0, 2)))
        ledger = ledger.at[:, orders.SWITCHED].add((started & switched).sum(1))
        ledger = ledger.at[:, orders.ACCEPTED].add(accepted.sum(1))
        ledger = ledger.at[:, orders.LABELS_OP].add(kept.sum((0, 2)))
        asked = asked + charged.sum((0, 2))
        return (
            add(data, tables, turns, kept * (cost if in_tokens else 1)),
            ledger,
            asked,
            proposal + started.sum(1),
        )

    return jax.lax.while_loop(more, block, state)


def switch_turns(
    tables: Tables, prefix: Episodes, length: Array, u: Array, lanes: Lanes, law: Array
) -> Array:
    """t' [P, B] from 1; 0 or above the length where the draw is invalid."""
    uniform = 1 + (u * length).astype(length.dtype)
    fixed = 1 + (lanes.order.nu[:, None, :] <= u[..., None]).sum(-1)
    critical = prefix.played & (tables.teacher[prefix.states, prefix.actions] < LEAP_BELOW)
    decided = jnp.where(critical.any(0), 1 + jnp.argmax(critical, axis=0), 0)
    out = jnp.where(law == orders.UNIFORM, uniform, fixed)
    out = jnp.where(law == orders.START, 1, out)
    return jnp.where(law == orders.TEACHER, decided, out)


def repeats(tables: Tables, prefix: Episodes, repetition: Array) -> Array:
    """[P, B] whether `repetition` consecutive turns are equal: same context, same action."""
    context = tables.contexts[prefix.states]

    def turn(carry: Any, now: Any) -> tuple[Any, None]:
        run, worst, context, action = carry
        here, a, played = now
        run = jnp.where(played & (here == context) & (a == action), run + 1, 1)
        return (run, jnp.maximum(worst, jnp.where(played, run, 0)), here, a), None

    none = jnp.full_like(context[0], -1)
    start = jnp.zeros_like(none), jnp.zeros_like(none), none, none.astype(prefix.actions.dtype)
    (_, worst, _, _), _ = jax.lax.scan(turn, start, (context, prefix.actions, prefix.played))
    return worst >= repetition


def learn(tables: Tables, data: Array, student: Student) -> Array:
    """Policies [X, A, P] after training on data [X, A, P]: turns for the tabular student, else tokens."""
    if isinstance(student, Tabular):
        n = data.sum(1, keepdims=True)
        g = 1.0 - (1.0 + n / student.kappa) ** -student.alpha
        return (1.0 - g) * tables.base[:, :, None] + g * data / jnp.maximum(n, 1.0)
    return _log_linear(tables, data, student)


def _log_linear(tables: Tables, tokens: Array, student: LogLinear) -> Array:
    features = tables.features.astype(jnp.float32)
    prior = jnp.log(jnp.maximum(tables.base, LEAST_CHANCE)).astype(jnp.float32)[:, :, None]
    share = (tokens / jnp.maximum(tokens.sum((0, 1)), 1.0)).astype(jnp.float32)
    mass = share.sum(1, keepdims=True)
    rate = np.float32(student.rate)

    def policy(W: Array) -> Array:
        logits = prior + jnp.einsum("xd,dap->xap", features, W, precision="highest")
        odds = jnp.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    penalty = (student.ridge / jnp.maximum(tokens.sum((0, 1)), 1.0)).astype(jnp.float32)

    def descend(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        W, speed = state
        slope = jnp.einsum("xd,xap->dap", features, mass * policy(W) - share, precision="highest")
        speed = np.float32(student.momentum) * speed - rate * (slope + penalty * W)
        return (W + speed, speed), None

    W0 = jnp.zeros((features.shape[1], *share.shape[1:]), jnp.float32)
    return policy(jax.lax.scan(descend, (W0, W0), None, length=student.steps)[0][0]).astype(jnp.float64)


def evaluate(tables: Tables, policies: Array, T: int) -> Array:
    """[P] pass@1 of policies [X, A, P]."""
    S, U = tables.successors.shape
    P = policies.shape[2]
    probs = jnp.einsum("sap,sau->usp", policies[tables.contexts], tables.chances)
    ends = jnp.concatenate([jnp.ones((1, P)), jnp.zeros((1, P))])

    def turn(value: Array, _: None) -> tuple[Array, None]:
        after = jnp.concatenate([value, ends])
        return sum(probs[u] * after[tables.successors[:, u]] for u in range(U)), None

    return tables.start @ jax.lax.scan(turn, jnp.zeros((S, P)), None, length=T)[0]


@jitted("T", "student", "rounds", "keep_demos", "most")
def program(
    tables: Tables,
    lanes: Lanes,
    *,
    T: int,
    student: Student,
    rounds: int,
    keep_demos: bool,
    most: int,
) -> tuple[Array, Array]:
    """pass@1 [P] and ledgers [P, LEDGER] of all lanes."""
    X, A = tables.base.shape
    P, Q = lanes.order.K.shape[0], lanes.distinct.shape[0]
    in_tokens = student.in_tokens
    keys, budgets = lanes.keys[lanes.distinct], lanes.order.demos[lanes.distinct]
    some, some_ledger = demonstrations(tables, T, keys, budgets, jnp.zeros((X, A, Q)), in_tokens=in_tokens)
    policies = learn(tables, some, student)[:, :, lanes.first]
    demos, ledger = some[:, :, lanes.first], some_ledger[lanes.first]
    data, proposal = jnp.zeros((X, A, P)), jnp.zeros(P, jnp.int64)
    for k in range(rounds):
        goal = lanes.order.on_policy * (k + 1) // rounds
        state = (
            data,
            ledger,
            jnp.where(lanes.order.by_training, ledger[:, orders.C_TR_OP], ledger[:, orders.C_I_OP]),
            proposal,
        )
        state = collection(tables, T, lanes, policies, goal, state, most=most, in_tokens=in_tokens)
        data, ledger, _, proposal = state
        policies = learn(tables, data + demos if keep_demos else data, student)
    ledger = ledger.at[:, orders.PROPOSALS].set(proposal)
    ledger = ledger.at[:, orders.TASKS_OP].set((proposal + lanes.order.n - 1) // lanes.order.n)
    return evaluate(tables, policies, T), ledger
