"""A run folder as a `Pilot`: which rows mean what, and what is wrong with them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agentloop.cuts.whole import has_replays, replays_of
from agentloop.ledger.report import teacher_attempts
from agentloop.run.episode import NO_DATA
from agentloop.run.filters import mixed
from analysis.plan.command_lines import collecting
from analysis.plan.pilot import Contexts, Episodes, Flags, Floats, Ints, Lengths, Pilot, TeacherTurns
from occupancy.importers.rows import WORDS
from occupancy.record.errors import DataError, InputError
from occupancy.record.finish import is_target, retained_tokens
from occupancy.record.recipe import Recipe
from occupancy.record.tables import TABLES
from occupancy.runs import Run, open_run

UNPAID = ("replay_desync", "budget_stopped")
"""Statuses of continuations that are not a draw of what one context costs."""


def read_pilot(folder: str | Path, *, T_max: int | None = None) -> Pilot:
    """Read the run that `fewsteps collect --pilot` wrote; T_max: as if its horizon had been shorter."""
    run = open_run(folder)
    episodes = _frame(run, "episodes", without=("prompt",))
    turns = _frame(run, "turns")
    if episodes.empty:
        raise DataError(f"{folder} holds no episode: collect a pilot with `fewsteps collect --pilot`")
    if T_max is None:
        pilot = pilot_of(run.recipe, run.info, episodes=episodes, turns=turns)
        return replace(pilot, failed_tokens=max(sum(teacher_tokens(folder)) - pilot.tokens, 0))
    within = shortened(episodes, turns, T_max=T_max, recorded=run.recipe.T_max)
    return pilot_of(replace(run.recipe, T_max=T_max), run.info, episodes=within[0], turns=within[1])


def pilot_of(
    recipe: Recipe, info: Mapping[str, Any], *, episodes: pd.DataFrame, turns: pd.DataFrame
) -> Pilot:
    """The pilot of rows in memory; `episodes` and `turns` have the columns of those tables."""
    _refuse_twice(episodes, turns)
    environments = sorted(episodes["environment"].unique())
    if len(environments) > 1:
        raise DataError(
            f"the run mixes {len(environments)} environments ({', '.join(environments)}): a plan is for "
            f"one; split the run by environment"
        )
    names = tuple(sorted(episodes["cluster_id"].unique()))
    episodes["cluster"] = np.searchsorted(np.array(names), episodes["cluster_id"].to_numpy(str))
    rewardless = episodes["status"].isin(NO_DATA)
    # As `evaluate` and `compare` have it: success, whatever the reward below the threshold.
    won = (episodes["R"] >= recipe.success_at).astype(float)
    episodes["won"] = won.where(~rewardless & episodes["R"].notna())
    rollouts, demos, continuations, handbacks = (
        episodes[episodes["kind"] == kind] for kind in ("rollout", "demo", "continuation", "handback")
    )
    if continuations.empty:
        raise DataError(_without_continuations(recipe, info, episodes["kind"]))
    rollouts = _one_student(rollouts, continuations)
    taught = turns[turns["author"] == "teacher"]
    warnings = []
    if taught["counter"].eq(WORDS).any():
        warnings.append("Teacher tokens are words here, as turns have no token usage: give budgets in words.")
    paid = _paid(recipe, continuations)
    if unpaid := len(continuations) - len(paid):
        warnings.append(
            f"{unpaid} of {len(continuations)} continuations are left out: they were stopped by a replay "
            f"that differed or by the budget"
        )
    seen, asked = episodes["task_id"].nunique(), int(info.get("n_tasks", 0))
    if seen < asked:
        warnings.append(
            f"the pilot holds {seen} of the {asked} tasks it was to be collected on: it was stopped, and "
            f"tasks that end early may be over-represented; the same `fewsteps collect` command goes on"
        )
    pilot = Pilot(
        recipe=recipe,
        environment=_environment(info, environments[0]),
        student=_policy(info, "student", rollouts["policy"]),
        teacher=_policy(info, "teacher", continuations["teacher"]),
        clusters=names,
        task_spec=str(info.get("tasks", "")),
        pool=len(names),
        pool_stated=False,
        rollouts=_episodes(rollouts),
        demos=_episodes(demos),
        demo_turns=_teacher_turns(demos["episode_id"], taught),
        contexts=_contexts(recipe, info, paid, rollouts=rollouts, handbacks=handbacks, taught=taught),
        lengths=lengths_of(paid, turns),
        statuses={
            str(kind): {str(s): int(n) for s, n in part["status"].value_counts().items()}
            for kind, part in episodes.groupby("kind")
        },
        surprise=_surprise(environments[0], turns),
        deterministic=_deterministic(turns[turns["kind"] == "rollout"]),
        warnings=tuple(warnings),
    )
    _refuse_missing(episodes, taught)
    return pilot


def _environment(info: Mapping[str, Any], version: str) -> str:
    """The environment's name and version; a user's own may have said a version only."""
    name = str(info.get("made_with", {}).get("env", ""))
    return version if version.startswith(name) else f"{name} {version}"


def _without_continuations(recipe: Recipe, info: Mapping[str, Any], kinds: pd.Series[str]) -> str:
    """What a run without continuations holds, and the command that collects what a plan is made from."""
    counts = kinds.value_counts().sort_index()
    held = " and ".join(f"{n} episodes of kind {kind!r}" for kind, n in counts.items())
    # A model's name in an import is none that a command can open.
    known = {} if info.get("kind") == "import" else info
    command = shlex.join([*collecting(known, tasks="N"), "--pilot", "--set", f"T_max={recipe.T_max}"])
    return (
        f"the run has no continuation, only {held}: they give costs and rewards of student and teacher, and "
        f"not what K teacher turns bring from the student's contexts; collect them with `{command}` "
        f"(`fewsteps plan RUN --design --budget TOKENS` says how much, from this run's figures)"
    )


def _refuse_twice(episodes: pd.DataFrame, turns: pd.DataFrame) -> None:
    """DataError where a row is there twice: it would count twice."""
    for rows, key in ((episodes, ["episode_id"]), (turns, ["episode_id", "t"])):
        twice = rows[rows.duplicated(key)]
        if len(twice):
            at = " turn ".join(str(value) for value in twice[key].iloc[0])
            raise DataError(
                f"{len(twice)} rows are there twice (first: {at}): expected each episode and turn once; "
                f"remove the part that was added again"
            )


def _refuse_missing(episodes: pd.DataFrame, teacher_turns: pd.DataFrame) -> None:
    """DataError where episodes played teacher turns that `turns` does not hold: they would cost nothing."""
    stored = teacher_turns.groupby("episode_id").size()
    own = episodes[episodes["kind"].isin(("continuation", "demo"))]
    lacking = own["teacher_turns"].to_numpy() != stored.reindex(own["episode_id"], fill_value=0).to_numpy()
    if lacking.any():
        raise DataError(
            f"{int(lacking.sum())} of {len(own)} continuations and demonstrations do not have as many "
            f"teacher turns in `turns` as in `episodes` (first: {own['episode_id'][lacking].iloc[0]!r}): "
            f"restore the missing parts, or collect again"
        )


def teacher_tokens(folder: str | Path) -> tuple[int, int]:
    """C_i of any run folder, of its demonstrations and of all else: by its ledger, where it has one."""
    spent = {True: 0, False: 0}
    for name, attempts in teacher_attempts(open_run(folder)).items():
        spent[name.rpartition("#")[2].startswith("demo-")] += sum(tokens for _, tokens in attempts)
    return spent[True], spent[False]


def _frame(run: Run, table: str, *, without: tuple[str, ...] = ()) -> pd.DataFrame:
    columns = [column.name for column in TABLES[table] if column.name not in without]
    frame: pd.DataFrame = run.read(table, columns=columns).to_pandas()
    return frame


def _paid(recipe: Recipe, continuations: pd.DataFrame) -> pd.DataFrame:
    """Continuations that say what a context costs; DataError where they are not those of a pilot."""
    rows = continuations[~continuations["status"].isin(UNPAID)]
    short = rows["K"] < recipe.T_max - rows["switch_turn"] + 1
    if short.any():
        raise DataError(
            f"{int(short.sum())} of {len(rows)} continuations were capped at K="
            f"{int(rows['K'][short].max())} teacher turns: a pilot needs them to the end; use `--pilot`"
        )
    law = {"psi": recipe.psi, "context": recipe.context, "switch law": recipe.switch.law}
    if law != {"psi": "all", "context": "all", "switch law": "uniform"}:
        told = ", ".join(f"{name} {value!r}" for name, value in law.items())
        raise DataError(
            f"the run was collected with {told}: a plan needs continuations of all rollouts from turns drawn "
            f"uniformly; collect a pilot with `fewsteps collect --pilot --recipe op-short --set K=inf`"
        )
    return rows


def _contexts(
    recipe: Recipe,
    info: Mapping[str, Any],
    rows: pd.DataFrame,
    *,
    rollouts: pd.DataFrame,
    handbacks: pd.DataFrame,
    taught: pd.DataFrame,
) -> Contexts:
    parents = rollouts.set_index("episode_id")
    lost = ~rows["parent"].isin(parents.index)
    if lost.any():
        raise DataError(
            f"{int(lost.sum())} of {len(rows)} continuations name a parent that is no rollout of this run "
            f"(first: {rows['parent'][lost].iloc[0]!r}): restore the rollouts, or collect again"
        )
    parents = parents.loc[rows["parent"]]
    k, handback, replicates = _handbacks(recipe, info, rows, handbacks)
    first = taught.drop_duplicates("episode_id").set_index("episode_id")["context_id"]
    return Contexts(
        cluster=_ints(rows["cluster"]),
        t_prime=_ints(rows["switch_turn"]),
        T=_ints(parents["length"]),
        context_id=first.astype(object).reindex(rows["episode_id"], fill_value="").to_numpy(str),
        turns=_teacher_turns(rows["episode_id"], taught),
        student=handback[:, 0],
        student_replicates=replicates[:, 0],
        parent=parents["won"].to_numpy(float),
        teacher=rows["won"].to_numpy(float),
        k=k[1:],
        handback=handback[:, 1:],
        replicates=replicates[:, 1:],
        mixed=_mixed(info, rows, parents, handbacks),
    )


def _handbacks(
    recipe: Recipe, info: Mapping[str, Any], contexts: pd.DataFrame, rows: pd.DataFrame
) -> tuple[Ints, Floats, Ints]:
    """Depths (0 first), success rate and replicates of each context; K >= T_max is the teacher's own."""
    asked = {k for k in info.get("handback", ()) if isinstance(k, int)} if len(rows) else set()
    depths = asked | {int(k) for k in rows["K"]}
    k = np.array(sorted({0, *(d for d in depths if 0 < d < recipe.T_max)}), np.int64)
    rows = rows[rows["won"].notna() & rows["K"].isin(k) & rows["parent"].isin(contexts["episode_id"])]
    where = pd.Index(contexts["episode_id"]).get_indexer(pd.Index(rows["parent"]))
    at = (where, np.searchsorted(k, rows["K"].to_numpy(np.int64)))
    total, count = np.zeros((len(contexts), len(k))), np.zeros((len(contexts), len(k)), np.int64)
    np.add.at(total, at, rows["won"].to_numpy(float))
    np.add.at(count, at, 1)
    return k, np.where(count > 0, total / np.maximum(count, 1), np.nan), count


def _mixed(
    info: Mapping[str, Any], rows: pd.DataFrame, parents: pd.DataFrame, handbacks: pd.DataFrame
) -> Flags:
    """Whether `context = "mixed"` passes each context; nowhere if the run cannot be cut by it."""
    columns = ["kind", "K", "task_id", "proposal", "replicate", "won"]
    played: Any = handbacks[columns].to_dict("records")
    found = replays_of(played) if has_replays(info) else {}
    at = zip(parents["won"], rows["task_id"], rows["proposal"], strict=True)
    rewards = ((own, *(row["won"] for row in found.get((task, n), ()))) for own, task, n in at)
    known = ([reward for reward in some if not np.isnan(reward)] for some in rewards)
    return np.array([mixed(some, success_at=1) for some in known], bool)


def _teacher_turns(ids: pd.Series[str], turns: pd.DataFrame) -> TeacherTurns:
    order = pd.Index(ids).get_indexer(pd.Index(turns["episode_id"]))
    turns = turns[order >= 0].assign(order=order[order >= 0]).sort_values(["order", "t"], kind="stable")
    lengths = np.bincount(_ints(turns["order"]), minlength=len(ids))
    return TeacherTurns(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        output=turns["output_tokens"].to_numpy(float),
        prompt=turns["prompt_tokens"].to_numpy(float),
        cached=turns["cached_tokens"].to_numpy(float),
        student=turns["student_tokens"].to_numpy(float),
        trained=np.array([*map(is_target, turns["text"], turns["finish_reason"])], bool),
        retained=np.array(
            [*map(retained_tokens, turns["text"], turns["output_tokens"], turns["reasoning_tokens"])], float
        ),
    )


def _one_student(rollouts: pd.DataFrame, continuations: pd.DataFrame) -> pd.DataFrame:
    """Rollouts of the student whose contexts the teacher took over (pi_1, where pi_0 played too)."""
    parents = rollouts[rollouts["episode_id"].isin(continuations["parent"])]
    students = sorted(parents["policy"].unique())
    if len(students) > 1:
        raise DataError(
            f"the continuations start from rollouts of {len(students)} students ({', '.join(students)}): "
            f"a plan is for one; split the run by student"
        )
    return rollouts[rollouts["policy"].isin(students)] if students else rollouts


def _episodes(rows: pd.DataFrame) -> Episodes:
    return Episodes(_ints(rows["cluster"]), _ints(rows["length"]), rows["won"].to_numpy(float))


def _surprise(environment: str, turns: pd.DataFrame) -> dict[str, float]:
    """Mean negative log likelihood of turns under the student: only simulated worlds store it."""
    if not environment.startswith("world "):
        return {}
    names = {"demo": "nll_demo", "continuation": "nll_tail", "rollout": "nll_rollout"}
    means = -turns.groupby("kind")["logprob"].mean()
    return {name: float(means[kind]) for kind, name in names.items() if np.isfinite(means.get(kind, np.nan))}


def _deterministic(turns: pd.DataFrame) -> bool:
    """True where tasks were rolled out repeatedly and every repetition met the same contexts."""
    if turns.empty:
        return False
    path = turns.groupby(["task_id", "rollout"])["context_id"].agg(" ".join).groupby("task_id")
    repeated = path.size() > 1
    return bool(repeated.any() and (path.nunique()[repeated] == 1).all())


def _policy(info: Mapping[str, Any], who: str, column: pd.Series[str]) -> str:
    """The policy's name as the episodes say it, else as run.json does."""
    names = sorted(set(column) - {""})
    return names[0] if names else str(info.get(who, ""))


def _ints(values: pd.Series[Any]) -> Ints:
    return values.to_numpy(np.int64)


def lengths_of(continuations: pd.DataFrame, turns: pd.DataFrame) -> Lengths:
    """What the provider counted of the prompts that the student read in rollouts.

    A training row is a context and its continuation: the prompt before the first teacher turn, the teacher's
    turns, and between them what the environment and the template add.
    continuations: [C] rows of `episodes`; turns: rows of `turns`, the student's rollouts among them."""
    own = turns[turns["kind"] == "rollout"].sort_values(["episode_id", "t"], kind="stable")
    prompt = own.set_index(["episode_id", "t"])["prompt_tokens"].astype(float)
    where = pd.MultiIndex.from_frame(continuations[["parent", "switch_turn"]])
    follows = own["episode_id"].eq(own["episode_id"].shift()).to_numpy(bool)
    before = (prompt.to_numpy() + own["output_tokens"].to_numpy(float))[:-1]
    grown = prompt.to_numpy() - np.append(np.nan, before)[: len(own)]
    return Lengths(
        prefix=np.asarray(prompt.reindex(where), np.float64),
        start=_known_mean(prompt.to_numpy()[own["t"].to_numpy() == 1]),
        step=_known_mean(grown[follows]),
    )


def _known_mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def shortened(
    episodes: pd.DataFrame, turns: pd.DataFrame, *, T_max: int, recorded: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `episodes` and `turns` as they would have been with a shorter horizon; `recorded`: the pilot's.

    An episode that is longer fails at T_max. A context beyond it, and every episode from there, is left
    out; as t' was drawn from the whole rollout, contexts of long rollouts then count a little less than in a
    pilot that had been collected with this horizon.
    """
    if not 1 <= T_max <= recorded:
        raise InputError(
            f"T_max={T_max}: the pilot was recorded with T_max={recorded}, and what happens later is not in "
            f"it; expected 1 to {recorded}; for more, collect a pilot with --set T_max={T_max}"
        )
    first = turns.groupby("episode_id")["t"].min()
    begins = episodes["episode_id"].map(first).fillna(episodes["switch_turn"])
    episodes = episodes[begins <= T_max].copy()
    late = (episodes["length"] > T_max).to_numpy(bool)
    judged = late & episodes["R"].notna().to_numpy(bool)
    episodes.loc[judged, "R"] = 0.0
    episodes.loc[judged, "status"] = "horizon"
    episodes.loc[late, "length"] = T_max
    own = T_max - episodes["switch_turn"].clip(lower=1) + 1
    taught = episodes["kind"].isin(("continuation", "demo"))
    capped = episodes["teacher_turns"].clip(upper=own)
    episodes["teacher_turns"] = episodes["teacher_turns"].where(~taught, capped)
    kept = turns["episode_id"].isin(episodes["episode_id"]) & (turns["t"] <= T_max)
    return episodes, turns[kept].copy()
