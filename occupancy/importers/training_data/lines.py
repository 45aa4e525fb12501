"""Training data as lines or lists of JSON: chat, ShareGPT, and single answers (alpaca, ms-swift)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects, without
from occupancy.importers.records import episode_of

_ANSWER = ("instruction", "input", "output", "query", "response", "history")


def read_chat(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of {"messages": [{"role", "content", "author"?, "model"?, "usage"?}], "system"?, "tools"?}.

    Messages are those of OpenAI's interface, with content blocks of Anthropic's and speakers of training data
    too. A list of messages may be JSON text, and its field `trajectory` (SWE-rebench).
    """
    for record, place in json_objects(file, settings.progress):
        name = "trajectory" if "messages" not in record else "messages"
        yield episode_of(record, record.get(name), settings, place, used=(name,))


def read_sharegpt(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of {"conversations": [{"from": "human" | "gpt" | .., "value"}]}; or items of chat."""
    for record, place in json_objects(file, settings.progress):
        yield conversation_of(record, settings, place)


def read_alpaca(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of alpaca's {"instruction", "input", "output"} or ms-swift's {"query", "response"}.

    Both may have `system` and `history`, a list of earlier (question, answer) pairs: answers there are turns.
    """
    for record, place in json_objects(file, settings.progress):
        yield answer_of(record, settings, place)


def conversation_of(record: dict[str, Any], settings: ImportSettings, place: Place) -> ImportedEpisode:
    """The episode of a record."""
    conversation = record.get("conversations")
    if not isinstance(conversation, list):
        raise place.refuse("no list under 'conversations': expected {from, value} items")
    messages = [_message(item, place.within(f"message {n}")) for n, item in enumerate(conversation, 1)]
    return episode_of(record, messages, settings, place, used=("conversations",))


def _message(item: Any, place: Place) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise place.refuse(f"{item!r}: expected an object {{from, value}}")
    role, content = item.get("from", item.get("role")), item.get("value", item.get("content"))
    return without(item, "from", "value") | {"role": role, "content": content}


def answer_of(record: dict[str, Any], settings: ImportSettings, place: Place) -> ImportedEpisode:
    """The episode of a record."""
    if {"chosen", "rejected", "rejected_response"} & set(record):
        raise place.refuse("a preference pair has two endings: export one of them")
    if isinstance(record.get("query"), str):
        question, answer = record["query"], record.get("response")
    else:
        asked = [record[name] for name in ("instruction", "input") if record.get(name)]
        if not all(isinstance(text, str) for text in asked):
            raise place.refuse(f"instruction and input are {asked!r}: expected texts")
        question = "\n".join(asked)
        answer = record.get("output")
    if not isinstance(answer, str):
        raise place.refuse("no text under 'output' or 'response': expected the answer")
    history = record.get("history") or []
    if not isinstance(history, list):
        raise place.refuse(f"history is {history!r}: expected a list of questions with their answers")
    pairs = [*history, (question, answer)]
    messages = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise place.refuse(f"history item {pair!r}: expected a question and its answer")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return episode_of(record, messages, settings, place, used=_ANSWER)
