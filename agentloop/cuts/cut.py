"""What a run of whole continuations would have been under another recipe, a smaller K or a smaller budget.

If the teacher's prompt and sampler do not depend on K, its first min(K, L) turns have the law that a run
collected at K gives them (planner fact F1). Every proposal stores the verdicts of prefix filters and every
continuation its reward. So one collection at K = T_max holds, for each recipe that switches uniformly, the
data, the costs and the ledger that the recipe would have had.

Tasks come in a seeded order, demonstrations from one end of it and proposals from the other, so that the two
parts share as few tasks as they can. Whole episodes are bought while the budget lasts: it is never exceeded,
and with one seed a smaller budget's data are a part of a larger one's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentloop.cuts.pooled import copied_ledger
from agentloop.cuts.whole import Whole, has_replays
from agentloop.run.filters import mixed, phi_verdicts
from agentloop.run.types import seed_of
from agentloop.types import Status
from occupancy.record.errors import DataError, InputError
from occupancy.record.finish import retained_tokens
from occupancy.record.reading import read_cell
from occupancy.record.recipe import INF, REPLAYS, K_text, Recipe, SwitchLaw
from occupancy.record.rows import UNRENDERED, Row, Rows
from occupancy.record.specs import Positive, Share, Size, check
from occupancy.runs import Run, create_run

T = TypeVar("T")
_PILOT_ONLY = ("handback", "replicates", "demo_tasks")
_BY_A_TURN = (Status.FINISHED, Status.HORIZON, Status.BAD_PARSE)
"""How a turn can end an episode, beside a failure that is written to the turn itself."""


@dataclass(frozen=True)
class Cell:
    """What a run is cut to."""

    recipe: Recipe
    r: Share = 1.0
    """Share of the budget for what the recipe buys; the rest buys demonstrations."""
    budget: Positive | None = None
    """Teacher output tokens (C_i) in all; None: everything that the run holds."""
    seed: Size = 0
    """Of the order of tasks."""

    def __post_init__(self) -> None:
        check(self)
        if (self.recipe.rho == "teacher") != (self.r == 0):
            raise InputError(
                f"{self.recipe.name} with r={self.r:g}: expected r = 0 for pure-bc (it buys demonstrations "
                f"alone) and r above 0 for every other recipe"
            )

    def shares(self) -> tuple[float, float]:
        """Tokens for demonstrations and for the recipe."""
        whole = INF if self.budget is None else self.budget
        # In floats 1000 times 1 - .9 is a little below 100, which could be what the tokens sum to.
        demos, own = (round(whole * part, 6) if part else 0.0 for part in (1 - self.r, self.r))
        return demos, own


@dataclass(frozen=True)
class Bought:
    """Which episodes a cut holds, and what they would have cost."""

    demos: tuple[Row, ...]
    proposals: tuple[Row, ...]
    """Rows of `proposals` under the recipe, those that bought nothing among them."""
    continuations: tuple[Row, ...]
    replays: tuple[Row, ...]
    """Episodes of the student that the context filter asked for."""
    demo_tokens: int
    continuation_tokens: int
    """C_i of both, rejected continuations included."""


def cut(run: Run | Whole, cell: Cell, folder: str | Path) -> Run:
    """Write the run that a recipe at a budget would have been into a new `folder`; returns that run.

    Args:
        run: A run of whole continuations, such as a pilot.
        cell: Recipe, share of on-policy tokens, budget (C_i) and seed.
        folder: The new run folder.

    Raises:
        DataError: The run cannot supply it: the error says how many tokens are lacking, or which law of t'
            the run was not collected with.

    Example:
        >>> cell = Cell(preset("op-short", K=3, T_max=50), r=0.5, budget=1500)
        >>> cut(open_run("analysis/pilot"), cell, "cut-3").folder.name
        'cut-3'
    """
    whole = run if isinstance(run, Whole) else Whole(run)
    bought, recipe = buy(whole, cell), cell.recipe
    made_of = {
        "r": cell.r,
        "budget": cell.budget,
        "seed": cell.seed,
        "demo_tokens": bought.demo_tokens,
        "continuation_tokens": bought.continuation_tokens,
    }
    target = _begin(folder, recipe, whole.run, made_of)
    rows: Rows = defaultdict(list, proposals=list(bought.proposals))
    kept: dict[str, float] = {}
    keys = dict.fromkeys((row["task_id"], row["rollout"]) for row in bought.proposals)
    rollouts = [whole.rollouts[key] for key in keys if key in whole.rollouts]
    for episode in (*bought.demos, *rollouts, *bought.replays):
        name = episode["episode_id"]
        kept[name] = INF
        rows["episodes"].append(episode)
        rows["turns"] += whole.turns[name]
        if name in whole.traces:
            rows["traces"].append(whole.traces[name] | {"recipe_hash": recipe.hash})
    for episode in bought.continuations:
        name, cap = episode["episode_id"], recipe.cap(episode["switch_turn"])
        kept[name] = episode["switch_turn"] + cap
        shorter = _cut_episode(whole, episode, recipe)
        rows["episodes"].append(shorter)
        rows["turns"] += whole.turns[name][:cap]
        if name in whole.traces and read_cell(shorter["phi"], "filters", name).get(recipe.phi):
            trace = _cut_trace(whole.traces[name], [t for t in whole.targets(name) if t["t"] < kept[name]])
            if trace["target_turns"]:
                rows["traces"].append(trace | {"recipe_hash": recipe.hash})
    target.commit(rows)
    _cut_ledger(whole.run, target, kept)
    return target


def own_traces(run: Run | Whole, folder: str | Path, *, success: bool) -> Run:
    """Write what the run itself has to train on into a new `folder`: demonstrations and continuations, whole.

    success: only the traces of those that succeed; the others are kept as episodes and stay charged.
    """
    whole = run if isinstance(run, Whole) else Whole(run)
    recipe, taught = whole.run.recipe, whole.taught_episodes
    made_of: dict[str, Any] = {"traces": "success" if success else "all"}
    for kind in ("demo", "continuation"):
        made_of[f"{kind}_tokens"] = sum(whole.cost(row, INF) for row in taught if row["kind"] == kind)
    target = _begin(folder, recipe, whole.run, made_of)
    kept = [row["episode_id"] for row in taught if not success or (row["R"] or 0.0) >= recipe.success_at]
    target.commit(
        {
            "episodes": list(whole.episodes.values()),
            "turns": [turn for name in whole.episodes for turn in whole.turns[name]],
            "traces": [whole.traces[name] for name in kept if name in whole.traces],
            "proposals": [row for own in whole.proposals.values() for row in own],
        }
    )
    _cut_ledger(whole.run, target, None)  # with attempts at episodes that a kill left without rows
    return target


def _begin(folder: str | Path, recipe: Recipe, of: Run, made_of: Mapping[str, Any]) -> Run:
    """A new run of a recipe, with the entries of run.json of the run that it is cut from."""
    info = {name: value for name, value in of.info.items() if name not in _PILOT_ONLY}
    cut_of = {"run": str(of.folder), **made_of}
    return create_run(folder, recipe, info | {"kind": "collect", "recipe_hash": recipe.hash, "cut": cut_of})


def buy(whole: Whole, cell: Cell) -> Bought:
    """Choose the episodes of a cut without writing them; errors as of `cut`."""
    recipe, order = cell.recipe, _order(whole, cell.seed)
    for_demos, for_own = cell.shares()

    def cost_of(offer: _Proposed) -> int:
        return whole.cost(offer.episode, recipe.K) if offer.episode else 0

    offered = (demo for task in order for demo in whole.demos[task])
    demos, demo_tokens = _afforded(
        whole, "demonstrations", offered, for_demos, cost_of=lambda demo: whole.cost(demo, INF)
    )
    if cell.r:
        _refuse_law(whole.run, recipe)
    # A demonstration has a proposal too, without a rollout.
    rows = (row for task in reversed(order) for row in whole.proposals[task] if row["rollout"] >= 0)
    offers = (_proposed(whole, row, cell) for row in rows)
    what = f"{recipe.name} with K={K_text(recipe.K)}"
    made, spent = _afforded(whole, what, offers, for_own, cost_of=cost_of)
    return Bought(
        tuple(demos),
        tuple(offer.proposal for offer in made),
        tuple(offer.episode for offer in made if offer.episode),
        tuple(replay for offer in made for replay in offer.replays),
        demo_tokens,
        spent,
    )


def supply(whole: Whole, recipe: Recipe, seed: int = 0) -> tuple[int, int]:
    """Most tokens of demonstrations, and of the recipe's continuations, that a cut of the run can hold."""
    demos = sum(whole.cost(demo, INF) for own in whole.demos.values() for demo in own)
    if recipe.rho == "teacher":
        return demos, 0
    return demos, buy(whole, Cell(recipe, seed=seed)).continuation_tokens


def _afforded(
    whole: Whole, what: str, offers: Iterable[T], share: float, *, cost_of: Callable[[T], int]
) -> tuple[list[T], int]:
    """The offers that are bought in order while a share of the budget lasts, and their tokens."""
    bought, spent = list[T](), 0
    for offer in offers if share else ():
        cost = cost_of(offer)
        if spent + cost > share:
            return bought, spent
        bought.append(offer)
        spent += cost
    if spent < share < INF:
        raise DataError(
            f"{whole.run.folder} holds {spent:,.0f} teacher tokens of {what} and the cut needs {share:,.0f}: "
            f"it lacks {share - spent:,.0f}; lower the budget, or collect more"
        )
    return bought, spent


def _order(whole: Whole, seed: int) -> list[str]:
    """Every task of the run, in an order of the seed's own."""
    tasks = {row["task_id"] for row in whole.episodes.values()}
    return sorted(tasks, key=lambda task: (seed_of("cut", seed, task), task))


def _refuse_law(run: Run, recipe: Recipe) -> None:
    """DataError for a recipe whose contexts, or the verdicts on them, the run does not hold."""
    recorded, wanted, own = run.recipe, recipe.switch, run.recipe.context
    of_uniform = recorded.switch.law == "uniform" and wanted == SwitchLaw("fixed")
    repetition = recorded.repetition if recipe.psi == "no_repetition" else recipe.repetition
    if (
        recorded.rho == "teacher"
        or wanted.law == "teacher"
        or not (wanted == recorded.switch or of_uniform)
        or (recipe.T_max, recipe.success_at) != (recorded.T_max, recorded.success_at)
    ):
        why = (
            f"it was collected with the switch law {recorded.switch.law!r}, T_max={recorded.T_max} and "
            f"success_at={recorded.success_at:g}, and the recipe has {wanted.law!r}, T_max={recipe.T_max}, "
            f"success_at={recipe.success_at:g}; buy it with `fewsteps collect --recipe {recipe.name}`"
        )
    elif recorded.psi not in ("all", recipe.psi) or recipe.repetition != repetition:
        why = (
            f"it was collected with psi={recorded.psi!r} and repetition={recorded.repetition}, and the "
            f"recipe has psi={recipe.psi!r}, repetition={recipe.repetition}: it has no continuation of "
            f"rollouts that only the recipe accepts"
        )
    elif own not in ("all", recipe.context):
        why = (
            f"it was collected with context={own!r} and has no continuation of other contexts; collect with "
            f"this recipe"
        )
    elif recipe.context == own or (recipe.context == "mixed" and has_replays(run.info)):
        return
    elif recipe.context == "mixed":
        why = (
            f"for context='mixed' it has no {REPLAYS} episodes of the student from each context; collect a "
            f"pilot with --handback 0,1,2,3,5 --replicates {REPLAYS} or more"
        )
    else:
        why = f"the filter {recipe.context!r} is asked while a run is collected; collect with this recipe"
    raise DataError(f"{run.folder} cannot supply {recipe.name}: {why}")


class _Proposed(NamedTuple):
    """A proposal under the recipe, the continuation that it buys, and the student's replays before it."""

    proposal: Row
    episode: Row | None = None
    replays: Sequence[Row] = ()


def _proposed(whole: Whole, given: Row, cell: Cell) -> _Proposed:
    recipe = cell.recipe
    proposal = given | {"recipe_hash": recipe.hash}
    episode = whole.continuations.get((given["task_id"], given["proposal"]))
    if given["outcome"] in ("no_data", "empty"):
        return _Proposed(proposal)
    if recipe.switch.law == "fixed" and whole.run.recipe.switch.law == "uniform":
        # A uniform t' on 1..T_max that lies within the rollout is uniform on 1..T.
        drawn = 1 + seed_of("switch", cell.seed, given["task_id"], given["proposal"]) % recipe.T_max
        proposal["probability"] = 1.0 / recipe.T_max
        if drawn > given["T"]:
            return _Proposed(proposal | {"t_prime": drawn, "outcome": "invalid_switch"})
    verdict = read_cell(given["psi"], "filters", given["task_id"]).get(recipe.psi)
    if verdict is None:
        raise DataError(
            f"{whole.run.folder} does not hold the verdict of the prefix filter {recipe.psi!r}: expected one "
            f"that the run was collected with; collect with this recipe"
        )
    if not verdict:
        return _Proposed(proposal | {"outcome": "prefix_filtered"})
    replays, passes = _replayed(whole, given, recipe)
    if not passes:
        return _Proposed(proposal | {"outcome": "context_filtered"}, replays=replays)
    if given["outcome"] == "accepted" and episode is not None:
        verdicts = json.loads(_cut_episode(whole, episode, recipe)["phi"])
        if recipe.phi not in verdicts:
            raise DataError(
                f"the continuation filter {recipe.phi!r} reads whole episodes: collect with this recipe"
            )
        end = episode["switch_turn"] + recipe.cap(episode["switch_turn"])
        if not any(turn["t"] < end for turn in whole.targets(episode["episode_id"])):
            proposal["outcome"] = "no_target"
        elif not verdicts[recipe.phi]:
            proposal["outcome"] = "continuation_filtered"
    return _Proposed(proposal, episode, replays)


def _replayed(whole: Whole, given: Row, recipe: Recipe) -> tuple[list[Row], bool]:
    """The replays that a recipe's context filter would have asked for, and whether the context passes it.

    A context without any, as of a continuation that failed, does not pass.
    """
    if recipe.context != "mixed":
        return [], recipe.context == "all" or given["outcome"] != "context_filtered"
    rewards: list[float | None] = [given["R"]]
    asked: list[Row] = []
    for row in whole.replays.get((given["task_id"], given["proposal"]), ()):
        rewards.append(row["R"])
        asked.append(row | {"parent": whole.rollouts[given["task_id"], given["rollout"]]["episode_id"]})
        if mixed(rewards, success_at=recipe.success_at):
            return asked, True
    return asked, False


def _cut_episode(whole: Whole, episode: Row, recipe: Recipe) -> Row:
    cap, played, turns = recipe.cap(episode["switch_turn"]), episode["teacher_turns"], whole.turns
    shorter = episode | {"K": cap, "teacher_turns": min(played, cap)}
    last = turns[episode["episode_id"]][-1]["parse_status"] if played else None
    # What ended the episode where a turn after the `cap` first ones was asked for would not have happened.
    if played > cap or (played == cap and episode["status"] not in (*_BY_A_TURN, last)):
        length = episode["switch_turn"] - 1 + cap
        status = Status.HORIZON if length >= recipe.T_max else Status.CAPPED
        reward = 0.0 if status is Status.HORIZON else None
        shorter |= {"length": length, "R": reward, "status": str(status), "error": ""}
    return shorter | {"phi": json.dumps(phi_verdicts(shorter["R"], recipe))}


def _cut_trace(trace: Row, kept: list[Row]) -> Row:
    """A trace whose targets are the turns `kept`."""
    messages = read_cell(trace["messages"], "messages", trace["episode_id"])
    trained = [at for at, message in enumerate(messages) if message.get("train")]
    # Runs of other makers may store the prompt alone; what was said is in `turns` all the same.
    end_at = trained[len(kept) - 1] + 1 if 0 < len(kept) <= len(trained) else len(messages)
    return trace | {
        "messages": json.dumps(messages[:end_at]) if kept else "[]",
        "target_turns": len(kept),
        "C_tr": sum(retained_tokens(t["text"], t["output_tokens"], t["reasoning_tokens"]) for t in kept),
        **UNRENDERED,
    }


def _cut_ledger(source: Run, target: Run, kept: Mapping[str, float] | None) -> None:
    """Copy the attempts at turns before `kept` of each episode, or all; without a ledger, none."""
    if (source.folder / "ledger.sqlite").exists():
        with copied_ledger(source.folder / "ledger.sqlite", target.folder / "ledger.sqlite") as new:
            if kept is not None:
                attempts = new.execute("select id, episode_id, t from attempts").fetchall()
                gone = [(attempt,) for attempt, episode, t in attempts if t >= kept.get(episode, 0)]
                new.executemany("delete from attempts where id = ?", gone)
