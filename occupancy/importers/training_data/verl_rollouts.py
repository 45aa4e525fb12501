"""verl's dumped rollouts: {"input", "output", "score", "step", ..} a line, as texts of a chat template.

ChatML texts are split into their messages. A text whose special tokens were left out does not say who wrote
what, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of
from occupancy.importers.files import Place, json_objects
from occupancy.importers.records import episode_of
from occupancy.record.rows import text_hash

_USED = ("input", "output", "score", "step", "gts", "gt")
_MESSAGE = re.compile(r"\s*<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\s*|\Z)", re.DOTALL)


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; rollouts of one prompt are one task where no field names it."""
    for record, place in json_objects(file, settings.progress):
        given, said = record.get("input"), record.get("output")
        if not isinstance(given, str) or not isinstance(said, str):
            raise place.refuse("expected texts under 'input' and 'output'")
        messages, R = _messages(given, said, place), reward_of(record, settings, place, "score")
        task = text_hash(given)
        yield episode_of(record, messages, settings, place, used=_USED, default_task=task, R=R)


def _messages(given: str, said: str, place: Place) -> list[dict[str, str]]:
    if "<|im_start|>" not in given:
        if re.search(r"<\|\w+|\[INST\]|(^|\n)(assistant|model)\n?$", given):
            raise place.refuse(
                "'input' is of a template that is not ChatML, or without its special tokens: who wrote what "
                "is not in it; dump the messages, or decode with special tokens"
            )
        return [{"role": "user", "content": given}, {"role": "assistant", "content": said}]
    text, at, found = given + said, 0, []
    while match := _MESSAGE.match(text, at):
        found.append({"role": match[1], "content": match[2]})
        at = match.end()
        if at == len(text):
            return found
    raise place.refuse(f"text between messages of ChatML: {text[at : at + 40]!r}")
