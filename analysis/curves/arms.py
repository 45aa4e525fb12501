"""Arms, the candidates that a budget can buy, and their features in the model of learning curves.

The size of a data set is its teacher tokens (C_i), the pilot's own included, divided by those of the pilot.
Data that every student is trained on beside it (D_BC) have a size of their own, `sunk`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from occupancy.record.errors import InputError
from occupancy.record.recipe import CONTEXT_FILTERS, INF, K_text, Recipe, parse_K, preset
from occupancy.record.specs import check_entries

Array = NDArray[np.float64]
Traces = Literal["all", "success"]

KNOTS: Final = np.log([0.2, 0.8, 5.0, 20.0])
"""[4] log sizes between which level and effects are interpolated linearly; constant outside."""
DEPTHS: Final = (1.0, 2.0, 3.0, 5.0, INF)
SHARES: Final = (0.25, 0.5, 0.75, 1.0)
PILOT_TRACES: Final[tuple[Traces, ...]] = ("all", "success")
"""Which of the pilot's own traces the final student is trained on beside what is bought."""
SHORT: Final = ("op-short", "op-failed")
FILTERED: Final = ("op-success", "op-critical", "oec")
MIXED: Final = (("op-short", 3.0), ("op-short", INF), ("op-success", INF), ("op-critical", INF))
"""Recipes and K that are compared at contexts with mixed outcomes alone, too: those measured so in worlds."""
RECIPES: Final = ("pure-bc", "op-short", *FILTERED, "op-failed", "pilot", "bc-success")
"""The last two are only trained on: the pilot's own traces, and its demonstrations that succeed."""
EFFECTS: Final = (
    "level",
    "r",
    "4r(1-r)",
    "r=1",
    "r/K",
    "r(K^-.5-1/K)",
    "success",
    "failed",
    "critical",
    "oec",
    "demo success",
    "failed/K",
    "success r=1",
)
DIMENSION: Final = len(KNOTS) * len(EFFECTS) + 2


@dataclass(frozen=True, order=True)
class Arm:
    """One way to spend a budget."""

    recipe: str
    K: float = INF
    r: float = 1.0
    """Share of the budget for the recipe; the rest buys demonstrations."""
    pilot_traces: Traces = "success"
    context: str = "all"
    """Contexts that are bought: all, or those with mixed outcomes."""

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES or self.pilot_traces not in PILOT_TRACES:
            raise InputError(
                f"arm {self.recipe!r} with pilot_traces={self.pilot_traces!r}: expected one of "
                f"{', '.join(RECIPES)} and one of {', '.join(PILOT_TRACES)}"
            )
        if (self.recipe in ("pure-bc", "bc-success")) != (self.r == 0) or not 0 <= self.r <= 1:
            raise InputError(f"arm {self.recipe} with r={self.r}: expected 0 for pure-bc, else up to 1")
        if not self.K >= 1:
            raise InputError(f"arm {self.recipe} with K={self.K}: expected at least 1")
        if self.context not in CONTEXT_FILTERS:
            allowed = ", ".join(CONTEXT_FILTERS)
            raise InputError(f"arm {self.recipe} with context={self.context!r}: expected one of {allowed}")
        object.__setattr__(self, "r", float(self.r))  # studies and cuts are known by a hash of it

    @property
    def name(self) -> str:
        """For people: recipe, K where it is a choice, r."""
        if self.recipe in ("pure-bc", "pilot"):
            own = "the pilot's successes" if self.pilot_traces == "success" else "the pilot"
            return own if self.recipe == "pilot" else "more demonstrations"
        depth = f" K={K_text(self.K)}" if self.recipe in SHORT else ""
        where = "" if self.context == "all" else f" {self.context} contexts"
        return f"{self.recipe}{depth} r={self.r:g}{where}"

    @property
    def form(self) -> tuple[str, float, float, str, str]:
        """What distinguishes trainings: the pilot's traces matter where they are what is trained on."""
        own = self.pilot_traces if self.recipe == "pilot" else ""
        return self.recipe, self.K, self.r, own, self.context

    def recipe_of(self, like: Recipe, *, n: int | None = None) -> Recipe:
        """The arm as a recipe with the horizon, teacher and success threshold of another."""
        if self.recipe == "pilot":
            return like
        changes: dict[str, Any] = {"n": n or like.n, "teacher": like.teacher, "T_max": like.T_max}
        if self.recipe in SHORT:
            changes["K"] = self.K if like.T_max > self.K else INF
        changes |= {"success_at": like.success_at, "repetition": like.repetition}
        changes |= {"context": self.context}
        return preset(self.recipe, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and TOML, without `context` where all are bought."""
        told = {
            "recipe": self.recipe,
            "K": K_text(self.K),
            "r_tokens": self.r,
            "pilot_traces": self.pilot_traces,
        }
        return told if self.context == "all" else told | {"context": self.context}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Arm:
        """The arm of `to_dict`; DataError where it is none."""
        kinds = {"recipe": str, "r_tokens": float, "pilot_traces": str, "context": str}
        told = {"context": "all"} | dict(told)
        check_entries(told, kinds, of=f"the arm {told!r:.60}")
        K: Any = told.get("K")
        return cls(told["recipe"], parse_K(K), told["r_tokens"], told["pilot_traces"], told["context"])


def arms_of(T_max: int, *, depths: Sequence[float] = DEPTHS, mixed: bool = False) -> list[Arm]:
    """Every arm that is compared, each with both choices of pilot traces; pure BC first.

    Args:
        T_max: horizon in turns; finite K are below it.
        depths: K of op-short and op-failed.
        mixed: the arms of MIXED at contexts with mixed outcomes alone are compared, too.
    """
    finite = [K for K in depths if T_max > K]
    forms = [("pure-bc", INF, 0.0)]
    forms += [("op-short", K, r) for r, K in product(SHARES, [*finite, INF])]
    forms += [(name, INF, r) for name, r in product(FILTERED, SHARES[1:])]
    forms += [("op-failed", K, r) for r, K in product(SHARES[1:], [*finite, INF])]
    forms = list(dict.fromkeys(forms))
    every = [Arm(*form, pilot_traces=which) for which in PILOT_TRACES for form in forms]
    again = [arm for arm in every if mixed and (arm.recipe, arm.K) in MIXED and arm.r in SHARES[1:]]
    return every + [replace(arm, context="mixed") for arm in again]


def effects(arm: Arm, r: float | None = None) -> Array:
    """[13] features of an arm, in the order of EFFECTS; r: on-policy share where it is not the arm's."""
    r, k = arm.r if r is None else r, 1.0 / arm.K if arm.recipe in SHORT else 0.0
    own_successes = arm.recipe == "pilot" and arm.pilot_traces == "success"
    success = float(arm.recipe in FILTERED or own_successes)
    failed = float(arm.recipe in ("op-critical", "op-failed"))
    whole = float(r == 1)
    return np.array(
        [
            1.0,
            r,
            4 * r * (1 - r),
            whole,
            r * k,
            r * (np.sqrt(k) - k),
            r * success,
            r * failed,
            r * success * failed,
            r * (arm.recipe == "oec"),
            (1 - r) * (arm.recipe == "bc-success" or own_successes),
            r * failed * k,
            whole * success,
        ]
    )


def hat(size: float) -> Array:
    """[4] weights of the knots at a size > 0."""
    u = float(np.clip(np.log(size), KNOTS[0], KNOTS[-1]))
    j = min(int(np.searchsorted(KNOTS, u, side="right")) - 1, len(KNOTS) - 2)
    t = (u - KNOTS[j]) / (KNOTS[j + 1] - KNOTS[j])
    weights = np.zeros(len(KNOTS))
    weights[j], weights[j + 1] = 1 - t, t
    return weights


def features(
    arm: Arm, size: float, *, sunk: float = 0.0, r: float | None = None, final: bool = False
) -> Array:
    """[54] row x with logit J(arm, size) = x beta: effects at the four knots, 1 / size where pilot traces are
    unfiltered, and r where contexts have mixed outcomes.

    The level is that of all data, at size + sunk; what an arm changes, it changes in its share of them.

    Args:
        arm: the arm.
        size: teacher tokens in units of the pilot's cost, > 0.
        sunk: those of data that every student is trained on beside, in the same units.
        r: on-policy share of the tokens where it is not the arm's, as in a cut.
        final: a final student, trained on the pilot's own traces too; a small training is on a cut alone.
    """
    if not size > 0:
        raise ValueError(f"a size must be positive; got {size}")
    every, r = size + sunk, arm.r if r is None else r
    own, at = effects(arm, r), hat(every)
    unfiltered = 1 / every if final and arm.pilot_traces == "all" else 0.0
    mixed = r * (arm.context == "mixed") * size / every
    return np.concatenate([at * own[0], np.outer(at, own[1:] * size / every).ravel(), [unfiltered, mixed]])
