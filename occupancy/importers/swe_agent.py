"""SWE-agent .traj files: {"trajectory": [{"response", "observation", ..}], "history": [..], "info": {..}}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from occupancy.importers.episodes import (
    ImportedEpisode,
    ImportedTurn,
    ImportSettings,
    Place,
    author_of,
    read_json,
    reward_of,
    text_of,
)

STATUSES = {
    "submitted": "finished",
    "exit_context": "context",
    "exit_cost": "budget_stopped",
    "exit_total_execution_time": "budget_stopped",
    "exit_api": "student_failed",
    "exit_format": "student_failed",
    "exit_error": "environment_error",
    "exit_environment_error": "environment_error",
    "exit_command_timeout": "environment_error",
    "exit_command": "finished",
    "exit_forfeit": "finished",
    "skipped": "environment_error",
    "early_exit": "environment_error",
}


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """The episode of a file, whose name is the task; one that was stopped and then submitted was stopped."""
    place = Place(file, "whole file")
    log = read_json(place)
    steps = log.get("trajectory") if isinstance(log, dict) else None
    if not isinstance(steps, list) or not steps:
        raise place.refuse("no list of steps under 'trajectory': expected a SWE-agent trajectory")
    info: dict[str, Any] = log.get("info") or {}
    turns = []
    for number, step in enumerate(steps, start=1):
        here = place.within(f"step {number}")
        if not isinstance(step, dict) or not isinstance(step.get("response"), str):
            raise here.refuse("no text under 'response': expected what the model wrote")
        author = author_of(step.get("author"), "", settings, here)
        turns.append(ImportedTurn(author, step["response"], text_of(step.get("observation"), here)))
    exit_status = str(info.get("exit_status") or "")
    reason = exit_status.removeprefix("submitted (").removesuffix(")") if "(" in exit_status else exit_status
    if reason not in STATUSES:
        raise place.refuse(f"exit_status {exit_status!r}: expected one of {', '.join(STATUSES)}")
    status = STATUSES[reason]
    prompt = _prompt(log.get("history"), place)
    R = reward_of(info, settings, place)
    stopped = "" if status in ("finished", "context") else exit_status
    return [ImportedEpisode(file.stem, prompt, tuple(turns), str(place), R, status, stopped)]


def _prompt(history: Any, place: Place) -> tuple[tuple[str, str], ...]:
    """Messages before the first turn: demonstrations are part of it, other assistant messages end it."""
    prompt = []
    for number, message in enumerate(history or (), start=1):
        if message.get("role") == "assistant" and not message.get("is_demo"):
            break
        text = text_of(message.get("content"), place.within(f"history {number}"))
        prompt.append((str(message.get("role")), text))
    return tuple(prompt)
