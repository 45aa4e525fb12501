"""Which questions a task spec names: those of `task_specs`, with levels, and the paper's parts.

    train/medium:60                            60 questions of one level, drawn with the run's seed
    paper-train, paper-held-out, paper-test    the paper's setting, the same for every seed

A task id is `<split>/<question id>`; the question is what errors are clustered by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentloop.types import Task
from occupancy.record.errors import InputError

from ..task_specs import Slice, named_ids
from .questions import LEVELS, SPLITS, Question, is_official, read_questions


@dataclass(frozen=True)
class Study:
    """The paper's tasks (section 5): what is collected on, and what checkpoints are chosen by."""

    train: int
    """Medium questions of the train split to collect on."""
    held_out: int
    """Medium questions of the train split, others than those, to choose checkpoints by."""


OFFICIAL = Study(train=1_000, held_out=3_000)
SCALED = Study(train=840, held_out=100)
"""The same with the 940 medium questions of the packed data."""


@dataclass(frozen=True)
class Catalogue:
    """The questions of one folder."""

    questions: Sequence[Question]
    study: Study

    @cached_property
    def by_id(self) -> dict[str, Question]:
        """The questions by task id."""
        return {task_id(question): question for question in self.questions}

    def tasks(self, spec: str, *, seed: int = 0) -> list[Task]:
        """Tasks named by `spec`; InputError for an unknown name, or more tasks than there are."""
        if spec.startswith("paper-"):
            return [_task(question) for question in self._paper(spec)]

        def pool(part: Slice) -> list[str]:
            return [task_id(question) for question in self._pool(part.split, part.level)]

        ids = named_ids(spec, pool, splits=SPLITS, levels=LEVELS, seed=seed)
        return [_task(self.question(name)) for name in ids]

    def question(self, given: str) -> Question:
        """The question of a task id."""
        if given not in self.by_id:
            raise InputError(f"task id {given!r} is no question of the data: expected <split>/<question id>")
        return self.by_id[given]

    def _paper(self, spec: str) -> Sequence[Question]:
        """Parts that no seed changes, so that what is held out of one run is held out of all."""
        train, held_out = self.study.train, self.study.held_out
        medium = self._pool("train", "medium")
        if len(medium) < train + held_out:
            raise InputError(f"{spec} needs {train} + {held_out} medium questions: train has {len(medium)}")
        medium.sort(key=lambda q: hashlib.sha256(q.question_id.encode()).digest())
        parts = {
            "paper-train": medium[:train],
            "paper-held-out": medium[train : train + held_out],
            "paper-test": self._pool("test"),
        }
        if spec not in parts:
            raise InputError(f"task spec {spec!r}: expected one of {', '.join(parts)}")
        return parts[spec]

    def _pool(self, split: str, level: str = "") -> list[Question]:
        return [q for q in self.questions if q.split == split and level in ("", q.level)]


def open_catalogue(folder: Path) -> Catalogue:
    """The questions of a folder, with the paper's counts as far as the data go."""
    return Catalogue(read_questions(folder), OFFICIAL if is_official(folder) else SCALED)


def task_id(question: Question) -> str:
    """`<split>/<question id>`."""
    return f"{question.split}/{question.question_id}"


def _task(question: Question) -> Task:
    kind = f"{question.level}-{question.type}"
    return Task(task_id(question), question.question_id, question.split, kind)
