"""Differences of success between arms, paired by task, and pass@k: with errors, and what could not be seen.

Every number is a mean over tasks; docs/compare.md has the formulas and their sources. The variance of a
difference has two parts: that of tasks, clustered by underlying task, and where an arm has several trainings
that of their seeds, max(0, s^2 / S - V). s^2 is the variance of the S trainings' means, and
V = sum r^2 / (S C (S - 1) (C - 1)) what tasks and attempts contribute to s^2 / S, with r the residuals of a
two-way table of trainings by C tasks (analysis of variance, random effects).

Where all tasks of one arm agree, the error of a difference is that of the other arm alone, and where every
difference is the same it is 0: there Newcombe's interval takes the place of Student's t.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import nan, sqrt
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student

from agentloop.run.evaluate import RESIDUE, interval, wilson
from analysis.compare.scores import Source, read_scores
from analysis.compare.telling import said
from occupancy.record.errors import DataError, InputError
from occupancy.record.shows import Shown, Shows
from occupancy.statistics.clusters import mean_over_tasks

Interval = tuple[float | None, float | None, str]
"""Low, high and the method, as `interval` returns them."""
POWER = 0.8
LEVEL = 0.05


@dataclass(frozen=True)
class Rate:
    """pass@k of an arm: the probability that at least one of k attempts at a task succeeds."""

    arm: str
    k: int
    rate: float
    """Mean over tasks; unbiased for each (Chen et al. 2021)."""
    se: float | None
    """Clustered by task, trainings included where there are several; None with one task."""
    low: float | None
    high: float | None
    interval: str
    """Method of low and high, 95 %: t, wilson (the error is 0), or none (one task)."""
    tasks: int
    attempts: int
    no_data: int
    """Attempts that ended in an error, and count as failures."""
    trainings: int


@dataclass(frozen=True)
class Difference:
    """pass@1 of arm b minus that of arm a, over the tasks of both."""

    a: str
    b: str
    difference: float
    """In units of pass@1: .05 is 5 points."""
    se: float | None
    low: float | None
    high: float | None
    interval: str
    """Method of low and high, 95 %: t, newcombe (all tasks of an arm agree, or all differences), or none."""
    p: float | None
    p_holm: float | None
    """Adjusted for all differences of the comparison."""
    detectable: float | None
    """Smallest difference found in 80 % of repetitions, at 5 % over all differences together."""
    tasks: int
    clusters: int
    only_a: int
    """Tasks that arm b was not evaluated on; they do not enter."""
    only_b: int

    @property
    def found(self) -> bool:
        """Whether the arms differ, at 5 % over all differences of the comparison."""
        return self.p_holm is not None and self.p_holm < LEVEL


@dataclass(frozen=True)
class Comparison(Shows):
    """Arms with their success rates, and all differences between them."""

    rates: tuple[Rate, ...]
    differences: tuple[Difference, ...]
    cautions: tuple[str, ...]

    def to_pandas(self) -> pd.DataFrame:
        """The differences, a row each."""
        return pd.DataFrame([asdict(d) | {"found": d.found} for d in self.differences])

    def _shown(self) -> Shown:
        lines = [*map(said, self.differences), *self.cautions]
        return lines, [self.rates_to_pandas(), self.to_pandas()]

    def rates_to_pandas(self) -> pd.DataFrame:
        """The success rates, a row an arm and k."""
        return pd.DataFrame([asdict(rate) for rate in self.rates])


def compare(
    arms: Mapping[str, Source | Sequence[Source]] | Sequence[str | Path],
    *,
    k: Sequence[int] = (1,),
    success_at: float | None = None,
    scored: bool = False,
    baseline: str | None = None,
) -> Comparison:
    """Success rates of arms on the same tasks, and their paired differences.

    Args:
        arms: Name of an arm -> its evaluation (a folder, or {task_id: [rewards]}), or several of trainings
            that differ in their seed; or folders alone, each an arm.
        k: pass@k that are reported.
        success_at: Success is a reward of at least this; by default what the evaluations say.
        scored: Leave out attempts that ended in an error, which are failures otherwise.
        baseline: An arm that all others are compared with; by default every pair is compared.

    Raises:
        InputError: Fewer than two arms, an unknown baseline, k < 1.
        DataError: Evaluations that cannot be read or compared, or without a common task.

    Example:
        >>> found = compare({"a": {"q1": [1, 0], "q2": [0, 0]}, "b": {"q1": [1, 1], "q2": [0, 1]}})
        >>> found.differences[0].difference
        0.5
    """
    named = arms if isinstance(arms, Mapping) else {str(folder): folder for folder in arms}
    if len(named) < 2:
        raise InputError(f"{len(named)} evaluation to compare: expected at least two different ones")
    if baseline is not None and baseline not in named:
        raise InputError(f"baseline {baseline!r}: expected one of {', '.join(named)}")
    return compare_scores(read_scores(named, success_at=success_at), k=k, scored=scored, baseline=baseline)


def compare_scores(
    scores: pd.DataFrame, *, k: Sequence[int] = (1,), scored: bool = False, baseline: str | None = None
) -> Comparison:
    """`compare` for a frame of `analysis.compare.scores.read_scores`."""
    arms = list(dict.fromkeys(scores["arm"]))
    cautions = [*_cautions(scores, scored)]
    used = scores[~scores["no_data"]] if scored else scores
    for arm in set(arms) - set(used["arm"]):
        raise DataError(f"every attempt of {arm} ended in an error: there is nothing to compare")
    rates = tuple(_rate(used[used["arm"] == arm], number) for arm in arms for number in dict.fromkeys(k))
    pairs = [(baseline, b) for b in arms if b != baseline] if baseline else list(combinations(arms, 2))
    tables = {arm: _by_training(used[used["arm"] == arm], 1) for arm in arms}
    clusters = dict(zip(used["task_id"], used["cluster_id"], strict=True))
    found = [_difference(tables[a], tables[b], (a, b), clusters, len(pairs)) for a, b in pairs]
    adjusted = holm([d.p for d in found])
    differences = tuple(replace(d, p_holm=p) for d, p in zip(found, adjusted, strict=True))
    cautions += [
        f"{d.b} against {d.a} is over the {d.tasks} tasks of both: {d.only_a} tasks of {d.a} alone and "
        f"{d.only_b} of {d.b} alone are left out."
        for d in differences
        if d.only_a or d.only_b
    ]
    return Comparison(rates, differences, tuple(cautions))


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Unbiased pass@k of a task from n attempts: 1 - C(n - c, k) / C(n, k); NaN where n < k.

    Source: Chen et al. 2021, section 2.1, in their product form, which does not overflow.
    """
    if n < k:
        return nan
    if n - successes < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(n - successes + 1, n + 1)))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted by Holm's step-down method; missing ones stay missing, and do not count."""
    adjusted: list[float | None] = [None] * len(p)
    order = sorted((value, at) for at, value in enumerate(p) if value is not None)
    highest = 0.0
    for place, (value, at) in enumerate(order):
        highest = max(highest, min(1.0, value * (len(order) - place)))
        adjusted[at] = highest
    return adjusted


def _by_training(scores: pd.DataFrame, k: int) -> pd.DataFrame:
    """[tasks, trainings] pass@k of an arm, over tasks with k attempts under each of its trainings."""
    counts = scores.groupby(["task_id", "training"])["success"].agg(["size", "sum"])
    values = [pass_at_k(int(n), int(c), k) for n, c in zip(counts["size"], counts["sum"], strict=True)]
    return pd.Series(values, index=counts.index).unstack("training").dropna()


def _rate(scores: pd.DataFrame, k: int) -> Rate:
    arm = str(scores["arm"].iloc[0])
    if k < 1:
        raise InputError(f"k={k}: expected at least 1")
    table = _by_training(scores, k)
    if table.empty:
        most = scores.groupby(["task_id", "training"]).size().max()
        if k <= most:
            raise DataError(f"no task has k={k} attempts in every training of {arm}: evaluate all alike")
        raise InputError(f"k={k}: {arm} has {most} attempts at a task; expected k of at most that")
    clusters = dict(zip(scores["task_id"], scores["cluster_id"], strict=True))
    mean, se, (low, high, method) = _own(table, clusters)
    counts = len(table), len(scores), int(scores["no_data"].sum()), table.shape[1]
    return Rate(arm, k, mean, se, low, high, method, *counts)


def _difference(
    a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str], clusters: Mapping[str, str], m: int
) -> Difference:
    tasks = a.index.intersection(b.index)
    if tasks.empty:
        raise DataError(f"{names[0]} and {names[1]} have no task in common: evaluate both on the same tasks")
    a_rates, b_rates = a.loc[tasks].mean(axis=1), b.loc[tasks].mean(axis=1)
    d, variance, C = _mean(b_rates - a_rates, clusters)
    se, df = _with_trainings(variance, C, [training_variance(table.loc[tasks]) for table in (a, b)])
    low = high = p = seen = None
    method = "none"
    if se is not None:
        (mean_a, se_a, own_a), (mean_b, se_b, own_b) = (_own(t.loc[tasks], clusters) for t in (a, b))
        if se > 0 and se_a and se_b:
            method, p = "t", 2 * float(student.sf(abs(d) / se, df))
            half = float(student.ppf(1 - LEVEL / 2, df)) * se
            low, high = max(-1.0, d - half), min(1.0, d + half)
            seen = _detectable(se, df, m)
        else:
            method, z = "newcombe", float(norm.ppf(1 - LEVEL / 2))
            if se == 0:
                p = 1.0 if d == 0 else 2.0 ** (1 - C)
                own_a, own_b = ((*wilson(mean, C), "wilson") for mean in (mean_a, mean_b))
            low, high = _newcombe((mean_a, own_a), (mean_b, own_b))
            if p is None:
                towards_0 = d - low if d > 0 else high - d
                p = 2 * max(float(student.sf(abs(d) / se, df)), float(norm.sf(z * abs(d) / towards_0)))
            seen = _detectable(max(high - d, d - low) / z, np.inf, m)
    left_out = len(a) - len(tasks), len(b) - len(tasks)
    return Difference(*names, d, se, low, high, method, p, None, seen, len(tasks), C, *left_out)


def _mean(values: pd.Series, clusters: Mapping[str, str]) -> tuple[float, float | None, int]:
    """Mean over tasks, its variance clustered by underlying task (None with one), and their number."""
    cluster = [clusters[task] for task in values.index]
    mean, error = mean_over_tasks(values.to_numpy(float), task=values.index, cluster=cluster)
    C = len(set(cluster))
    if C < 2:
        return float(mean), None, C
    return float(mean), 0.0 if error < RESIDUE else float(error) ** 2, C


def _own(table: pd.DataFrame, clusters: Mapping[str, str]) -> tuple[float, float | None, Interval]:
    """Rate of an arm, its standard error and its interval."""
    mean, variance, C = _mean(table.mean(axis=1), clusters)
    se, df = _with_trainings(variance, C, [training_variance(table)])
    return mean, se, interval(mean, se, C, df=df)


def training_variance(table: pd.DataFrame) -> tuple[float, float, int] | None:
    """(component of trainings in the variance of the mean, all of s^2 / S, S - 1); None with one training."""
    x = table.to_numpy(float)
    C, S = x.shape
    if S < 2 or C < 2:
        return None
    means = x.mean(axis=0)
    raw = float(means.var(ddof=1)) / S
    residuals = x - x.mean(axis=1, keepdims=True) - means + x.mean()
    within = float((residuals**2).sum()) / (S * C * (S - 1) * (C - 1))
    return max(0.0, raw - within), raw, S - 1


def _with_trainings(
    variance: float | None, C: int, parts: Sequence[tuple[float, float, int] | None]
) -> tuple[float | None, float]:
    """Standard error of both parts together, and Satterthwaite's degrees of freedom."""
    if variance is None:
        return None, nan
    counted = [part for part in parts if part is not None and part[0] > 0]
    total = variance + sum(part[0] for part in counted)
    spread = variance**2 / (C - 1) + sum(raw**2 / df for _, raw, df in counted)
    return sqrt(total), total**2 / spread if spread else float(C - 1)


def _detectable(se: float, df: float, m: int) -> float:
    return float(student.ppf(1 - LEVEL / (2 * m), df) + student.ppf(POWER, df)) * se


def _newcombe(of_a: tuple[float, Interval], of_b: tuple[float, Interval]) -> tuple[float, float]:
    """Newcombe's interval for b - a from rates and their own intervals, without correlation between them."""
    (a, (low_a, high_a, _)), (b, (low_b, high_b, _)) = of_a, of_b
    if low_a is None or high_a is None or low_b is None or high_b is None:
        return nan, nan
    d = b - a
    return d - sqrt((b - low_b) ** 2 + (high_a - a) ** 2), d + sqrt((high_b - b) ** 2 + (a - low_a) ** 2)


def _cautions(scores: pd.DataFrame, scored: bool) -> Iterator[str]:
    errors = scores.groupby("arm", sort=False)["no_data"].sum()
    if errors.sum():
        named = ", ".join(f"{arm} {int(n)}" for arm, n in errors.items() if n)
        counted = "are left out" if scored else "count as failures"
        yield f"Attempts that ended in an error ({named}) {counted}."
    left = scores.groupby(["arm", "training"], sort=False)["missing"].first().groupby("arm", sort=False).sum()
    for name, n in left[left > 0].items():
        played = int((scores["arm"] == name).sum())
        yield (
            f"{name}: {n:,} of {played + n:,} attempts are missing. The same `fewsteps evaluate` plays what "
            f"it had not played; files that were lost have to be restored."
        )
    for arm, rows in scores.groupby("arm", sort=False):
        used = rows[~rows["no_data"]] if scored else rows
        tasks, shared = rows["task_id"].nunique(), len(_by_training(used, 1))
        if shared < tasks:
            lacking = f"{tasks - shared} of {tasks} tasks"
            yield f"{arm}: {lacking} were not evaluated for every training, and are left out."
    if (scores.groupby("arm")["training"].nunique() == 1).all():
        yield "One training an arm: these errors do not cover what another seed of the training would change."
