"""What a collection will cost, before anything is bought: bounds, and an expectation from a run like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentloop.cuts.whole import replays_of
from agentloop.run.filters import mixed
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.types import Task
from occupancy.record.errors import DataError
from occupancy.record.reading import read_cell
from occupancy.record.recipe import INF, Recipe
from occupancy.record.shows import Shown, Shows
from occupancy.runs import Run
from occupancy.statistics.clusters import clustered_ratio, variance_of_sum

if TYPE_CHECKING:
    import pandas as pd

_KEY = ("task_id", "rollout", "proposal")
_Key = tuple[str, int, int]
Z = 1.645
"""Of a two-sided 90 % interval."""


@dataclass(frozen=True)
class Forecast(Shows):
    """Teacher output tokens (C_i) of a collection."""

    proposals: int
    demonstrations: int
    """Of a pilot, beside its proposals; for pure BC the proposals are demonstrations."""
    lowest: float
    """5 % quantile where there is evidence; else what a recipe can cost at least: nothing, as prefixes may
    be refused and teachers fail."""
    expected: float | None
    """None without a run to learn from."""
    highest: float | None
    """95 % quantile where there is evidence; else the limit of every turn, or the budget; None: unbounded."""
    limit: float | None
    """Most that can be spent: the teacher's turns, and its answers where it names t', times the limit of a
    turn; or the budget on the inference axis."""
    learnt_from: str | None

    def to_pandas(self) -> pd.DataFrame:
        """The forecast as one row."""
        import pandas as pd

        return pd.DataFrame([asdict(self)])

    def _shown(self) -> Shown:
        return ["Teacher output tokens (C_i) of a collection"], [self.to_pandas()]


def forecast(
    settings: Settings,
    tasks: Sequence[Task],
    spending: SpendingLimits,
    *,
    turn_tokens: int | None = None,
    like: Run | None = None,
) -> Forecast:
    """What collecting `settings` on `tasks` costs.

    Args:
        tasks: What --tasks names.
        turn_tokens: Most output tokens of a teacher turn, None where nothing limits them.
        like: A run of the same teacher on similar tasks: its whole continuations, cut at K, give the cost of
            a continuation, and its proposals the fraction that the law of t' and the filters pass.

    Raises:
        DataError: `like` has no continuation of K turns, or no demonstration where one is needed.
    """
    recipe = settings.recipe
    K = min(recipe.K, recipe.T_max)
    n = [settings.n_of(task.task_id) for task in tasks]
    proposals = sum(n)
    demos = min(settings.demo_tasks, len(tasks)) if settings.pilot else 0
    calls = proposals * (K + (recipe.switch.law == "teacher")) + demos * recipe.T_max
    most = None if turn_tokens is None else calls * turn_tokens
    budget = spending.budget if spending.axis == "inference" else None
    bounds = [bound for bound in (most, budget) if bound is not None]
    limit = min(bounds) if bounds else None
    if like is None:
        return Forecast(proposals, demos, 0.0, None, limit, limit, None)
    kind = "demo" if recipe.rho == "teacher" else "continuation"
    if kind == "continuation" and min(like.recipe.K, like.recipe.T_max) < K:
        raise DataError(
            f"{like.folder} has continuations of at most K={like.recipe.K:g} turns, and K={K:g} is asked: "
            f"name a run of whole continuations, such as a pilot"
        )
    chances = {} if kind == "demo" else _chances(like, recipe)
    mean, sd = _total(like, kind, K, proposals, tasks=len(n) - n.count(0), chances=chances)
    if demos:
        more, spread = _total(like, "demo", recipe.T_max, demos, tasks=demos, chances={})
        mean, sd = mean + more, sqrt(sd**2 + spread**2)
    cut = np.minimum([max(0.0, mean - Z * sd), mean, mean + Z * sd], INF if limit is None else limit)
    low, expected, high = (float(value) for value in cut)
    return Forecast(proposals, demos, low, expected, high, limit, str(like.folder))


def _total(
    like: Run, kind: str, K: float, count: int, *, tasks: int, chances: Mapping[_Key, _Chance]
) -> tuple[float, float]:
    """Mean and standard deviation of the cost of `count` proposals of so many tasks, cut at K teacher turns.

    A proposal costs what its continuation in `like` does, times the chance that the teacher plays it.
    """
    columns = ["episode_id", "cluster_id", "kind", *_KEY]
    episodes = [row for row in like.read("episodes", columns=columns).to_pylist() if row["kind"] == kind]
    costs = {row["episode_id"]: list[int]() for row in episodes}
    for turn in like.read("turns", columns=["episode_id", "author", "output_tokens"]).to_pylist():
        if turn["author"] == "teacher" and turn["episode_id"] in costs:
            costs[turn["episode_id"]].append(turn["output_tokens"])
    rows = [(cluster, 0.0, 0.0) for cluster, chance in chances.values() if not chance]
    for row in episodes:
        chance = chances.get(_key(row), _Chance("", 1.0)).chance
        if chance and (turns := costs[row["episode_id"]]):
            rows.append((row["cluster_id"], float(sum(turns[: int(K)])), chance))
    clusters, each, played = zip(*rows, strict=True) if rows else ((), (), ())
    if not any(played):
        which = "" if not chances else " that its filters pass"
        raise DataError(
            f"{like.folder} has no {kind}{which} with a teacher's turn: name a run that has some; before "
            f"a first pilot, `fewsteps plan {like.folder} --design --budget N` guesses from it"
        )
    cost, p = np.array(each), np.array(played)
    mean, se = clustered_ratio(cost * p, np.ones(len(p)), cluster=clusters)
    noise = count * float((cost**2 * p * (1 - p)).mean())
    noise += variance_of_sum(cost * p, cluster=clusters, count=count, n_clusters=max(tasks, 1))
    error = 0.0 if np.isnan(se) else count * float(se)
    return count * float(mean), sqrt(noise + error**2)


class _Chance(NamedTuple):
    """Of a proposal: its cluster, and how likely the teacher continues its rollout under the recipe."""

    cluster: str
    chance: float


def _chances(like: Run, recipe: Recipe) -> dict[_Key, _Chance]:
    """By proposal, where the run says its verdicts."""
    replays = replays_of(like.read("episodes").to_pylist()) if recipe.context == "mixed" else {}
    if recipe.context == "mixed" and not replays:
        raise DataError(
            f"{like.folder} has no episode of the student from a context, and context={recipe.context!r} is "
            f"asked: name a pilot with hand-backs at 0"
        )
    found: dict[_Key, _Chance] = {}
    columns = [*_KEY, "cluster_id", "psi", "R", "T", "outcome"]
    for row in like.read("proposals", columns=columns).to_pylist():
        passes = read_cell(row["psi"], "filters", row["task_id"]).get(recipe.psi)
        if passes is not None and recipe.context == "mixed":
            played = replays.get((row["task_id"], row["proposal"]), ())
            passes *= mixed([row["R"], *(one["R"] for one in played)], success_at=recipe.success_at)
        if passes is not None:
            found[_key(row)] = _Chance(row["cluster_id"], passes * _valid(row, recipe))
    return found


def _valid(row: Mapping[str, Any], recipe: Recipe) -> float:
    """Chance that t' is a turn of the proposal's rollout."""
    if row["outcome"] in ("no_data", "empty"):
        return 0.0
    nu = recipe.switch.nu or (1 / recipe.T_max,) * recipe.T_max
    return sum(nu[: row["T"]]) if recipe.switch.law == "fixed" else 1.0


def _key(row: Mapping[str, Any]) -> _Key:
    return row["task_id"], row["rollout"], row["proposal"]
