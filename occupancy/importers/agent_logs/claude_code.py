"""Claude Code session logs, and its `stream-json`: entries, a line each; a session is an episode.

What was taken back (a branch that was left) and subagents (`isSidechain`) are left out. After a compaction
the conversation begins anew, with the summary as its prompt: that is an episode of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects, listed, mapping, without
from occupancy.importers.records import episode_of

Entry = dict[str, Any]
_NOT_SAID = ("container", "context_management", "stop_sequence", "diagnostics", "stop_details")
"""Fields of a message that are no part of what was said."""


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is the session's id."""
    entries: dict[str, tuple[Entry, Place]] = {}
    for number, (entry, place) in enumerate(json_objects(file, settings.progress)):
        if entry.get("isSidechain") or entry.get("parent_tool_use_id"):
            settings.left_out["entry of a subagent"] += 1
        else:
            entries[str(entry.get("uuid") or number)] = (entry, place)
    speakers = ("user", "assistant")
    said = {key: e for key, (e, _) in entries.items() if e.get("type") in speakers and "message" in e}
    if said and not any("parentUuid" in entry for entry in said.values()):  # the stream of `--print`
        for before, after in pairwise(list(said)):
            said[after]["parentUuid"] = before
    first: dict[str, str] = {}
    for key, (entry, _) in entries.items():  # the first entry of the conversation of each
        first[key] = first.get(str(entry.get("parentUuid")), key)
    lasts = {first[key]: key for key in said}
    for number, last in enumerate(lasts.values(), start=1):
        messages = _messages(set(_path(last, entries)), said, settings)
        if not any(m.get("role") == "assistant" for m in messages):
            continue
        entry, place = entries[last]
        if messages[0].get("role") == "assistant":
            raise place.refuse("no user's message before the first turn: import the session's log instead")
        session = entry.get("sessionId") or entry.get("session_id") or file.name.partition(".")[0]
        task = f"{session}" if number == 1 else f"{session}/{number}"
        yield episode_of({}, messages, settings, Place(file), task_id=task, R=None)


def _path(key: str, entries: Mapping[str, tuple[Entry, Place]]) -> list[str]:
    """Keys from an entry back to the first of its conversation."""
    path, seen = [key], {key}
    while True:
        parent = str(entries[path[-1]][0].get("parentUuid"))
        if parent not in entries or parent in seen:
            return path
        path.append(parent)
        seen.add(parent)


def _messages(path: set[str], said: Mapping[str, Entry], settings: ImportSettings) -> list[Entry]:
    """Messages of a conversation in the order of the file.

    A model's message is several entries with one id, and parallel calls hang their results beside the path.
    """
    ids = {_id(said[key]) for key in path & set(said)} - {None}
    made = [part for entry in said.values() if _id(entry) in ids for part in _blocks(entry, "tool_use")]
    calls = {str(part.get("id")) for part in made}
    messages: list[Entry] = []
    begun: dict[Any, Entry] = {}
    for key, entry in said.items():
        answers = any(str(part.get("tool_use_id")) in calls for part in _blocks(entry, "tool_result"))
        if key not in path and _id(entry) not in ids and not answers:
            settings.left_out["entry of a branch that was left"] += 1
            continue
        message = without(mapping(entry["message"]), *_NOT_SAID)
        if entry.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            settings.left_out["text of the program in place of a turn"] += 1
            continue
        before = begun.setdefault(_id(entry), message)
        if before is message or _id(entry) is None:
            messages.append(message)
            continue
        before["content"] = [*_parts(before.get("content")), *_parts(message.get("content"))]
        before |= {name: message[name] for name in ("usage", "stop_reason") if message.get(name)}
    return messages


def _id(entry: Entry) -> Any:
    message = mapping(entry.get("message"))
    name = message.get("id")
    return name if message.get("role") == "assistant" and isinstance(name, str) else None


def _blocks(entry: Entry, kind: str) -> list[Mapping[str, Any]]:
    """The blocks of a kind in an entry's message."""
    parts = map(mapping, listed(mapping(entry.get("message")).get("content")))
    return [part for part in parts if part.get("type") == kind]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else listed(content)
