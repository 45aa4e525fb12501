"""The rule for one more token: K* = argmax G(K) / m(K).

While coverage is far from saturated, a budget B buys B / m(K) contexts (m with every fixed cost in it)
and each brings about G(K), so depth is worth buying until its marginal value per token falls to the
average one (Charnov's marginal value theorem). The curve is flat near its best, so what is reported is
the set of depths that the pilot cannot tell from the best one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.pilot import Flags, Floats, Ints, by_cluster

LEVEL = 0.9
"""Of the set of depths not distinguishable from the best."""
GAIN_LEVEL = 0.99
"""Of the test that some depth gains anything; strict, since shuffled rewards must not rank."""


@dataclass(frozen=True)
class Rule:
    """The rule at M depths, with what a bootstrap over tasks says about it."""

    value: Floats
    """[M] G / m: gain for one unit of the axis."""
    low: Floats
    high: Floats
    """[M] LEVEL band of `value` over the draws."""
    best: int
    not_worse: Flags
    """[M] the set that holds the best depth with probability LEVEL (Hsu's comparison with the best)."""
    p_best: Floats
    """[M] share of draws in which the depth is the best; ties share a draw."""
    regret: Floats
    """[M] expected loss against the best depth, in the unit of `value`."""
    gain_exists: bool
    """Some depth's gain is above 0 at 99 %, all depths compared at once."""
    draws: Floats
    """[D, M] bootstrap of `value` over tasks."""


def weigh(
    gain: Floats,
    gain_weight: Floats,
    cost: Floats,
    *,
    cluster: Ints,
    n_clusters: int,
    draws: int = 500,
    seed: int = 0,
) -> Rule:
    """Weigh depths against each other, tasks resampled whole.

    gain, gain_weight, cost: [C, M] a context's U_K - U_0, its weight, and what it costs at that depth.
    """
    sums = [
        by_cluster(values, cluster=cluster, n_clusters=n_clusters)
        for values in (gain * gain_weight, gain_weight, cost, np.ones_like(cost))
    ]
    used = np.flatnonzero(sums[3].any(1))
    sums = [part[used] for part in sums]
    rng = np.random.default_rng(seed)
    multiplicity = rng.multinomial(len(used), np.full(len(used), 1 / len(used)), size=draws).astype(float)
    G, value = _rule(*(part.sum(0)[None] for part in sums))
    G_draws, drawn = _rule(*(multiplicity @ part for part in sums))
    whole = np.isfinite(drawn).all(1)
    drawn, G_draws = drawn[whole], G_draws[whole]
    value, G = value[0], G[0]
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    return Rule(
        value=value,
        low=low,
        high=high,
        best=int(np.argmax(value)),
        not_worse=not_worse(value, drawn),
        p_best=chances(drawn),
        regret=(drawn.max(1, keepdims=True) - drawn).mean(0),
        gain_exists=_above_zero(G, G_draws),
        draws=drawn,
    )


def not_worse(value: Floats, drawn: Floats, *, level: float = LEVEL) -> Flags:
    """[M] depths that multiple comparisons with the best cannot exclude.

    value: [M]; drawn: [draws, M], its bootstrap. Depth K leaves the set where some other depth beats it
    by more than the `level` quantile of the largest studentised error among the comparisons with K.
    """
    keep = np.ones(len(value), bool)
    for K in range(len(value)):
        ahead, drawn_ahead = value - value[K], drawn - drawn[:, [K]]
        spread = drawn_ahead.std(0)
        real = spread > 1e-12 * max(float(np.abs(value).max()), 1e-300)
        if not real.any():
            continue
        error = (drawn_ahead[:, real] - ahead[real]) / spread[real]
        keep[K] = bool((ahead[real] <= np.quantile(error.max(1), level) * spread[real]).all())
    keep[int(np.argmax(value))] = True
    return keep


def chances(drawn: Floats) -> Floats:
    """[M] share of draws [draws, M] in which each is the best; those that tie share the draw."""
    first = drawn == drawn.max(1, keepdims=True)
    return np.asarray((first / first.sum(1, keepdims=True)).mean(0))


def _rule(A: Floats, W: Floats, B: Floats, N: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore", divide="ignore"):
        G = A / W
        return G, G / (B / N)


def _above_zero(G: Floats, drawn: Floats) -> bool:
    spread = drawn.std(0)
    real = spread > 0
    if (G[~real] > 0).any():  # the same in every draw: certain
        return True
    if not real.any():
        return False
    error = ((drawn - G)[:, real] / spread[real]).max(1)
    return bool((G[real] > np.quantile(error, GAIN_LEVEL) * spread[real]).any())
