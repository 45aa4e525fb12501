"""What Ye et al. claim of equal C_i, and what hand-backs promise, against what a sweep measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from analysis.curves.arms import FILTERED, Arm
from analysis.study.config import PURE_BC
from analysis.study.measured import Sweep, label
from occupancy.record.recipe import INF, K_text

FEW = 3.0
"""Teacher turns that are few."""


class Claim(NamedTuple):
    """That some arms beat others, where they are alike in something."""

    sentence: str
    beaten: Callable[[Arm], bool]
    better: Callable[[Arm], bool]
    alike: Callable[[Arm], object] = lambda arm: arm.r
    """Only arms with a value that both sides have are compared."""


def _short(arm: Arm) -> bool:
    return arm.recipe == "op-short" and arm.K <= FEW


def _whole(arm: Arm) -> bool:
    return arm.recipe == "op-short" and arm.K == INF


CLAIMS = (
    Claim(
        "A few teacher turns (K of at most 3) beat more demonstrations",
        lambda arm: arm.r == 0,
        _short,
        lambda arm: None,
    ),
    Claim("A few teacher turns beat whole continuations", _whole, _short),
    Claim("A few teacher turns beat keeping successes only", lambda arm: arm.recipe in FILTERED, _short),
    Claim("Keeping successes only beats keeping all", _whole, lambda arm: arm.recipe == "op-success"),
    Claim(
        "Continuing failed rollouts beats continuing any rollout",
        lambda arm: arm.recipe == "op-success",
        lambda arm: arm.recipe == "op-critical",
    ),
    Claim(
        "A mix with demonstrations beats on-policy data alone",
        lambda arm: arm.r == 1,
        lambda arm: 0 < arm.r < 1,
        lambda arm: (arm.recipe, arm.K),
    ),
)


def judged(sweep: Sweep, budget: int, claim: Claim) -> dict[str, Any]:
    """A claim at a budget: the difference of the means of two sets of arms, and whether it holds.

    Means are taken within each value of what is alike, then over the values: where more arms of one side than
    of the other were measured at a value, that value is not in the difference.
    """
    groups = sweep.groups(budget)
    a, b = ([arm for arm in groups if which(arm)] for which in (claim.beaten, claim.better))
    shared = {claim.alike(arm) for arm in a} & {claim.alike(arm) for arm in b}
    a, b = ([arm for arm in arms if claim.alike(arm) in shared] for arms in (a, b))
    names = {"beaten": [*map(label, a)], "better": [*map(label, b)]}
    told = {"claim": claim.sentence, "budget": budget} | names
    if not shared:
        return told | {"difference": None, "low": None, "high": None, "verdict": "not measured"}

    def alike(arms: list[Arm], value: object) -> list[list[str]]:
        return [groups[arm] for arm in arms if claim.alike(arm) == value]

    values = dict.fromkeys(claim.alike(arm) for arm in a)
    lead = sweep.mean_lead([(alike(a, value), alike(b, value)) for value in values])
    measured = {name: getattr(lead, name) for name in ("difference", "low", "high")}
    return told | measured | {"verdict": lead.direction}


def handback(sweep: Sweep, budget: int, gains: Mapping[str, Any]) -> list[dict[str, Any]]:
    """G(K) of the pilot beside what op-short at K brought over more demonstrations, for each r."""
    curve = {K: (g, se) for K, g, se in zip(gains["K"], gains["gain"], gains["se"], strict=True)}
    leads = sweep.leads(budget, PURE_BC)
    found = []
    for arm in sorted((arm for arm in leads if arm.recipe == "op-short"), key=lambda arm: (arm.r, arm.K)):
        G, se = curve.get(K_text(arm.K), (None, None))
        told = {"K": K_text(arm.K), "r": arm.r, "G": G, "G_se": se}
        found.append(told | {"over_demonstrations": leads[arm].difference, "se": leads[arm].se})
    return found
