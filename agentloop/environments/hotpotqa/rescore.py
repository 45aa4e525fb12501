"""A run's episodes scored once more: exact match and F1 on the model's words, and what Search-R1 would have
said."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from agentloop.run.evaluate import success
from occupancy.record.errors import DataError
from occupancy.runs import open_run

from .actions import parse_action
from .catalogue import Catalogue
from .questions import Question
from .scoring import Score, gold_report, score_answer
from .search_r1 import reward_as_search_r1

Played = list[tuple[str, str]]
"""(text, observation) of each turn."""


def score_turns(question: Question, turns: Played, *, format: str) -> Score:
    """Exact match and F1 of an episode: of the answer that ended it, in the model's own words."""
    action = parse_action(turns[-1][0], format=format) if turns else None
    answered = action is not None and action.kind == "answer"
    return score_answer(action.content if action and answered else None, question.golds)


def rescore(folder: Path, catalogue: Catalogue) -> list[dict[str, Any]]:
    """One row for each kind of episode and policy; only episodes with a reward.

    golds_empty counts golds of the questions that normalise to nothing: only the same text matches them.
    """
    run = open_run(folder)
    if not str(run.info.get("environment", "")).startswith("hotpotqa "):
        raise DataError(f"{folder} was made in {run.info.get('environment')!r}: expected a run of hotpotqa")
    format = "tools" if " format=tools " in run.info["environment"] else "tags"
    own: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for turn in run.read("turns", columns=["episode_id", "t", "text", "observation"]).to_pylist():
        own[turn["episode_id"]].append(turn)
    episodes = {row["episode_id"]: row for row in run.read("episodes").to_pylist()}

    def whole(episode_id: str) -> Played:
        """All turns, those that an ancestor owns included."""
        if not episode_id:
            return []
        turns = own[episode_id]
        before = whole(episodes[episode_id]["parent"])
        first = turns[0]["t"] if turns else len(before) + 1
        return before[: first - 1] + [(turn["text"], turn["observation"]) for turn in turns]

    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for episode_id, row in episodes.items():
        if row["R"] is None:
            continue
        question = catalogue.question(row["task_id"])
        turns = whole(episode_id)
        score = score_turns(question, turns, format=format)
        groups[row["kind"], row["policy"]].append(
            {
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
    return {
        "kind": kind,
        "policy": policy,
        "episodes": len(rows),
        "exact_match": exact.mean,
        "exact_match_se": exact.cluster_se,
        "f1": fmean(row["f1"] for row in rows),
        "golds_empty": sum({row["cluster_id"]: row["golds_empty"] for row in rows}.values()),
        "search_r1": fmean(row["search_r1"] for row in rows),
    }
