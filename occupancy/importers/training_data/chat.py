"""Chat: {"messages": [{"role", "content", "author"?, "model"?, "usage"?, ..}], "system"?, "tools"?, ..} each.

Messages are those of OpenAI's interface, with content blocks of Anthropic's and speakers of training data
too. A list of messages may be JSON text, and its field `trajectory` (SWE-rebench). Rollouts of prime-rl and
verifiers, `prompt` with `completion`, are read the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import json_objects
from occupancy.importers.records import episode_of


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file: one a line, or the items of one list."""
    for record, place in json_objects(file, settings.progress):
        name = "trajectory" if "messages" not in record else "messages"
        yield episode_of(record, record.get(name), settings, place, used=(name,))
