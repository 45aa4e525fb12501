"""A plan as a record, and as the JSON that `fewsteps plan --json` prints."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.curves.arms import SHORT, Arm, Traces
from occupancy.record.recipe import K_text
from occupancy.record.shows import Shown, Shows

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("ranked", "no_preference", "pilot_too_small")


@dataclass(frozen=True)
class Candidate:
    """One way to spend the budget, what it costs and what it is expected to bring."""

    recipe: str
    recipe_hash: str
    K: float
    n: int
    """Rollouts a task; demonstrations a task for pure-bc."""
    tasks: int
    r_tokens: float
    r_tasks: float
    pilot_traces: Traces
    """Which of the pilot's own traces are trained on: all, or success."""
    pass_at_1: float
    low: float
    high: float
    """90 % band."""
    p_best: float
    regret: float
    """Expected loss of pass@1 against the best candidate."""
    contexts: int
    demos: int
    cost_inference: float
    """Teacher output tokens that it buys (C_i)."""
    cost_training: float
    cost_money: float | None
    target_tokens: float
    sequence_tokens: float
    context: str = "all"
    """Contexts that are bought: all, or those with mixed outcomes."""

    @property
    def bought(self) -> str:
        """Recipe, and contexts where not all are bought."""
        return self.recipe if self.context == "all" else f"{self.recipe} {self.context}"

    @property
    def arm(self) -> Arm:
        """The candidate without its costs."""
        return Arm(self.recipe, self.K, self.r_tokens, self.pilot_traces, self.context)


@dataclass(frozen=True)
class Curve:
    """What budgets are worth: the best arm at each, and pure BC."""

    budgets: tuple[float, ...]
    """On the plan's axis, the pilot's price included where it is charged."""
    recipes: tuple[str, ...]
    """Name of the best arm at each budget."""
    pass_at_1: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    more_demonstrations: tuple[float, ...]
    enough: float | None
    """Budget beyond which the next 1,000 tokens bring less than `least_gain`; None: not within the curve."""
    least_gain: float
    """Of pass@1."""


@dataclass(frozen=True)
class Plan(Shows):
    """What to buy, and how sure that is."""

    status: str
    """ranked: more demonstrations are excluded at 90 %; no_preference: they are not; pilot_too_small."""
    budget: float
    axis: str
    recommended: Candidate
    not_worse: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    """Most expected first."""
    pilot: dict[str, Any]
    curve: Curve
    p_beats_bc: float
    """Probability that the recommendation beats more demonstrations."""
    calibrated: bool = False
    """Trainings on the pilot were measured."""
    unlike: float = 0.0
    """Probability that the pilot is unlike those of all worlds that the prior was learnt from."""
    trainings: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    costs: dict[str, Any] = field(default_factory=dict)
    """m(K) with errors, on every axis."""
    laws: tuple[dict[str, Any], ...] = ()
    """The pilot's contexts under other laws; see `analysis.plan.reweigh`."""
    gains: dict[str, Any] = field(default_factory=dict)
    """G(K) at the measured depths."""
    left_out: tuple[dict[str, str], ...] = ()
    """Arms that cannot be bought, and why."""
    what_if: tuple[dict[str, Any], ...] = ()

    @property
    def demonstrations(self) -> Candidate | None:
        """The best candidate that buys demonstrations alone."""
        return next((c for c in self.candidates if c.recipe == "pure-bc"), None)

    def p_best_by(self) -> dict[str, dict[str, float]]:
        """P(best) summed over candidates of one recipe, one r, and one K of the recipes that choose it."""
        sums: dict[str, dict[str, float]] = {"recipe": {}, "r_tokens": {}, "K": {}}
        for c in self.candidates:
            parts = {"recipe": c.recipe, "r_tokens": f"{c.r_tokens:g}"}
            parts |= {"K": str(K_text(c.K))} if c.recipe in SHORT else {}
            for what, name in parts.items():
                sums[what][name] = sums[what].get(name, 0.0) + c.p_best
        return {what: dict(sorted(found.items(), key=lambda item: -item[1])) for what, found in sums.items()}

    def to_pandas(self) -> pd.DataFrame:
        """The candidates, a row each, most expected first."""
        import pandas as pd

        kept = {id(c) for c in self.not_worse}
        rows = [asdict(c) | {"not_excluded": id(c) in kept} for c in self.candidates]
        return pd.DataFrame(rows).assign(recommended=[c == self.recommended for c in self.candidates])

    def _shown(self) -> Shown:
        from analysis.plan.answer import sentences

        heads = ["recipe", "K", "r_tokens", "pass_at_1", "low", "high", "p_best", "regret"]
        heads += ["cost_inference", "cost_training", "not_excluded"]
        frame = self.to_pandas().assign(K=[str(K_text(c.K)) for c in self.candidates])
        return sentences(self), [frame[heads].head(10)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: K is a whole number or 'inf', unknown is null."""
        plain = asdict(self) | {"p_best_by": self.p_best_by()}
        for candidate in (plain["recommended"], *plain["not_worse"], *plain["candidates"]):
            candidate["K"] = K_text(candidate["K"])
        cleaned: dict[str, Any] = finite(plain)
        return cleaned


def finite(value: Any) -> Any:
    """The value with what is not finite as None, for JSON."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
