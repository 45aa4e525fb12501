"""Imported episodes of authored turns, and their rows in the tables of a run; used by every importer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, InputError
from occupancy.record.rows import AUTHORS, ContextHash, Key, Row, Rows, episode_row, turn_row

WORDS = "words (imported without usage)"


@dataclass(frozen=True)
class ImportSettings:
    """What the files do not record."""

    author: str = ""
    """Author of turns that name none: student or teacher; empty refuses them."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Author by model name, where turns name their model."""
    task: str = "task_id"
    """Field that names the task; `line` makes every record a task of its own."""
    reward: str = ""
    """Field (or Inspect scorer) with R in [0, 1]; empty for none."""

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
    model: str = ""
    finish_reason: str = "stop"
    reasoning_tokens: int = 0
    """The part of `output_tokens` that is reasoning."""


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


class Place:
    """The place of a record in a file, for error messages."""

    def __init__(self, file: Path, record: str) -> None:
        self.file, self.record = file, record

    def __str__(self) -> str:
        return f"{self.file}, {self.record}"

    def refuse(self, reason: str) -> DataError:
        """The error for what is wrong here."""
        return DataError(f"{self}: {reason}")

    def within(self, part: str) -> Place:
        """A place inside this one."""
        return Place(self.file, f"{self.record}, {part}")


def read_json(place: Place) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(place.file.read_text("utf-8"))
    except ValueError as error:
        raise place.refuse(f"not JSON ({error})") from error


def author_of(named: Any, model: str, settings: ImportSettings, place: Place) -> str:
    """Author of a turn: what the turn says, else its model's, else the default; never a guess."""
    if named:
        if named not in AUTHORS:
            raise place.refuse(f"author {named!r}: expected student or teacher")
        return str(named)
    author = settings.models.get(model) or settings.author
    if not author:
        name = f"the model {model!r}" if model else "nobody"
        raise place.refuse(f"the turn names {name} as its author: give --author, or --author-of MODEL=AUTHOR")
    return author


def task_of(record: Mapping[str, Any], settings: ImportSettings, place: Place) -> str:
    """Task of a record."""
    if settings.task == "line":
        return f"{place.file.name}:{place.record}"
    task = record.get(settings.task)
    if not isinstance(task, str | int) or isinstance(task, bool) or task == "":
        raise place.refuse(
            f"field {settings.task!r} is {task!r}: expected the task's name; name another field, or "
            f"'line' to make every record a task"
        )
    return str(task)


def reward_of(record: Mapping[str, Any], settings: ImportSettings, place: Place) -> float | None:
    """R of a record, where the settings name a field for it."""
    if not settings.reward:
        return None
    value = record.get(settings.reward)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise place.refuse(f"field {settings.reward!r} is {value!r}: expected a reward in [0, 1]")
    return float(value)


def text_of(content: Any, place: Place) -> str:
    """Text of a message: a string, or a list of text parts; anything else cannot be kept and is refused."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Iterable) or isinstance(content, Mapping | bytes):
        raise place.refuse(f"content is a {type(content).__name__}: expected text or a list of text parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            raise place.refuse(f"content part of type {kind!r}: only text can be imported")
        texts.append(part["text"])
    return "\n".join(texts)


def with_calls(text: str, calls: Iterable[tuple[Any, Any]]) -> str:
    """A turn's text followed by its tool calls, a JSON line each."""
    lines = [json.dumps({"name": name, "arguments": given}, ensure_ascii=False) for name, given in calls]
    return "\n".join(([text] if text else []) + lines)


def rows_of(episodes: Sequence[ImportedEpisode], *, environment: str) -> Rows:
    """Rows of the tables `episodes` and `turns`; the kind is `demo` where the teacher made all turns."""
    rows: Rows = {"episodes": [], "turns": []}
    seen: dict[str, str] = {}
    for episode in episodes:
        number = -1 if episode.rollout is None else episode.rollout
        if {turn.author for turn in episode.turns} == {"teacher"}:
            key = Key("demo", episode.task_id, continuation=number)
        else:
            key = Key("rollout", episode.task_id, rollout=number)
        if key.episode_id in seen:
            raise DataError(
                f"{episode.where} and {seen[key.episode_id]} are both rollout {episode.rollout} of task "
                f"{episode.task_id!r}: the same episode twice?"
            )
        seen[key.episode_id] = episode.where
        rows["episodes"].append(_episode(key, episode, environment))
        rows["turns"] += _turns(key, episode)
    return rows


def numbered(episodes: Sequence[ImportedEpisode]) -> list[ImportedEpisode]:
    """The episodes, with rollouts numbered that have no number."""
    counts: dict[str, int] = {}
    out = []
    for episode in episodes:
        if episode.rollout is not None:
            out.append(episode)
            continue
        rollout = counts.get(episode.task_id, 0)
        counts[episode.task_id] = rollout + 1
        out.append(replace(episode, rollout=rollout))
    return out


def _episode(key: Key, episode: ImportedEpisode, environment: str) -> Row:
    models = sorted({turn.model for turn in episode.turns if turn.model})
    name = ", ".join(models) or "imported"
    demo = key.kind == "demo"
    return episode_row(
        key,
        policy=name,
        teacher=name if demo else "",
        switch_turn=1 if demo else 0,
        K=len(episode.turns) if demo else 0,
        teacher_turns=sum(turn.author == "teacher" for turn in episode.turns),
        length=len(episode.turns),
        R=episode.R,
        status=episode.status,
        error=episode.error,
        prompt=[{"role": role, "content": text, "author": "task"} for role, text in episode.prompt],
        environment=environment,
        seed=-1,
    )


def _turns(key: Key, episode: ImportedEpisode) -> Iterator[Row]:
    context = ContextHash(episode.prompt)
    for t, turn in enumerate(episode.turns, start=1):
        counted = turn.output_tokens is not None
        yield turn_row(
            key,
            t,
            author=turn.author,
            text=turn.text,
            observation=turn.observation,
            context_id=context.context_id,
            output_tokens=len(turn.text.split()) if turn.output_tokens is None else turn.output_tokens,
            reasoning_tokens=turn.reasoning_tokens,
            prompt_tokens=turn.prompt_tokens,
            cached_tokens=turn.cached_tokens,
            counter=(turn.model or "provider") if counted else WORDS,
            finish_reason=turn.finish_reason,
        )
        context.add(turn.text, turn.observation)
