"""Imported episodes of authored turns, and what every importer reads of a record: author, task, reward."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from occupancy.importers.files import Place, Progress, field_of
from occupancy.record.errors import InputError
from occupancy.record.rows import AUTHORS, Key, storable

REWARDS = ("reward", "R")
"""Fields that hold R where the settings name none."""
NO_REWARD = "none"
_TASKS = (
    *("instance_id", "session_id", "example_id", "problem_id", "question_id"),
    *("task", "id", "uid", "index"),
)
"""Fields that often name the task, for a hint."""


@dataclass(frozen=True)
class ImportSettings:
    """What the files do not record."""

    author: str = ""
    """Author of turns that name none: student or teacher; empty refuses them."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Author by model name, where turns name their model."""
    task: str = "task_id"
    """Field that names the task, `a.b` inside another; `line` makes every record a task of its own."""
    reward: str = ""
    """Field (or Inspect scorer) with R in [0, 1]; empty: one of REWARDS where there is one; `none`: no R."""
    thinking: str = "keep"
    """keep: reasoning that a file has beside a turn's text becomes part of it; drop: it is left out."""
    token_ids: bool = False
    """Keep the sampled ids of turns: the student's tokenizer made them."""
    progress: Progress | None = None
    """Called with the bytes that were read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Filled by reading: fields that no table has a place for, with their number."""
    seen: set[str] = field(default_factory=set)
    """Filled by reading: models that turns name."""
    within: str = ""
    """Folder that all files are in; with task `line` a file is named by its path from there."""

    def __post_init__(self) -> None:
        for author in (self.author, *self.models.values()):
            if author and author not in AUTHORS:
                raise InputError(f"author {author!r}: expected one of {', '.join(AUTHORS)}")


@dataclass(frozen=True)
class ImportedTurn:
    """One assistant turn and the reply to it."""

    author: str
    text: str
    observation: str
    output_tokens: int | None = None
    """As the provider counted them; None where the file does not say."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int = 0
    model: str = ""
    finish_reason: str = "stop"
    train: bool = True
    """Whether a teacher's turn may be trained on; false where the file says so (`weight`, `loss`)."""
    role: str = "user"
    """Role of the message that carries the observation."""
    token_ids: tuple[int, ...] | None = None
    """Sampled ids, where the student's tokenizer made them."""
    cells: Mapping[str, Any] = field(default_factory=dict)
    """Further cells of its row of `turns`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", storable(self.text))
        object.__setattr__(self, "observation", storable(self.observation))


@dataclass(frozen=True)
class Origin:
    """Where in a run folder an exported episode was."""

    key: Key
    parent: str = ""
    own_from: int = 1
    """First turn that is the episode's own; earlier ones are its parent's."""
    accepted: bool = True
    """Whether it was accepted, so that it has a trace."""
    prompt_authors: tuple[str, ...] = ()
    """Author of each message of the prompt."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further cells of its row of `episodes`."""


@dataclass(frozen=True)
class ImportedEpisode:
    """One conversation."""

    task_id: str
    prompt: tuple[tuple[str, str], ...]
    """(role, text) of the messages before turn 1."""
    turns: tuple[ImportedTurn, ...]
    where: str
    """File and line, for messages to people."""
    R: float | None = None
    status: str = "finished"
    error: str = ""
    rollout: int | None = None
    """None until numbered within its task, in order."""
    origin: Origin | None = None
    """The episode's own key, where a run folder was exported."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "task_id", storable(self.task_id))
        object.__setattr__(self, "prompt", tuple((role, storable(text)) for role, text in self.prompt))


def models_of(turns: Iterable[ImportedTurn]) -> str:
    """Names of the models that made the turns; empty where no turn names one."""
    return ", ".join(sorted({turn.model for turn in turns if turn.model}))


def author_of(named: Any, model: str, settings: ImportSettings, place: Place) -> str:
    """Author of a turn: what the turn says, else its model's, else the default; never a guess."""
    settings.seen.add(model)
    if named:
        if named not in AUTHORS:
            raise place.refuse(f"author {named!r}: expected student or teacher")
        return str(named)
    author = settings.models.get(model) or settings.author
    if not author:
        name = f"the model {model!r}" if model else "nobody"
        raise place.refuse(f"the turn names {name} as its author: give --author, or --author-of MODEL=AUTHOR")
    return author


def task_of(record: Mapping[str, Any], settings: ImportSettings, place: Place, default: str = "") -> str:
    """Task of a record; `default` where there is one and no field names the task."""
    if settings.task == "line":
        name = os.path.relpath(place.file, settings.within) if settings.within else place.file.name
        return f"{name}:{place.record}"
    task = field_of(record, settings.task)
    task = (default or None) if task is None else task
    if not isinstance(task, str | int) or isinstance(task, bool) or task == "":
        nested = [f"{n}.{settings.task}" for n, v in record.items() if field_of(v, settings.task) is not None]
        nested += [name for name in _TASKS if isinstance(record.get(name), str | int)]
        hint = f"give --task {nested[0]}" if nested else "--task FIELD names another field"
        raise place.refuse(
            f"field {settings.task!r} is {task!r}: expected the task's name; {hint}, and --task line makes "
            f"every record a task"
        )
    return str(task)


def reward_of(record: Mapping[str, Any], settings: ImportSettings, place: Place, *also: str) -> float | None:
    """R of a record: the field that the settings name, else the first of REWARDS and `also` that is there."""
    if settings.reward == NO_REWARD:
        return None
    known = [name for name in (*REWARDS, *also) if field_of(record, name) is not None]
    names = [settings.reward] if settings.reward else known
    return reward(field_of(record, names[0]), f"field {names[0]!r}", place) if names else None


def reward(value: Any, name: str, place: Place) -> float:
    """R from a value; anything but a number in [0, 1] is refused."""
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise place.refuse(
            f"{name} is {value!r}: expected a reward in [0, 1]; name another field with --reward, or leave "
            f"rewards out with --reward none"
        )
    return float(value)
