"""What a run holds and what it cost, counted from its tables and its ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any

from agentloop.ledger.report import refuse_lost_ledger
from agentloop.ledger.store import Ledger
from occupancy.runs import Run

MANY_CUT = 0.2
"""Fraction of episodes that a limit ends from which on it is said."""


def summarise(run: Run) -> dict[str, Any]:
    """Counts of episodes and proposals, C_i from the ledger and C_tr from the traces.

    C_i are output tokens of the teacher as its provider counts them, before any filter; C_tr the same
    tokens of accepted traces (design, section Vocabulary).
    """
    refuse_lost_ledger(run)
    episodes = run.read("episodes", columns=["kind", "status", "R", "cluster_id"]).to_pylist()
    traces = run.read("traces", columns=["C_tr", "target_turns"]).to_pylist()
    outcomes = Counter(run.column("proposals", "outcome"))
    with closing(Ledger(run.folder / "ledger.sqlite", read_only=True)) as ledger:
        account = ledger.account()
    repeated = _repeated(run)
    warnings = []
    if repeated and run.recipe.n > 1:
        warnings = [
            f"{repeated} rollouts repeat another rollout of their task word for word: the student may not "
            f"sample, or all of its workers sample with the same seed"
        ]
    kinds = sorted({episode["kind"] for episode in episodes})
    kept = {kind: _kind(kind, episodes, run.recipe.success_at) for kind in kinds}
    warnings += cut_turns("rollouts", kept["rollout"]["status"]) if "rollout" in kept else []
    warnings += _late([episode["status"] for episode in episodes])
    return {
        "folder": str(run.folder),
        "recipe": run.recipe.name,
        "recipe_hash": run.recipe.hash,
        "tasks": len({episode["cluster_id"] for episode in episodes}),
        "episodes": kept,
        "proposals": dict(sorted(outcomes.items())),
        "traces": len(traces),
        "target_turns": sum(trace["target_turns"] for trace in traces),
        "C_tr": sum(trace["C_tr"] for trace in traces),
        **account,
        "prefixes": _prefixes(run),
        "repeated_rollouts": repeated,
        "warnings": warnings,
    }


def cut_turns(what: str, status: Mapping[str, int]) -> list[str]:
    """A warning where many episodes ended in a cut turn: this measures the limit, not the policy."""
    cut, of = status.get("turn_length", 0), sum(status.values())
    if cut <= MANY_CUT * of:
        return []
    return [
        f"{cut:,} of {of:,} {what} ended in a turn that was cut at its token limit, and failed by that: "
        f"unless this is meant, give the policy a larger max_tokens"
    ]


def _late(statuses: Sequence[str]) -> list[str]:
    """A warning where many episodes were ended by --wall: they have no reward."""
    late = statuses.count("wall_time")
    if late <= MANY_CUT * len(statuses):
        return []
    return [
        f"{late:,} of {len(statuses):,} episodes were not over within --wall, and have no reward: unless "
        f"this is meant, collect into a new folder with a larger --wall"
    ]


def _prefixes(run: Run) -> dict[str, dict[str, float | None]]:
    """Mean t' (None where none was drawn) and T of proposals by outcome: filters and errors change them."""
    columns = ["outcome", "t_prime", "T"]
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in run.read("proposals", columns=columns).to_pylist():
        for outcome in ("all", row["outcome"]):
            groups[outcome].append((row["t_prime"], row["T"]))
    return {
        outcome: {
            "proposals": len(rows),
            "t_prime": fmean(drawn) if (drawn := [t for t, _ in rows if t]) else None,
            "T": fmean(T for _, T in rows),
        }
        for outcome, rows in sorted(groups.items())
    }


def _repeated(run: Run) -> int:
    """Rollouts that equal an earlier one of their task, word for word."""
    columns = ["kind", "task_id", "rollout", "t", "context_id", "text"]
    turns = run.read("turns", columns=columns).to_pandas()
    ends = turns[turns["kind"] == "rollout"].groupby(["task_id", "rollout"]).tail(1)
    return int(ends.duplicated(["task_id", "context_id", "text"]).sum())


def _kind(kind: str, episodes: list[dict[str, Any]], success_at: float) -> dict[str, Any]:
    own = [episode for episode in episodes if episode["kind"] == kind]
    rewards = [episode["R"] for episode in own if episode["R"] is not None]
    won = sum(reward >= success_at for reward in rewards)
    return {
        "episodes": len(own),
        "with_reward": len(rewards),
        "success": won / len(rewards) if rewards else None,
        # Beside it the same share with failed episodes counted as failures.
        "success_of_all": won / len(own),
        "status": dict(sorted(Counter(episode["status"] for episode in own).items())),
    }
