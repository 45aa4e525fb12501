"""Small trainings as evidence: observations of the model, and whether arms differ at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.arms import DIMENSION, Arm, Array, features
from analysis.curves.prior import Prior
from occupancy.record.errors import InputError
from occupancy.statistics.clusters import clustered_ratio


@dataclass(frozen=True)
class Training:
    """One student trained on a cut of the pilot (or of a purchase), and its evaluation."""

    arm: Arm
    """What it was cut as; the cut's real share of on-policy tokens is what the model reads."""
    demo_tokens: float
    """C_i of the demonstrations in its cut."""
    continuation_tokens: float
    """C_i of the continuations, rejected ones included."""
    seed: int
    """Of subset and optimiser."""
    successes: tuple[float, ...]
    """[Q] successful attempts at each evaluation task; a fraction where an outcome is expected."""
    attempts: tuple[int, ...]
    """[Q]"""
    seconds: float = 0.0
    """Of training and evaluation; what the trainer says, or wall clock."""
    sunk_tokens: float = 0.0
    """C_i of other data that it was trained on beside its cut, as D_BC."""

    def __post_init__(self) -> None:
        if not self.successes or len(self.successes) != len(self.attempts):
            raise InputError(
                f"a training with successes of {len(self.successes)} tasks and attempts of "
                f"{len(self.attempts)}: expected the same, non-empty list of tasks"
            )
        if any(not (n > 0 and 0 <= k <= n) for k, n in zip(self.successes, self.attempts, strict=True)):
            raise InputError("a training whose successes of a task are below 0 or above its attempts")
        if not self.tokens > 0:
            raise InputError(f"a training on {self.tokens} teacher tokens: expected more than 0")

    @property
    def tokens(self) -> float:
        """C_i of its cut."""
        return self.demo_tokens + self.continuation_tokens

    @property
    def pass_at_1(self) -> float:
        """Fraction of attempts that succeed."""
        return float(np.sum(self.successes) / np.sum(self.attempts))

    @property
    def se(self) -> float:
        """Standard error of `pass_at_1`, clustered by evaluation task."""
        won, tried = np.array(self.successes), np.array(self.attempts, float)
        return float(clustered_ratio(won, tried, cluster=np.arange(len(won)))[1])

    def size(self, pilot: float) -> float:
        """Its tokens in units of the pilot's."""
        return self.demo_tokens / pilot + self.continuation_tokens / pilot

    def row(self, pilot: float) -> Array:
        """[54] its features, with the cut's real share of on-policy tokens."""
        size = self.size(pilot)
        r, sunk = self.continuation_tokens / pilot / size, self.sunk_tokens / pilot
        return features(self.arm, size, sunk=sunk, r=r)


def measured(training: Training) -> tuple[float, float]:
    """(logit of pass@1, its variance) of an evaluation, with errors clustered by task.

    The variance is never below half the binomial one: a few tasks cannot prove less noise than that.
    """
    k, n = np.array(training.successes, float), np.array(training.attempts, float)
    total, tasks = n.sum(), len(n)
    p = float((k.sum() + 0.5) / (total + 1))
    binomial = p * (1 - p) / total
    clustered = (
        tasks / (tasks - 1) * float(((k - p * n) ** 2).sum()) / total**2
        if tasks > 1
        else binomial * float(n.max())
    )
    return float(np.log(p / (1 - p))), max(clustered, binomial / 2) / (p * (1 - p)) ** 2


def observations(
    trainings: Sequence[Training], prior: Prior, *, pilot: float = 1.0
) -> tuple[Array, Array, Array]:
    """Rows [n, 54], logits [n] and variances [n], one for all trainings of one arm at one size (within 5 %).

    pilot: teacher tokens of the pilot, the unit of sizes.

    Evaluation noise averages out over trainings of one form. What they share does not: their subsets overlap
    where the pilot has no more to give, and the curve need not be a line between the knots.
    """
    forms: dict[tuple[Any, ...], list[Training]] = {}
    for t in sorted(trainings, key=lambda t: (t.arm, t.size(pilot), t.seed, t.successes)):
        size, (recipe, K, _, *own) = t.size(pilot), t.arm.form
        share = t.continuation_tokens / pilot / size
        key = recipe, K, *own, round(10 * share), round(float(np.log(size)) / 0.1), t.sunk_tokens
        forms.setdefault(key, []).append(t)
    rows, logits, noise = np.zeros((len(forms), DIMENSION)), np.zeros(len(forms)), np.zeros(len(forms))
    for k, group in enumerate(forms.values()):
        seen = np.array([measured(t) for t in group])
        weight = 1 / seen[:, 1]
        rows[k] = weight @ np.array([t.row(pilot) for t in group]) / weight.sum()
        logits[k] = weight @ seen[:, 0] / weight.sum()
        every = float(np.mean([t.size(pilot) + t.sunk_tokens / pilot for t in group]))
        noise[k] = 1 / weight.sum() + prior.training_variance(every)
    return rows, logits, noise


def distinguishable(trainings: Sequence[Training], *, permutations: int = 999, seed: int = 0) -> float:
    """p-value of "all arms are equal" in the trainings: permutation test of the weighted squares between
    arms.

    A linear trend in log size is removed first. With no information (shuffled rewards) it is uniform; `plan`
    says `no_preference` above .05. It is 1 where no two arms, or no arm twice, were trained.
    """
    names = [t.arm.form for t in trainings]
    levels = sorted(set(names))
    if len(levels) < 2 or len(names) == len(levels):
        return 1.0
    y = np.array([measured(t)[0] for t in trainings])
    u = np.log([t.tokens + t.sunk_tokens for t in trainings])
    A = np.column_stack([np.ones(len(y)), u])[:, : 1 + int(np.ptp(u) > 1e-9)]
    residual = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    group = np.array([levels.index(x) for x in names])
    size = np.bincount(group)
    rng = np.random.default_rng(seed)

    def between(x: Array) -> float:
        return float((np.bincount(group, x) ** 2 / size).sum())

    seen = between(residual)
    return (1 + sum(between(rng.permutation(residual)) >= seen - 1e-12 for _ in range(permutations))) / (
        1 + permutations
    )
