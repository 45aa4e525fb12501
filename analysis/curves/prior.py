"""The prior of learning curves: a mixture of Gaussians over coefficients and pilot facts, learnt from worlds.

`prior.json` is made by `benchmarks/planner_prior`. There is one component for each family of worlds
(recognised by facts and trainings), two broad ones for a family that was never seen, whose facts bear on
levels only (students that generalise and flatten, and tables that become the teacher), and one for a task
that is unlike all worlds, of which only the student's own pass@1 says something.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.arms import DIMENSION, KNOTS, Arm, Array, hat
from occupancy.record.errors import DataError

Count = tuple[float, int]
"""(successes, attempts)"""


ELSEWHERE = "elsewhere"
"""The component of tasks that are unlike all worlds that were learnt from."""
UNSEEN = ("new", "new table", ELSEWHERE)
"""The components that are of no family of worlds."""
SHIPPED = Path(__file__).with_name("prior.json")


@dataclass(frozen=True)
class Facts:
    """What a pilot says before any training. None where the pilot lacks it: that fact is left out.

    Attributes:
        student: rollouts of pi_0.
        teacher: demonstrations.
        learner: whole continuations (U_inf at contexts of pi_0).
        failed: whole continuations of rollouts without success.
        early, late: whole continuations with t' <= T / 2, and the others.
        handback0, handback1, handback5: the student after 0, 1, 5 teacher turns.
        T_max: horizon in turns.
        nll_demo, nll_tail, nll_rollout: mean negative log-likelihood, nats a turn, under pi_0 of turns of
            demonstrations, of continuations, and of its own rollouts.
        turns_demo, turns_tail: mean teacher turns of a demonstration and of a whole continuation.
        pilot: teacher tokens (C_i) of the pilot, demonstrations and failures included: the unit of sizes.
        sunk: teacher tokens of data that every final student is trained on beside (D_BC).
    """

    student: Count | None = None
    teacher: Count | None = None
    learner: Count | None = None
    failed: Count | None = None
    early: Count | None = None
    late: Count | None = None
    handback0: Count | None = None
    handback1: Count | None = None
    handback5: Count | None = None
    T_max: float | None = None
    nll_demo: float | None = None
    nll_tail: float | None = None
    nll_rollout: float | None = None
    turns_demo: float | None = None
    turns_tail: float | None = None
    pilot: float = 1.0
    sunk: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, tuple) and not 0 <= value[0] <= value[1]:
                raise ValueError(f"{f.name}: successes must lie between 0 and attempts; got {value}")


def _logit(count: Count | None) -> float:
    if count is None or not count[1]:
        return np.nan
    return float(np.log((count[0] + 0.5) / (count[1] - count[0] + 0.5)))


def _number(x: float | None) -> float:
    return np.nan if x is None else float(x)


def fact_vector(facts: Facts) -> Array:
    """[12] the facts as the model reads them; NaN where missing."""
    f, failed = facts, np.nan
    if f.failed is not None and f.learner is not None and f.learner[1]:
        q = (f.failed[0] + 2 * f.learner[0] / f.learner[1]) / (f.failed[1] + 2) * 0.96 + 0.02
        failed = float(np.log(q / (1 - q)))
    return np.array(
        [
            _logit(f.student),
            _logit(f.teacher),
            _logit(f.learner),
            failed,
            np.log(_number(f.T_max)),
            _number(f.nll_demo),
            _number(f.nll_tail),
            _number(f.nll_rollout),
            _logit(f.early) - _logit(f.late),
            np.log(_number(f.turns_tail) / _number(f.turns_demo)),
            _logit(f.handback5) - _logit(f.handback0),
            _logit(f.handback1) - _logit(f.handback0),
        ]
    )


@dataclass(frozen=True)
class Prior:
    """Mixture over [coefficients (54), standardised facts (12)].

    Attributes:
        log_weights: [C].
        means: [C, 66]; covariances: [C, 66, 66].
        names: [C] families, "new" and "new table" for unknown ones, and `ELSEWHERE`.
        fact_mean, fact_sd: [12], fact_noise: variance of a standardised fact.
        training: variance on the logit scale of a training at size 1, from subset and seed; it grows as 1 /
            size.
        lack: variance of a final arm around the features, at sizes 5 and 20.
        offsets: {arm: mean departure at sizes 5 and 20} of the arms that were learnt from.
        provenance: families, worlds, seeds, date, scores.
        bend: variance of a training halfway between the knots .8 and 5 around a line in log size.
        leads: {arm: mean lead at sizes 5 and 20 of buying it at contexts with mixed outcomes alone}, logits.
        tables: [C] whether the student of a component is a table, which becomes the teacher as data grow.
    """

    log_weights: Array
    means: Array
    covariances: Array
    names: tuple[str, ...]
    fact_mean: Array
    fact_sd: Array
    fact_noise: float
    training: float
    lack: tuple[float, float]
    offsets: dict[tuple[str, float, float], tuple[float, float]]
    provenance: dict[str, Any]
    bend: float = 0.0
    tables: tuple[bool, ...] = ()
    leads: dict[tuple[str, float, float], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {len(x) for x in (self.log_weights, self.means, self.covariances, self.names)}
        if len(counts) > 1 or (self.tables and len(self.tables) != len(self.names)):
            raise ValueError("a prior whose weights, means, covariances, names and tables differ in number")

    def training_variance(self, size: float) -> float:
        """Variance on the logit scale that all trainings of one arm at one size share: the subset, the seed,
        and, between the knots .8 and 5, a curve that is no straight line in log size."""
        between = hat(size)[2] if size < np.exp(KNOTS[2]) else 0.0
        return float(self.training / max(size, 0.1) + 4 * self.bend * between * (1 - between))

    def offset(self, arm: Arm, size: float) -> float:
        """Mean departure of a final arm from its features, on the logit scale."""
        form, none = (arm.recipe, arm.K, arm.r), (0.0, 0.0)
        lead = self.leads.get(form, none) if arm.context == "mixed" else none
        pair = np.add(self.offsets.get(form, none), lead)
        return float(np.interp(np.log(size), np.log([5.0, 20.0]), pair))

    def lack_of_fit(self, size: float) -> float:
        """Variance of a final arm around its features, on the logit scale."""
        return float(np.interp(np.log(size), np.log([5.0, 20.0]), self.lack))


def from_json(text: str) -> Prior:
    """The prior of a JSON text; covariances are made positive definite again after rounding."""
    d = json.loads(text)
    means = np.array(d["means"])
    n = means.shape[1]
    low, full = np.tril_indices(n), []
    for triangle in d["covariances"]:
        S = np.zeros((n, n))
        S[low] = triangle
        S = S + np.tril(S, -1).T
        w, U = np.linalg.eigh(S)
        full.append((U * np.maximum(w, 1e-6)) @ U.T)
    return Prior(
        np.array(d["log_weights"]),
        means,
        np.array([full[k] for k in d["covariance_of"]]),
        tuple(d["names"]),
        np.array(d["fact_mean"]),
        np.array(d["fact_sd"]),
        d["fact_noise"],
        d["training"],
        (d["lack"][0], d["lack"][1]),
        _pairs(d["offsets"]),
        d["provenance"],
        float(d.get("bend", 0.0)),
        tuple(d.get("tables", [False] * len(means))),
        _pairs(d.get("leads", [])),
    )


def _pairs(told: list[Any]) -> dict[tuple[str, float, float], tuple[float, float]]:
    return {(r, float(K), share): (a, b) for r, K, share, a, b in told}


@cache
def shipped(path: Path = SHIPPED) -> Prior:
    """The prior that comes with the package."""
    try:
        prior = from_json(path.read_text("utf-8"))
    except (LookupError, OSError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no prior ({error!r}): restore it, or install fewsteps again") from error
    if prior.means.shape[1] != DIMENSION + len(prior.fact_mean):
        needed = DIMENSION + len(prior.fact_mean)
        raise DataError(
            f"{path} is for {prior.means.shape[1]} numbers a world, the model has {needed}: learn it again"
        )
    return prior
