"""What a run holds and what it cost, counted from its tables and its ledger."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentloop.ledger import Ledger
from occupancy.runs import Run


def summarise(run: Run) -> dict[str, Any]:
    """Counts of episodes and proposals, C_i from the ledger and C_tr from the traces.

    C_i are output tokens of the teacher as its provider counts them, before any filter; C_tr the same
    tokens of accepted traces (design, section Vocabulary).
    """
    episodes = run.read("episodes", columns=["kind", "status", "R", "cluster_id"]).to_pylist()
    traces = run.read("traces", columns=["C_tr", "target_turns"]).to_pylist()
    outcomes = Counter(run.read("proposals", columns=["outcome"])["outcome"].to_pylist())
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    account = ledger.account()
    ledger.close()
    kinds = sorted({episode["kind"] for episode in episodes})
    return {
        "folder": str(run.folder),
        "recipe": run.recipe.name,
        "recipe_hash": run.recipe.hash,
        "tasks": len({episode["cluster_id"] for episode in episodes}),
        "episodes": {kind: _kind(kind, episodes, run.recipe.success_at) for kind in kinds},
        "proposals": dict(sorted(outcomes.items())),
        "traces": len(traces),
        "target_turns": sum(trace["target_turns"] for trace in traces),
        "C_i": account.output_tokens,
        "C_tr": sum(trace["C_tr"] for trace in traces),
        "attempts": account.attempts,
        "failed_attempts": account.failed,
        "lost_attempts": account.lost,
        "orphaned_tokens": account.orphaned_tokens,
    }


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
