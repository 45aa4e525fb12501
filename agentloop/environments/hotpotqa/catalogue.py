"""Which questions a task spec names.

    test                 every question of a split, in id order
    train/medium         those of one level
    train/medium:60      60 of them, drawn with the run's seed, without replacement
    train/medium:60-120  the next 60 of the same draw: disjoint from the first
    @file                one task id a line
    paper-train, paper-held-out, paper-test    the paper's setting, the same for every seed

A task id is `<split>/<question id>`; the question is what errors are clustered by.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentloop.types import Task
from occupancy.record.errors import InputError
from occupancy.record.recipe import Recipe, preset

from .questions import LEVELS, SPLITS, Question, is_official, read_questions

SPEC = re.compile(r"(?P<split>\w+)(?:/(?P<level>\w+))?(?::(?:(?P<start>\d+)-)?(?P<stop>\d+))?")


@dataclass(frozen=True)
class Study:
    """The paper's HotpotQA setting (section 5): what is trained, chosen and tested on, and how often."""

    train: int
    """Medium questions of the train split to collect on."""
    held_out: int
    """Medium questions of the train split, others than those, to choose checkpoints by."""
    n: int = 3
    """Student rollouts a question."""
    K: tuple[int, ...] = (1, 2, 3, 4, 5)
    T_max: int = 5
    temperature: float = 1.0
    """Of student and teacher."""
    evaluations: int = 8
    """Of the full test split."""

    def recipe(self, K: int, *, teacher: str) -> Recipe:
        """OP-Short at this K."""
        return preset("op-short", n=self.n, K=K, T_max=self.T_max, teacher=teacher)


OFFICIAL = Study(train=1_000, held_out=3_000)
SCALED = Study(train=840, held_out=100)
"""The same with the 940 medium questions of the packed data."""


@dataclass(frozen=True)
class Catalogue:
    """The questions of one folder."""

    questions: Sequence[Question]
    study: Study
    by_id: dict[str, Question] = field(init=False)
    """By task id."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {task_id(q): q for q in self.questions})

    def tasks(self, spec: str, *, seed: int = 0) -> list[Task]:
        """Tasks named by `spec`; InputError for an unknown name, or more tasks than there are."""
        return [_task(question) for question in self._named(spec, seed)]

    def question(self, given: str) -> Question:
        """The question of a task id."""
        if given not in self.by_id:
            raise InputError(
                f"task id {given!r} is none of the data folder's: expected <split>/<question id>"
            )
        return self.by_id[given]

    def _named(self, spec: str, seed: int) -> Sequence[Question]:
        if spec.startswith("@"):
            return [self.question(line) for line in _lines(Path(spec[1:]))]
        if spec.startswith("paper-"):
            return self._paper(spec)
        found = SPEC.fullmatch(spec)
        if found is None or found["split"] not in SPLITS or (found["level"] or "easy") not in LEVELS:
            raise InputError(
                f"task spec {spec!r}: expected one of {', '.join(SPLITS)}, with /{', /'.join(LEVELS)} for a "
                f"level, :N or :A-B for a part; or @file, paper-train, paper-held-out, paper-test"
            )
        pool = self._pool(found["split"], found["level"])
        if found["stop"] is None:
            return pool
        start, stop = int(found["start"] or 0), int(found["stop"])
        if not start < stop <= len(pool):
            raise InputError(
                f"task spec {spec!r}: expected 0 <= A < B <= {len(pool)}, the questions there are"
            )
        random.Random(f"{found['split']}/{found['level']}:{seed}").shuffle(pool)
        return pool[start:stop]

    def _paper(self, spec: str) -> Sequence[Question]:
        """Parts that no seed changes, so that what is held out of one run is held out of all."""
        train, held_out = self.study.train, self.study.held_out
        medium = self._pool("train", "medium")
        if len(medium) < train + held_out:
            raise InputError(
                f"task spec {spec!r} needs {train} + {held_out} medium questions: train has {len(medium)}"
            )
        medium.sort(key=lambda q: hashlib.sha256(q.question_id.encode()).digest())
        parts = {
            "paper-train": medium[:train],
            "paper-held-out": medium[train : train + held_out],
            "paper-test": self._pool("test", None),
        }
        if spec not in parts:
            raise InputError(f"task spec {spec!r}: expected one of {', '.join(parts)}")
        return parts[spec]

    def _pool(self, split: str, level: str | None) -> list[Question]:
        return [q for q in self.questions if q.split == split and level in (None, q.level)]


def open_catalogue(folder: Path) -> Catalogue:
    """The questions of a folder, with the paper's counts as far as the data go."""
    return Catalogue(read_questions(folder), OFFICIAL if is_official(folder) else SCALED)


def task_id(question: Question) -> str:
    """`<split>/<question id>`."""
    return f"{question.split}/{question.question_id}"


def _task(question: Question) -> Task:
    kind = f"{question.level}-{question.type}"
    return Task(task_id(question), question.question_id, question.split, kind)


def _lines(path: Path) -> list[str]:
    try:
        ids = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"task file {path}: cannot be read ({error}); expected one task id a line"
        ) from error
    if not ids or len(set(ids)) < len(ids):
        raise InputError(f"task file {path}: {len(ids)} ids, {len(set(ids))} different; give each task once")
    return ids
