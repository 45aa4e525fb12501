"""Learn `prior.json` from the worlds that `generate` stored.

    python -m benchmarks planner_prior.learn --data DIR --out prior.json [--scores judged.json]

1. EM for logit J = features beta_w + offset(option) + noise over all worlds w, beta_w Gaussian.
2. The mixture, once for worlds whose students generalise and flatten and once for those whose student is a
   table that becomes the teacher: for each family its mean and its covariance, shrunk to that within all
   families of the kind; and a broad component with the mean and covariance of all worlds of the kind, in
   which facts bear on levels but not on differences between arms.
3. One component for pilots that are unlike those of all worlds: `elsewhere`.

No option buys mixed contexts alone: what that adds is learnt apart, by `chosen`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.arms import DIMENSION, EFFECTS, KNOTS, Array
from analysis.curves.prior import ELSEWHERE, Prior
from benchmarks.planner_prior.stored import OPTIONS, ROWS, VARIED, World, read

Component = tuple[str, Array, Array]
"""(name, mean [66], covariance [66, 66])"""
KEPT = (
    "regret",
    "regret se",
    "split",
    "held",
    "width",
    "bias",
    "worst bias",
    "purchase",
    "16 more",
    "16 more held",
    "16 more width",
    "worlds",
)
"""Scores of `judge` that are stored with the prior."""


def em(worlds: Sequence[World], steps: int = 30, shrink: float = 8.0) -> tuple[Array, Array, Array]:
    """(beta_w [W, 54], variances [3] of small trainings and of final students at 5 and 20, offsets [2, 45]).

    Args:
        worlds: W of them.
        steps: of EM.
        shrink: the covariance of beta_w is shrunk to its diagonal as by so many more worlds.
    """
    W, n = len(worlds), len(OPTIONS)
    XX, Xy = np.array([x.XX for x in worlds]), np.array([x.Xy for x in worlds])
    yy, count = np.array([x.yy for x in worlds]), np.array([x.count for x in worlds])
    final = np.array([x.final for x in worlds])
    rows = np.array([np.vstack([ROWS[m, "success"], ROWS[m, "all"]]) for m in (5, 20)])
    mean, S = np.zeros(DIMENSION), np.eye(DIMENSION) * 0.3
    v, off, betas = np.array([0.05, 0.01, 0.01]), np.zeros((2, n)), np.zeros((W, DIMENSION))
    for _ in range(steps):
        xy, square = Xy.copy(), yy.copy()
        for k in (0, 1):
            shift = np.tile(off[k], 2)
            xy[:, k + 1] -= shift @ rows[k]
            square[:, k + 1] = ((final[:, k] - shift) ** 2).sum(1)
        V = np.linalg.inv(np.linalg.inv(S) + np.einsum("wgij,g->wij", XX, 1 / v))
        betas = np.einsum("wij,wj->wi", V, np.einsum("wgi,g->wi", xy, 1 / v) + np.linalg.solve(S, mean))
        second = betas[:, :, None] * betas[:, None] + V
        left = square - 2 * np.einsum("wgi,wi->wg", xy, betas) + np.einsum("wgij,wij->wg", XX, second)
        v = left.sum(0) / count.sum(0)
        for k in (0, 1):
            rest = (final[:, k] - np.tile(off[k], 2) - betas @ rows[k].T).reshape(W, 2, n)
            off[k] += rest.mean(1).sum(0) / (W + 10)
        mean = betas.mean(0)
        S = (betas - mean).T @ (betas - mean) + V.sum(0)
        S = (S + shrink * np.diag(np.diag(S)) / W) / (W + shrink)
    return betas, v, off


def shrunk(R: Array, freedom: float, towards: float) -> Array:
    """Covariance of rows R, shrunk to its diagonal as by `towards` more rows."""
    S = R.T @ R / freedom
    return np.asarray((S * freedom + towards * np.diag(np.diag(S))) / (freedom + towards))


def definite(S: Array) -> Array:
    """The nearest matrix with eigenvalues of at least 1e-5."""
    w, U = np.linalg.eigh(S)
    return np.asarray((U * np.maximum(w, 1e-5)) @ U.T)


def learn(
    worlds: Sequence[World],
    *,
    new: float = 0.5,
    tables: float = 0.25,
    unlike: float = 0.1,
    spread: float = 0.15,
    own: float = 10.0,
    shrink: tuple[float, float] = (0.5, 1.5),
    repeats: tuple[float, float] = (0.0015, 0.0005),
    bend: float = 0.01,
    steps: int = 30,
) -> Prior:
    """The mixture prior.

    Args:
        worlds: of all families that may be used.
        new: prior probability of a family that was never seen.
        tables: probability that the student of such a family is a table, if any world has one.
        unlike: probability of a pilot that is unlike those of all worlds.
        spread: a known family's mean may have moved by this fraction of the spread of family means.
        own: a family's covariance is shrunk to that within all families of its kind as by so many worlds.
        shrink: pseudo-counts that shrink the broad and the within-family covariance to their diagonals.
        repeats: variance that a candidate's own seeds add at sizes 5 and 20.
        bend: see `Prior`; chosen by rounds with families left out.
        steps: of EM.
    """
    betas, v, off = em(worlds, steps)
    F = np.array([x.facts for x in worlds])
    mu, sd = np.nanmean(F, 0), np.nanstd(F, 0) + 1e-9
    A = np.hstack([betas, np.nan_to_num((F - mu) / sd)])
    family, table = np.array([x.family for x in worlds]), np.array([x.table for x in worlds])
    known: list[Component] = []
    broad: list[Component] = []
    tabular: list[bool] = []
    for kind, name in ((False, "new"), (True, "new table")):
        these = table == kind
        if not these.any():
            continue
        found = of_families(A[these], family[these], spread=spread, own=own, shrink=shrink[1])
        known, tabular = known + found, tabular + [kind] * len(found)
        broad.append((name, *of_all(A[these], shrink=shrink[0])))
    if len(known) < 2:
        raise SystemExit(
            f"worlds of {[name for name, *_ in known]} only: a prior needs three worlds of each of two "
            f"families or more"
        )
    weights = [(1 - new) / len(known)] * len(known)
    kinds = {"new": 1 - tables, "new table": tables} if len(broad) > 1 else {broad[0][0]: 1.0}
    weights += [new * kinds[name] for name, *_ in broad]
    weights = [(1 - unlike) * weight for weight in weights] + [unlike]
    names, means, covariances = zip(
        *known, *broad, (ELSEWHERE, *elsewhere(*broad[0][1:], sd[0])), strict=True
    )
    return Prior(
        log_weights=np.log(weights),
        means=np.array(means),
        covariances=np.array([definite(S) for S in covariances]),
        names=names,
        fact_mean=mu,
        fact_sd=sd,
        fact_noise=0.1,
        training=float(v[0]),
        lack=(float(v[1] + repeats[0]), float(v[2] + repeats[1])),
        offsets={(a.recipe, a.K, a.r): (float(off[0, k]), float(off[1, k])) for k, a in enumerate(OPTIONS)},
        provenance={},
        bend=bend,
        tables=(*tabular, *(name == "new table" for name, *_ in broad), False),
    )


def of_families(A: Array, family: Any, *, spread: float, own: float, shrink: float) -> list[Component]:
    """One component for each family of a kind with three worlds or more.

    Args:
        A: [W, 66] coefficients and standardised facts.
        family: [W] names.
        spread, own, shrink: see `learn`.
    """
    names = [f for f in dict.fromkeys(family.tolist()) if f not in VARIED and (family == f).sum() > 2]
    if not names:
        return []
    means = [A[family == f].mean(0) for f in names]
    around = [A[family == f] - m for f, m in zip(names, means, strict=True)]
    R = np.vstack(around)
    within = shrunk(R, max(len(R) - len(names), 1), shrink)
    moved = spread**2 * np.cov(np.transpose(means)) if len(names) > 1 else 0.0
    return [
        (f, m, (r.T @ r + own * within) / (len(r) - 1 + own) + moved)
        for f, m, r in zip(names, means, around, strict=True)
    ]


def of_all(A: Array, *, shrink: float) -> tuple[Array, Array]:
    """Mean [66] and covariance [66, 66] of all worlds of a kind, facts bearing on levels alone."""
    q, center = DIMENSION, A.mean(0)
    broad = shrunk(A - center, len(A), shrink)
    share = np.where(np.arange(q) < len(KNOTS), 0.8, 0.0)
    broad[:q, q:] *= share[:, None]
    broad[q:, :q] *= share[None]
    return center, broad


def elsewhere(
    center: Array,
    S: Array,
    student_sd: float,
    *,
    shift: float = 3.0,
    rate: tuple[float, float] = (0.4, 0.5),
    wide: float = 3.0,
) -> tuple[Array, Array]:
    """Mean [66] and covariance [66, 66] of curves of a task that is unlike all worlds.

    No fact but the student's pass@1 bears on its curves. Its levels and the student's are shifted together,
    the levels rise faster with size, and the other facts may lie further out.

    Args:
        center: [66] mean of all worlds of a kind; S: [66, 66] their covariance, as of `of_all`.
        student_sd: standard deviation of the student's logit over worlds, the unit of that fact.
        shift: standard deviation, in logits.
        rate: mean and standard deviation of the further rise, in logits for each unit of log size: in three
            studies of a real model it was 1.2, .35 and about 0 (benchmarks/planner.md).
        wide: in standard deviations over worlds.
    """
    q, n = DIMENSION, len(S)
    mean, found = center * (np.arange(n) <= q), np.zeros_like(S)
    found[: q + 1, : q + 1] = S[: q + 1, : q + 1]
    found[q + 1 :, q + 1 :] = wide**2 * np.eye(n - q - 1)
    moved, risen = np.zeros(n), np.zeros(n)
    moved[: len(KNOTS)], moved[q] = 1.0, 1 / student_sd
    risen[: len(KNOTS)] = KNOTS
    spread = shift**2 * np.outer(moved, moved) + rate[1] ** 2 * np.outer(risen, risen)
    return mean + rate[0] * risen, found + spread


def _short(x: Array | tuple[float, float]) -> list[float]:
    return [float(f"{v:.4g}") for v in np.ravel(x)]


def _by_arm(pairs: dict[tuple[str, float, float], tuple[float, float]]) -> list[list[Any]]:
    return [[r, "inf" if np.isinf(K) else K, share, *_short(v)] for (r, K, share), v in pairs.items()]


def to_json(prior: Prior) -> str:
    """The prior as JSON; covariances by lower triangle, shared ones stored once."""
    shared: list[Array] = []
    which: list[int] = []
    for S in prior.covariances:
        at = next((k for k, T in enumerate(shared) if np.array_equal(S, T)), len(shared))
        if at == len(shared):
            shared.append(S)
        which.append(at)
    low = np.tril_indices(prior.means.shape[1])
    return json.dumps(
        {
            "provenance": prior.provenance,
            "names": prior.names,
            "log_weights": _short(prior.log_weights),
            "means": [_short(m) for m in prior.means],
            "covariance_of": which,
            "covariances": [_short(S[low]) for S in shared],
            "fact_mean": _short(prior.fact_mean),
            "fact_sd": _short(prior.fact_sd),
            "fact_noise": prior.fact_noise,
            "training": prior.training,
            "lack": list(prior.lack),
            "offsets": _by_arm(prior.offsets),
            "leads": _by_arm(prior.leads),
            "bend": prior.bend,
            "tables": list(prior.tables),
        }
    )


def main(data: Path, out: Path, date: str = "", scores: Path | None = None) -> None:
    """Write the prior and how it was made; data: what `generate` filled, scores: what `judge` wrote."""
    worlds = read(data)
    prior = learn(worlds)
    judged = json.loads(scores.read_text()) if scores else {}
    known = {
        "worlds": {f: sum(x.family == f for x in worlds) for f in dict.fromkeys(x.family for x in worlds)},
        "seeds": sorted({x.raw["seed"] for x in worlds}),
        "date": date,
        "effects": list(EFFECTS),
        "knots": [round(float(np.exp(k)), 3) for k in KNOTS],
        "method": "benchmarks/planner_prior; scores are of priors that had not seen the worlds or families "
        "judged: benchmarks/planner.md",
        "scores": {
            title: {m: {key: row[key] for key in KEPT} for m, row in by.items()}
            for title, by in judged.items()
        },
    }
    out.write_text(to_json(replace(prior, provenance=known)))
    print(
        f"{len(worlds)} worlds; variance of trainings {prior.training:.4f}, "
        f"of final students {prior.lack[0]:.4f} and {prior.lack[1]:.4f}"
    )
