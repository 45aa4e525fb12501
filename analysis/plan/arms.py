"""What is compared (arms), what was measured (trainings) and what a pilot says of both (facts)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from analysis.curves.prior import Facts as CurveFacts
from analysis.plan.costs import per_context
from analysis.plan.handback import gains
from analysis.plan.pilot import Floats, Pilot, ratio
from analysis.plan.reweigh import kept, proposed
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF, K_text, Recipe, preset

DEPTHS = (1.0, 2.0, 3.0, 5.0, INF)
SHARES = (0.25, 0.5, 0.75, 1.0)
FILTERED = ("op-success", "op-critical", "oec")
PILOT_TRACES = ("all", "success")
"""Which of the pilot's own traces the final student is trained on beside what is bought."""
RECIPES = ("pure-bc", "op-short", "op-success", "op-critical", "oec", "op-failed", "pilot")
"""The last is trained on alone: the pilot's own traces, all or those that succeed."""


@dataclass(frozen=True)
class Arm:
    """One way to spend a budget."""

    recipe: str
    K: float = INF
    r: float = 1.0
    """Share of the budget for the recipe; the rest buys demonstrations."""
    pilot_traces: str = "success"

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES or self.pilot_traces not in PILOT_TRACES:
            raise InputError(
                f"arm {self.recipe!r} with pilot_traces={self.pilot_traces!r}: expected one of "
                f"{', '.join(RECIPES)} and one of {', '.join(PILOT_TRACES)}"
            )
        if (self.recipe == "pure-bc") != (self.r == 0) or not 0 <= self.r <= 1:
            raise InputError(f"{self.recipe} with r={self.r}: expected 0 for pure-bc, else up to 1")

    @property
    def name(self) -> str:
        """For people: recipe, K where it is a choice, r."""
        if self.recipe in ("pure-bc", "pilot"):
            own = "the pilot's successes" if self.pilot_traces == "success" else "the pilot"
            return own if self.recipe == "pilot" else "more demonstrations"
        depth = f" K={K_text(self.K)}" if self.recipe in ("op-short", "op-failed") else ""
        return f"{self.recipe}{depth} r={self.r:g}"

    def recipe_of(self, like: Recipe, *, n: int | None = None) -> Recipe:
        """The arm as a recipe with the horizon, teacher and success threshold of another."""
        if self.recipe == "pilot":
            return like
        changes: dict[str, Any] = {"n": n or like.n, "teacher": like.teacher, "T_max": like.T_max}
        if self.recipe in ("op-short", "op-failed"):
            changes["K"] = self.K if like.T_max > self.K else INF
        changes["success_at"] = like.success_at
        return preset(self.recipe, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and TOML."""
        return {
            "recipe": self.recipe,
            "K": K_text(self.K),
            "r_tokens": self.r,
            "pilot_traces": self.pilot_traces,
        }


def arms_of(T_max: int, *, depths: Sequence[float] = DEPTHS) -> list[Arm]:
    """Every arm that is compared, each with both choices of pilot traces; pure BC first."""
    finite = [K for K in depths if T_max > K]
    forms = [("pure-bc", INF, 0.0)]
    forms += [("op-short", K, r) for r, K in product(SHARES, [*finite, INF])]
    forms += [(name, INF, r) for name, r in product(FILTERED, SHARES[1:])]
    forms += [("op-failed", K, r) for r, K in product(SHARES[1:], [*finite, INF])]
    forms = list(dict.fromkeys(forms))
    return [Arm(*form, pilot_traces=which) for which in PILOT_TRACES for form in forms]


@dataclass(frozen=True)
class Training:
    """A small training and its evaluation."""

    arm: Arm
    demo_tokens: int
    """C_i of the demonstrations in its cut."""
    continuation_tokens: int
    """C_i of the continuations, rejected ones included."""
    seed: int
    successes: Floats
    """[Q] sum of rewards of each evaluation task."""
    attempts: Floats
    """[Q]"""
    seconds: float = 0.0
    """Of training and evaluation; what the trainer says, or wall clock."""

    @property
    def tokens(self) -> int:
        """C_i of all that it was trained on."""
        return self.demo_tokens + self.continuation_tokens

    @property
    def pass_at_1(self) -> float:
        """Mean reward over attempts."""
        return float(self.successes.sum() / self.attempts.sum())

    @property
    def se(self) -> float:
        """Standard error of `pass_at_1`, clustered by evaluation task."""
        Q = len(self.attempts)
        return float(ratio(self.successes, self.attempts, cluster=np.arange(Q), n_clusters=Q)[1])


@dataclass(frozen=True)
class Facts:
    """What a pilot says without any training; NaN where it cannot."""

    student: float
    """J of the student that made the rollouts."""
    student_se: float
    teacher: float
    """J of the teacher, from demonstrations."""
    teacher_se: float
    from_learner: float
    """Success of the teacher's whole continuations from the student's contexts, U_inf."""
    from_failed: float
    """The same from rollouts without success."""
    from_learner_by_depth: Floats
    """[3] the same by thirds of t' / T_max."""
    gains: Mapping[float, float]
    """G(K) at the measured K, where there are hand-backs."""
    accepted: Mapping[str, float]
    """Share of what a recipe buys, in tokens, that it trains on."""
    demo_tokens: float
    """Mean C_i of a demonstration."""
    context_tokens: Floats
    """[T_max] mean C_i of a context at K = 1 .. T_max."""
    turns: float
    """Mean length of the student's rollouts."""
    T_max: int
    tasks: int
    pilot: float
    """C_i of the pilot, demonstrations and failures included."""
    curves: CurveFacts
    """What the model of learning curves reads."""


def facts_of(pilot: Pilot) -> Facts:
    """What the pilot says of every arm before anything is trained."""
    contexts, Q = pilot.contexts, len(pilot.clusters)
    won = contexts.teacher >= pilot.recipe.success_at
    known = np.isfinite(contexts.teacher)
    failed = contexts.parent < pilot.recipe.success_at
    third = np.minimum(3 * (contexts.t_prime - 1) // pilot.recipe.T_max, 2)
    each = per_context(contexts, contexts.turns.output, T_max=pilot.recipe.T_max)
    tails = each[:, -1]
    shown = _of_episodes(pilot.demo_turns.output, pilot.demo_turns.offsets)
    gain = gains(pilot)
    student, student_se = _mean(pilot.rollouts.R, pilot.rollouts.cluster, Q)
    teacher, teacher_se = _mean(pilot.demos.R, pilot.demos.cluster, Q)
    return Facts(
        student=student,
        student_se=student_se,
        teacher=teacher,
        teacher_se=teacher_se,
        from_learner=_share(won, known),
        from_failed=_share(won, known & failed),
        from_learner_by_depth=np.array([_share(won, known & (third == part)) for part in range(3)]),
        gains={K: float(g) for K, g in zip(gain.K, gain.mean, strict=True) if np.isfinite(g)},
        accepted={name: _accepted(pilot, name, tails) for name in FILTERED},
        demo_tokens=float(shown.mean()) if len(shown) else math.nan,
        context_tokens=each.mean(0),
        turns=float(pilot.rollouts.T.mean()),
        T_max=pilot.recipe.T_max,
        tasks=Q,
        pilot=float(pilot.tokens),
        curves=_curve_facts(pilot),
    )


def _curve_facts(pilot: Pilot) -> CurveFacts:
    contexts, at = pilot.contexts, pilot.recipe.success_at
    known = np.isfinite(contexts.teacher)
    early = contexts.t_prime <= contexts.T / 2
    back = {0.0: contexts.student} | dict(zip(contexts.k.astype(float), contexts.handback.T, strict=True))
    counts = {0.0: known.astype(float)} | dict(
        zip(contexts.k.astype(float), contexts.replicates.T, strict=True)
    )

    def won(values: Floats, among: Any = True) -> tuple[float, int] | None:
        data = values[np.isfinite(values) & among]
        return (float((data >= at).sum()), len(data)) if len(data) else None

    def handed(k: float) -> tuple[float, int] | None:
        if k not in back or not np.isfinite(back[k]).any():
            return None
        data = np.isfinite(back[k])
        n = counts[k][data] if k else np.full(int(data.sum()), 2.0)
        return float((back[k][data] * n).sum()), int(n.sum())

    shown, tails = pilot.demo_turns.lengths, contexts.turns.lengths
    return CurveFacts(
        student=won(pilot.rollouts.R),
        teacher=won(pilot.demos.R),
        learner=won(contexts.teacher),
        failed=won(contexts.teacher, contexts.parent < at),
        early=won(contexts.teacher, early),
        late=won(contexts.teacher, ~early),
        handback0=handed(0.0),
        handback1=handed(1.0),
        handback5=handed(5.0),
        T_max=float(pilot.recipe.T_max),
        turns_demo=float(shown.mean()) if len(shown) else None,
        turns_tail=float(tails.mean()),
        **pilot.surprise,
    )


def _accepted(pilot: Pilot, recipe: str, tails: Floats) -> float:
    played, used = proposed(pilot, recipe) * tails, kept(pilot, recipe) * tails
    return float(used.sum() / played.sum()) if played.sum() > 0 else math.nan


def _of_episodes(amount: Floats, offsets: Any) -> Floats:
    return np.asarray(np.add.reduceat(np.append(amount, 0.0), offsets[:-1]) * (np.diff(offsets) > 0))


def _share(won: Any, among: Any) -> float:
    return float(won[among].mean()) if among.any() else math.nan


def _mean(values: Floats, cluster: Any, Q: int) -> tuple[float, float]:
    known = np.isfinite(values)
    if not known.any():
        return math.nan, math.nan
    one = np.ones(int(known.sum()))
    mean, se = ratio(values[known], one, cluster=cluster[known], n_clusters=Q)
    return float(mean), float(se)
