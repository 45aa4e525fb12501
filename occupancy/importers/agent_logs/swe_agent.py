"""SWE-agent .traj files: {"trajectory": [{"response", "observation", ..}], "history": [..], "info": {..}}.

`history` has the same turns with their tool calls, and the observations as the model saw them: where its
texts are those of the steps, calls and replies are taken from it, and from the steps otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportedTurn, ImportSettings, author_of, reward_of
from occupancy.importers.files import Place, json_document, lines, listed, mapping
from occupancy.importers.messages import Prompt, calls_of, content_text
from occupancy.record.calls import turn_text, with_thought

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


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """The episode of a file, whose name is the task; one that was stopped and then submitted was stopped."""
    read, place = json_document(file, settings.progress)
    log = mapping(read)
    steps, info = listed(log.get("trajectory")), mapping(log.get("info"))
    if not steps:
        raise place.refuse("no list of steps under 'trajectory': expected a SWE-agent trajectory")
    history = [m for m in listed(log.get("history")) if isinstance(m, Mapping)]
    prompt, said = _history(history, settings, place)
    responses = [step.get("response") for step in map(mapping, steps)]
    aligned = [text for text, _, _ in said] == responses[: len(said)]
    turns = []
    for number, step in enumerate(steps, start=1):
        here = place.within(f"step {number}")
        if not isinstance(step, dict) or not isinstance(step.get("response"), str):
            raise here.refuse("no text under 'response': expected what the model wrote")
        _, calls, reply = said[number - 1] if aligned and number <= len(said) else ("", [], None)
        if not aligned and not step.get("tool_calls") and any(m.get("tool_calls") for m in history):
            raise here.refuse("no tool_calls, and `history` has other turns: the step's action is unknown")
        calls = calls_of(step.get("tool_calls"), here) or calls
        thought = step.get("reasoning_content") if settings.thinking == "keep" else None
        text = with_thought(content_text(thought, settings, here), turn_text(step["response"], calls))
        if reply is None:
            reply = content_text(step.get("observation"), settings, here)
        author = author_of(step.get("author"), "", settings, here)
        turns.append(ImportedTurn(author, text, reply, role="tool" if calls else "user"))
    exit_status = str(info.get("exit_status") or "")
    reason = exit_status.removeprefix("submitted (").removesuffix(")") if "(" in exit_status else exit_status
    if reason not in STATUSES:
        raise place.refuse(f"exit_status {exit_status!r}: expected one of {', '.join(STATUSES)}")
    status = STATUSES[reason]
    R = reward_of(info, settings, place)
    stopped = "" if status in ("finished", "context") else exit_status
    task = file.name.partition(".traj")[0]
    yield ImportedEpisode(task, prompt, tuple(turns), str(place), R, status, stopped)


def _history(
    history: list[Mapping[str, Any]], settings: ImportSettings, place: Place
) -> tuple[Prompt, list[tuple[str, list[tuple[str, str]], str | None]]]:
    """The prompt, demonstrations included, and (text, calls, reply or None) of each later turn."""
    prompt: list[tuple[str, str]] = []
    said: list[tuple[str, list[tuple[str, str]], str | None]] = []
    for number, message in enumerate(history, start=1):
        here = place.within(f"history {number}")
        text = content_text(message.get("content"), settings, here)
        if message.get("role") == "assistant" and not message.get("is_demo"):
            said.append((text, calls_of(message.get("tool_calls"), here), None))
        elif said:
            before, calls, reply = said[-1]
            said[-1] = (before, calls, lines(reply, text))
        else:
            prompt.append((str(message.get("role")), text))
    return tuple(prompt), said
