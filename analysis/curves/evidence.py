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

MOST_SHARED = 0.95
"""Largest correlation of the errors of two evaluations: two students are never quite the same."""


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
    attempts: tuple[float, ...]
    """[Q] A fraction where attempts are weighted so that all tasks count the same (`task_weights`)."""
    seconds: float = 0.0
    """Of training and evaluation; what the trainer says, or wall clock."""
    sunk_tokens: float = 0.0
    """C_i of other data that it was trained on beside its cut, as D_BC."""
    tasks: tuple[str, ...] = ()
    """[Q] names of the evaluation tasks; empty: tasks that no other training was evaluated on."""

    def __post_init__(self) -> None:
        if not self.successes or len(self.successes) != len(self.attempts):
            raise InputError(
                f"a training with successes of {len(self.successes)} tasks and attempts of "
                f"{len(self.attempts)}: expected the same, non-empty list of tasks"
            )
        if self.tasks and not len(self.tasks) == len(set(self.tasks)) == len(self.attempts):
            raise InputError(
                f"a training with {len(set(self.tasks))} different names of {len(self.attempts)} tasks"
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
        """Fraction of attempts that succeed, weighted as `attempts` are."""
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


def evaluation_noise(trainings: Sequence[Training]) -> Array:
    """[T, T] covariances of the errors of the evaluations' logits.

    Trainings that were evaluated on the same tasks share the luck of which tasks those are, so it does not
    average out over them, and it does cancel between them. Their residuals k - p n at a task have one
    correlation rho, the same for all pairs (the constant correlation of Ledoit and Wolf 2004). The errors of
    a pair then correlate by rho times the cosine of their attempts [Q], which is 1 on the same tasks and 0 on
    other ones; rho is the sum over pairs of the cosines of residuals, divided by that of attempts.
    """
    sd = np.sqrt([measured(t)[1] for t in trainings])
    column = {task: q for q, task in enumerate(dict.fromkeys(task for t in trainings for task in t.tasks))}
    won, tried = np.zeros((2, len(trainings), len(column)))
    for at, t in enumerate(trainings):
        if own := [column[task] for task in t.tasks]:
            won[at, own], tried[at, own] = t.successes, t.attempts
    residuals = won - tried * np.array([[t.pass_at_1] for t in trainings]).reshape(-1, 1)
    shared, told = _cosines(tried), _cosines(residuals)
    pairs = np.triu_indices(len(trainings), 1)
    # Tasks that all went alike say nothing of it.
    possible = float((shared * np.outer(told.diagonal(), told.diagonal()))[pairs].sum())
    rho = float(told[pairs].sum()) / possible if possible else 0.0
    correlation = min(max(rho, 0.0), MOST_SHARED) * shared
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(correlation * np.outer(sd, sd))


def _cosines(x: Array) -> Array:
    """[n, n] cosines of the angles between rows; 0 with a row of zeros."""
    length = np.sqrt((x**2).sum(1, keepdims=True))
    unit = np.divide(x, length, out=np.zeros_like(x), where=length > 1e-9)
    return np.asarray(unit @ unit.T)


def observations(
    trainings: Sequence[Training], prior: Prior, *, pilot: float = 1.0
) -> tuple[Array, Array, Array]:
    """Rows [n, 54], logits [n] and covariances of their noise [n, n], one for all trainings of one arm at one
    size (within 5 %).

    pilot: teacher tokens of the pilot, the unit of sizes.

    The noise of attempts averages out over trainings of one form. What they share does not: evaluation tasks,
    subsets that overlap where the pilot has no more to give, and a curve that need not be a line between the
    knots.
    """
    trainings = sorted(trainings, key=lambda t: (t.arm, t.size(pilot), t.seed, t.successes))
    forms: dict[tuple[Any, ...], list[int]] = {}
    for at, t in enumerate(trainings):
        size, (recipe, K, _, *own) = t.size(pilot), t.arm.form
        share = t.continuation_tokens / pilot / size
        key = recipe, K, *own, round(10 * share), round(float(np.log(size)) / 0.1), t.sunk_tokens
        forms.setdefault(key, []).append(at)
    seen = np.array([measured(t) for t in trainings]).reshape(-1, 2)
    weights, curve = np.zeros((len(forms), len(trainings))), np.zeros(len(forms))
    for k, group in enumerate(forms.values()):
        weights[k, group] = 1 / seen[group, 1] / (1 / seen[group, 1]).sum()
        every = [trainings[at].size(pilot) + trainings[at].sunk_tokens / pilot for at in group]
        curve[k] = prior.training_variance(float(np.mean(every)))
    rows = np.array([t.row(pilot) for t in trainings]).reshape(-1, DIMENSION)
    noise = weights @ evaluation_noise(trainings) @ weights.T + np.diag(curve)
    return weights @ rows, weights @ seen[:, 0], noise


def distinguishable(trainings: Sequence[Training], *, permutations: int = 999, seed: int = 0) -> float:
    """p-value of "all arms are equal" in the trainings: permutation test of the weighted squares between
    arms.

    A linear trend in log size is removed first. With no information (shuffled rewards) it is uniform; `plan`
    says `no_preference` above .05. It is 1 where no two arms, or no arm twice, were trained.
    """
    names = [t.arm.form for t in trainings]
    levels = sorted(set(names))
    if len(levels) < 2:
        return 1.0
    y = np.array([measured(t)[0] for t in trainings])
    u = np.log([t.tokens + t.sunk_tokens for t in trainings])
    A = np.column_stack([np.ones(len(y)), u])
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
