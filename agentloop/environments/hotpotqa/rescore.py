"""A run's episodes scored once more: exact match and F1 on the model's words, and what Search-R1 would have
said."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from agentloop.render.episodes import histories
from agentloop.run.evaluate import success
from occupancy.record.errors import DataError
from occupancy.runs import open_run
from occupancy.statistics.clusters import mean_over_tasks

from .actions import parse_action
from .catalogue import Catalogue
from .scoring import gold_report, score_answer
from .search_r1 import reward_as_search_r1


def rescore(folder: Path, catalogue: Catalogue) -> list[dict[str, Any]]:
    """One row for each kind of episode and policy; only episodes with a reward. Scores are means over tasks.

    golds_empty counts golds of the questions that normalise to nothing: only the same text matches them.
    """
    run = open_run(folder)
    if not str(run.info.get("environment", "")).startswith("hotpotqa "):
        raise DataError(f"{folder} was made in {run.info.get('environment')!r}: expected a run of hotpotqa")
    format = "tools" if " format=tools " in run.info["environment"] else "tags"
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row, _, played in histories(run):
        if row["R"] is None:
            continue
        question = catalogue.question(row["task_id"])
        turns = [(turn["text"], turn["observation"]) for turn in played]
        # The answer that ended the episode counts, in the model's own words.
        action = parse_action(turns[-1][0] if turns else "", format=format)
        score = score_answer(action.content if action.kind == "answer" else None, question.golds)
        groups[row["kind"], row["policy"]].append(
            {
                "task_id": row["task_id"],
                "cluster_id": row["cluster_id"],
                "attempt": max(row["replicate"], row["rollout"], 0),
                "score": float(score.exact),
                "f1": score.f1,
                "golds_empty": len(gold_report(question.golds).empty),
                "search_r1": reward_as_search_r1(question.text, turns, question.golds),
            }
        )
    return [_group(kind, policy, rows) for (kind, policy), rows in sorted(groups.items())]


def _group(kind: str, policy: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    exact = success(rows)
    tasks, others = [row["task_id"] for row in rows], [(row["f1"], row["search_r1"]) for row in rows]
    f1, search_r1 = map(float, mean_over_tasks(others, task=tasks, cluster=tasks)[0])
    return {
        "kind": kind,
        "policy": policy,
        "episodes": len(rows),
        "exact_match": exact.mean,
        "exact_match_se": exact.cluster_se,
        "f1": f1,
        "golds_empty": sum({row["cluster_id"]: row["golds_empty"] for row in rows}.values()),
        "search_r1": search_r1,
    }
