"""mini-swe-agent trajectories, versions 1 and 2: {"info": {"exit_status", ..}, "messages": [..]}.

Version 2 ends with a message of role `exit`; with the Responses interface an assistant's message is a
response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy.importers.agent_logs.responses import Message, add_item, items_of
from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of
from occupancy.importers.files import Place, field_of, json_records, mapping, without
from occupancy.importers.messages import choice_of
from occupancy.importers.records import episode_of

STATUSES = {
    "Submitted": "finished",
    "submitted": "finished",
    "LimitsExceeded": "budget_stopped",
    "TimeExceeded": "budget_stopped",
    "ContextWindowExceededError": "context",
    "FormatError": "student_failed",
    "RepeatedFormatError": "student_failed",
    "UserInterruption": "budget_stopped",
}
"""Other words are the names of exceptions: the environment's error."""


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is `instance_id`, else the file's name."""
    for record, place in json_records(file, settings.progress):
        info = field_of(record, "info")
        if not isinstance(info, Mapping) or not isinstance(record.get("messages"), list):
            raise place.refuse("no object under 'info' with a list under 'messages': expected a trajectory")
        status = str(info.get("exit_status") or "")
        if not status:
            raise place.refuse("no exit_status under 'info': the run had not ended")
        found = STATUSES.get(status, "environment_error")
        messages = _messages(record["messages"], settings, place)
        task = record.get("instance_id") or field_of(info, "instance_id") or file.name.partition(".traj")[0]
        model = field_of(info, "config.model.model_name") or ""
        yield episode_of(
            {"model": model},
            messages,
            settings,
            place,
            task_id=str(task),
            R=reward_of({**record, **info}, settings, place),
            status=found,
            error="" if found in ("finished", "context") else status,
        )


def _messages(given: list[Any], settings: ImportSettings, place: Place) -> list[Message]:
    messages: list[Message] = []
    for number, message in enumerate(given, start=1):
        here = place.within(f"message {number}")
        if not isinstance(message, Mapping):
            raise here.refuse(f"a {type(message).__name__}: expected an object")
        extra = mapping(message.get("extra"))
        if "role" not in message and message.get("object") == "response":
            first = len(messages)
            for item in items_of(message):
                add_item(messages, item, settings, here)
            for made in messages[first:]:
                made["usage"] = message.get("usage")
        elif "role" not in message:
            add_item(messages, message, settings, here)
        elif message["role"] == "exit":
            messages.append({"role": "user", "content": message.get("content")})
        else:
            plain = without(message, "extra", "timestamp", "provider_specific_fields")
            response = extra.get("response")
            if message["role"] == "assistant" and isinstance(response, Mapping):
                plain.setdefault("usage", response.get("usage"))
                plain.setdefault("finish_reason", choice_of(response).get("finish_reason"))
            messages.append(plain)
    return messages
