"""What a run collected at K = T_max would have been at a smaller K: data, ledger and all.

If the teacher's prompt and sampler do not depend on K, its first min(K, L) turns have the law that a run
collected at K gives them (planner fact F1), so that one expensive collection answers for every K.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentloop.run.filters import phi_verdicts
from agentloop.types import Status
from occupancy.record.errors import DataError
from occupancy.record.recipe import INF, parse_K
from occupancy.runs import Run, create_run

_PILOT_ONLY = ("handback", "replicates", "demo_tasks")


def truncate(run: Run, K: float | str, folder: str | Path) -> Run:
    """Write the run that collecting at K would have given into a new `folder`.

    Raises DataError where the run is no whole one: collected below T_max, or filtered by success.
    """
    if run.recipe.K != INF or run.recipe.phi != "all" or run.recipe.rho == "teacher":
        raise DataError(
            f"{run.folder} was collected with K={run.recipe.K}, phi={run.recipe.phi!r}, "
            f"rho={run.recipe.rho!r}: only whole, unfiltered continuations of student contexts can be "
            f"cut to a smaller K"
        )
    recipe = replace(run.recipe, K=parse_K(K))
    info = {name: value for name, value in run.info.items() if name not in _PILOT_ONLY}
    target = create_run(folder, recipe, info | {"kind": "collect", "recipe_hash": recipe.hash})
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for turn in run.read("turns").to_pylist():
        turns[turn["episode_id"]].append(turn)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    first_cut: dict[str, int] = {}
    for episode in run.read("episodes").to_pylist():
        own = turns[episode["episode_id"]]
        if episode["kind"] == "rollout":
            rows["episodes"].append(episode)
            rows["turns"] += own
        elif episode["kind"] == "continuation":
            cap = recipe.cap(episode["switch_turn"])
            rows["episodes"].append(_cut(episode, cap, run))
            rows["turns"] += own[:cap]
            first_cut[episode["episode_id"]] = episode["switch_turn"] + cap
    rows["proposals"] = [row | {"recipe_hash": recipe.hash} for row in run.read("proposals").to_pylist()]
    for trace in run.read("traces").to_pylist():
        cap = first_cut[trace["episode_id"]]
        rows["traces"].append(
            _cut_trace(trace, cap, turns[trace["episode_id"]]) | {"recipe_hash": recipe.hash}
        )
    target.commit(rows)
    _cut_ledger(run.folder / "ledger.sqlite", target.folder / "ledger.sqlite", first_cut)
    return target


def _cut(episode: dict[str, Any], cap: int, run: Run) -> dict[str, Any]:
    played = episode["teacher_turns"]
    cut = episode | {"K": cap, "teacher_turns": min(played, cap)}
    # A teacher that failed after exactly `cap` turns would not have been asked again.
    if played > cap or (played == cap and episode["status"] == Status.TEACHER_FAILED):
        length = episode["switch_turn"] - 1 + cap
        status = Status.HORIZON if length >= run.recipe.T_max else Status.CAPPED
        reward = 0.0 if status is Status.HORIZON else None
        cut |= {"length": length, "R": reward, "status": str(status), "error": ""}
    return cut | {"phi": json.dumps(phi_verdicts(cut["R"], run.recipe))}


def _cut_trace(trace: dict[str, Any], first_cut: int, turns: list[dict[str, Any]]) -> dict[str, Any]:
    kept = [t for t in turns if t["t"] < first_cut and t["finish_reason"] != "length"]
    messages = json.loads(trace["messages"])
    trained = [at for at, message in enumerate(messages) if message["train"]]
    return trace | {
        "messages": json.dumps(messages[: trained[len(kept) - 1] + 1]),
        "target_turns": len(kept),
        "C_tr": sum(t["output_tokens"] for t in kept),
        "token_ids": None,
        "row_starts": None,
        "targets": None,
        "target_tokens": None,
        "sequence_tokens": None,
    }


def _cut_ledger(source: Path, target: Path, first_cut: dict[str, int]) -> None:
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as old, sqlite3.connect(target) as new:
        old.backup(new)
        gone = [
            (attempt,)
            for attempt, episode, t in new.execute("select id, episode_id, t from attempts")
            if t >= first_cut.get(episode, 0)
        ]
        new.executemany("delete from attempts where id = ?", gone)
    old.close()
    new.close()
