"""Arms and their features: what a recipe, K, r and a size become in the model of learning curves.

An arm is a way to spend teacher tokens. The size of a data set is its teacher tokens (C_i), the pilot's own
included, divided by the teacher tokens of the pilot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Traces = Literal["all", "success"]

KNOTS: Final = np.log([0.2, 0.8, 5.0, 20.0])
"""[4] log sizes between which level and effects are interpolated linearly; constant outside."""
SHORT: Final = ("op-short", "op-failed")
FILTERED: Final = ("op-success", "op-critical", "oec", "pilot-success")
RECIPES: Final = (
    "pure-bc",
    "bc-success",
    "op-short",
    "op-success",
    "op-critical",
    "oec",
    "op-failed",
    "pilot",
    "pilot-success",
)
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
DIMENSION: Final = len(KNOTS) * len(EFFECTS) + 1


@dataclass(frozen=True, order=True)
class Arm:
    """How teacher tokens are spent.

    Attributes:
        recipe: one of RECIPES; `bc-success`, `pilot` and `pilot-success` exist only as trainings on the
            pilot.
        K: cap on teacher turns, `inf` for whole continuations.
        r: share of on-policy teacher tokens.
        traces: which of the pilot's own traces are trained on at the end. Without effect for trainings.
    """

    recipe: str
    K: float = np.inf
    r: float = 0.0
    traces: Traces = "success"

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise ValueError(
                f"recipe {self.recipe!r} is not known to the model of curves; known are {', '.join(RECIPES)}"
            )
        if not 0 <= self.r <= 1 or not self.K >= 1:
            raise ValueError(f"an arm needs 0 <= r <= 1 and K >= 1; got r = {self.r}, K = {self.K}")


def effects(arm: Arm) -> Array:
    """[13] features of an arm, in the order of EFFECTS."""
    r, k = arm.r, 1.0 / arm.K if arm.recipe in SHORT else 0.0
    success, failed = float(arm.recipe in FILTERED), float(arm.recipe in ("op-critical", "op-failed"))
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
            (1 - r) * (arm.recipe in ("bc-success", "pilot-success")),
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


def features(arm: Arm, size: float, final: bool = False) -> Array:
    """[53] row x with logit J(arm, size) = x beta: effects at the four knots, and 1 / size where pilot
    traces are unfiltered.

    Args:
        arm: the arm.
        size: teacher tokens in units of the pilot's cost, > 0.
        final: a final student, trained on the pilot's own traces too; a small training is on a cut alone.
    """
    if not size > 0:
        raise ValueError(f"a size must be positive; got {size}")
    own, at = effects(arm), hat(size)
    unfiltered = 1 / size if final and arm.traces == "all" else 0.0
    return np.concatenate([at * own[0], np.outer(at, own[1:]).ravel(), [unfiltered]])
