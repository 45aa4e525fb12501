"""Single answers: alpaca (LLaMA-Factory) {"instruction", "input", "output"}, ms-swift {"query", "response"}.

Both may have `system` and `history`, a list of earlier (question, answer) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects
from occupancy.importers.records import episode_of

_USED = ("instruction", "input", "output", "query", "response", "history")


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; answers of the history are turns too."""
    for record, place in json_objects(file, settings.progress):
        yield answer_of(record, settings, place)


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
    return episode_of(record, messages, settings, place, used=_USED)
