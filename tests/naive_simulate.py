"""Obviously correct twins of the exact answers: every trajectory of a small world is enumerated."""

from functools import cache

import numpy as np

from occupancy import preset
from simulate import World
from simulate.solving.laws import LEAP_BELOW


def random_world(seed, *, S=4, A=2, X=3, U=3, T=4):
    """A small world with loops, both ends, shared contexts and a teacher that sees states."""
    rng = np.random.default_rng(seed)
    successors = rng.integers(0, S + 2, (S, U))
    successors[:, 0] = S
    successors[:, 1] = np.arange(S)
    return World(
        name=f"random-{seed}",
        start=rng.dirichlet(np.ones(S)),
        successors=successors,
        chances=rng.dirichlet(np.ones(U), (S, A)),
        teacher=rng.dirichlet(np.full(A, 0.4), S),
        base=rng.dirichlet(np.ones(A), X),
        contexts=np.concatenate([np.arange(X), rng.integers(0, X, S - X)]),
        features=rng.standard_normal((X, 2)),
        tokens=rng.integers(1, 9, S),
        horizon=T,
    )


def paths(world, policy, s, t):
    """(probability, states, actions, end) of every way to play turns t .. T_max from s; policy [S, A]."""
    if s >= world.S or t > world.horizon:
        yield 1.0, (), (), s
        return
    for a in range(world.A):
        for u, following in enumerate(world.successors[s]):
            p = policy[s, a] * world.chances[s, a, u]
            for q, states, actions, end in paths(world, policy, int(following), t + 1):
                yield p * q, (s, *states), (a, *actions), end


def rollouts(world, policy):
    for s in range(world.S):
        for p, *rest in paths(world, policy, s, 1):
            yield world.start[s] * p, *rest


def occupancies(world, policy):
    """Pooled [S] and trajectory-uniform [S]."""
    pooled, uniform = np.zeros(world.S), np.zeros(world.S)
    for p, states, _, _ in rollouts(world, policy):
        np.add.at(pooled, list(states), p)
        np.add.at(uniform, list(states), p / len(states))
    return pooled / pooled.sum(), uniform


def hand_back(world, student, s, t, k):
    """U_k(t, s)."""
    if s >= world.S or t > world.horizon:
        return float(s == world.S)
    policy = world.teacher if k else student
    return sum(
        policy[s, a] * world.chances[s, a, u] * hand_back(world, student, int(v), t + 1, max(k - 1, 0))
        for a in range(world.A)
        for u, v in enumerate(world.successors[s])
    )


def repeats(world, states, actions, times):
    texts = [(world.contexts[s], a) for s, a in zip(states, actions, strict=True)]
    return any(len(set(texts[i : i + times])) == 1 for i in range(len(texts) - times + 1))


def switch_law(world, recipe, states, actions):
    """[T] probability of each t' given a rollout; sums below 1 where the draw can be invalid."""
    T, law = len(states), np.zeros(world.horizon)
    if recipe.switch.law == "uniform":
        law[:T] = 1 / T
    elif recipe.switch.law == "start":
        law[0] = 1
    elif recipe.switch.law == "fixed":
        nu = recipe.switch.nu or [1 / world.horizon] * world.horizon
        law[: len(nu)] = nu
        law[T:] = 0
    else:
        for t in range(T):
            if world.teacher[states[t], actions[t]] < LEAP_BELOW:
                law[t] = 1
                break
    return law


def accepted(world, recipe, student):
    """Contexts [T, S] accepted (unnormalised), C_i and C_tr of a proposal."""
    policy = world.teacher if recipe.rho == "teacher" else student
    contexts, C_i, C_tr = np.zeros((world.horizon, world.S)), 0.0, 0.0

    @cache
    def continuation(s, t):
        """Chance of being kept, tokens, tokens of kept ones."""
        total = np.zeros(3)
        for p, played, _, end in paths(world, world.teacher, s, t):
            cost = world.tokens[list(played[: recipe.cap(t)])].sum()
            good = recipe.phi == "all" or end == world.S
            total += p * np.array([good, cost, cost * good])
        return total

    for p, states, actions, end in rollouts(world, policy):
        kept = {
            "all": True,
            "without_success": end != world.S,
            "no_repetition": not repeats(world, states, actions, recipe.repetition),
        }[recipe.psi]
        for t, q in enumerate(switch_law(world, recipe, states, actions)):
            if not (q and kept):
                continue
            kept_share, cost, kept_cost = continuation(states[t], t + 1)
            contexts[t, states[t]] += p * q * kept_share
            C_i += p * q * cost
            C_tr += p * q * kept_cost
    return contexts, C_i, C_tr


def recipes(world):
    names = ("pure-bc", "op-success", "op-critical", "op-failed", "oec", "leap")
    fixed = [preset(name, T_max=world.horizon) for name in names]
    return fixed + [preset("op-short", K=K, T_max=world.horizon) for K in (1, 2, "inf")]
