"""Harbor's trials: which files of a jobs folder are trajectories, and what result.json says of one.

A time limit and a reward are independent: a trial whose agent ran out of time and was then verified has
finished. A trial without a reward has failed; it never counts as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy.importers.files import field_of, json_document, listed, mapping

OUT_OF_TIME = "AgentTimeoutError"
NO_VERDICT = "the trial has no reward"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial's result.json says of its episode."""

    task_id: str
    rewards: Mapping[str, Any] | None
    """By name; None where the verifier gave none."""
    status: str
    error: str
    """The exception that Harbor recorded; empty where there is none."""
    output_tokens: int | None
    """All that Harbor counted for the agent, failed calls included."""


def read_result(result: Mapping[str, Any]) -> TrialResult:
    """The result of a trial.

    A trial of several steps records an exception with its step: the first one counts. The status is
    `finished` with a reward and no exception but the agent's time limit; `wall_time` for that limit without
    a reward; else `environment_error`.
    """
    steps = [mapping(step) for step in listed(result.get("step_results"))]
    raised = [mapping(part.get("exception_info")) for part in (mapping(result), *steps)]
    first = next((info for info in raised if info.get("exception_type")), {})
    kind = str(first.get("exception_type") or "")
    error = " ".join(f"{kind}: {first.get('exception_message', '')}".split()) if kind else ""
    rewards = field_of(result, "verifier_result.rewards")
    rewards = rewards if isinstance(rewards, Mapping) and rewards else None
    if rewards is not None and kind in ("", OUT_OF_TIME):
        status = "finished"
    else:
        status = "wall_time" if kind == OUT_OF_TIME else "environment_error"
        error = error or NO_VERDICT
    counted = [field_of(part, "agent_result.n_output_tokens") for part in (result, *steps)]
    numbers = [number for number in counted if isinstance(number, int) and not isinstance(number, bool)]
    tokens = sum(numbers) if numbers else None
    return TrialResult(str(result.get("task_name") or ""), rewards, status, error, tokens)


def result_beside(file: Path) -> TrialResult | None:
    """The result of the trial that a trajectory belongs to: beside it or one folder up; None without one."""
    for folder in (file.parent, file.parent.parent):
        beside = folder / "result.json"
        if beside == file or not beside.is_file():
            continue
        result, _ = json_document(beside)
        if isinstance(result, Mapping) and "trial_name" in result and "task_name" in result:
            return read_result(result)
    return None


def trajectories_alone(files: Iterable[Path], left_out: Counter[str]) -> list[Path]:
    """The files without those of Harbor's trials that are no trajectory; what has none is counted."""
    files = list(files)
    trials = {file.parent for file in files if file.name == "result.json" and _is_trial(file.parent)}
    for trial in trials:
        agent = trial / "agent"
        if not (agent / "trajectory.json").is_file():
            left_out["trial without a trajectory"] += 1
        for _ in agent.glob("trajectory.cont-*.json"):
            left_out["continued trajectory of a trial"] += 1
    kept = {trial / "agent" / "trajectory.json" for trial in trials}
    return [file for file in files if file in kept or not trials.intersection(file.parents)]


def _is_trial(folder: Path) -> bool:
    # The folder of a job has the same files, and below it those of its trials.
    alone = not any(folder.glob("*/result.json"))
    return alone and (folder / "lock.json").is_file() and (folder / "config.json").is_file()
