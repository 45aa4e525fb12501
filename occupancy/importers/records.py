"""A record with a list of messages as an episode: its system prompt, tools, task, reward and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from occupancy.importers.episodes import REWARDS, ImportedEpisode, ImportSettings, reward_of, task_of
from occupancy.importers.files import Place
from occupancy.importers.messages import MEDIA, Prompt, content_text, read_messages, with_tools

_USED = {"system", "tools", "functions", "model", "messages", *REWARDS}


def episode_of(
    record: Mapping[str, Any],
    messages: Any,
    settings: ImportSettings,
    place: Place,
    *,
    used: tuple[str, ...] = (),
    default_task: str = "",
    **more: Any,
) -> ImportedEpisode:
    """The episode of a record, whose `system` and `tools` are part of the prompt, and of what was said.

    `used` names further fields that the importer has read; `default_task` is the task where no field names
    it; `more` are fields of the episode, of which `R` and `task_id` are else read from the record.
    """
    system = record.get("system")
    before: Prompt = (("system", content_text(system, settings, place)),) if system else ()
    model = str(record.get("model") or "")
    prompt, turns = read_messages(messages, settings, place, model=model, prompt=before)
    prompt = with_tools(prompt, record.get("tools") or record.get("functions"), place)
    if record.get("label") is False and "completion" in record and settings.reward != "label":
        raise place.refuse(
            "a row of KTO, whose `label` says whether its completion is wanted: give --reward label, or keep "
            "the rows whose label is true"
        )
    for name, value in record.items():
        if name in MEDIA and value:
            raise place.refuse(f"{name}: only text can be imported")
        known = name in _USED or name in used or name in (settings.task, settings.reward)
        if not known and value not in (None, []) and not settings.task.startswith(f"{name}."):
            settings.left_out[f"record field {name!r}"] += 1
    if "task_id" not in more:
        more["task_id"] = task_of(record, settings, place, default_task)
    if "R" not in more:
        more["R"] = reward_of(record, settings, place)
    return ImportedEpisode(prompt=prompt, turns=turns, where=str(place), **more)
