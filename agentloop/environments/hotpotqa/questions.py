"""The questions, from the packed Parquet files or from HotpotQA's official JSON files.

    questions.parquet, corpus.parquet       id, answers, type, level, gold titles, supporting facts, split
    hotpot_train_v1.1.json                  split train
    hotpot_dev_fullwiki_v1.json, or
    hotpot_dev_distractor_v1.json           splits dev (20 %) and test, by SHA-256 of the id

The official test file has no answers; as in the papers, its dev file is what is tested on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading

from ..task_specs import data_folder

PACKED = ("questions.parquet", "corpus.parquet")
OFFICIAL_TRAIN = "hotpot_train_v1.1.json"
OFFICIAL_DEV = ("hotpot_dev_fullwiki_v1.json", "hotpot_dev_distractor_v1.json")
SPLITS = ("train", "dev", "test")
LEVELS = ("easy", "medium", "hard")
DEV_PERCENT = 20


@dataclass(frozen=True, slots=True)
class Question:
    """One question, and what a teacher may know of it."""

    question_id: str
    text: str
    golds: tuple[str, ...]
    type: str
    """bridge or comparison."""
    level: str
    """easy, medium or hard; all of the dev file is hard."""
    split: str
    gold_titles: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    """(title, sentence) of the supporting facts; empty where the source kept titles only."""


def find_folder() -> Path:
    """The folder of the questions: what FEWSTEPS_DATA names, or its subfolder hotpotqa."""
    either = (PACKED[0], OFFICIAL_TRAIN)
    return data_folder(
        "hotpotqa",
        lambda folder: any((folder / name).is_file() for name in either),
        expected=" or ".join(either),
    )


def read_questions(folder: Path) -> list[Question]:
    """All questions of the folder, sorted by id; DataError where a file is not what it should be."""
    try:
        with reading(f"HotpotQA in {folder}", then="copy it again"):
            questions = _official(folder) if is_official(folder) else _packed(folder)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(f"{folder}: not HotpotQA's columns ({type(error).__name__}: {error})") from error
    return sorted(questions, key=lambda question: question.question_id)


def is_official(folder: Path) -> bool:
    """Whether the folder holds the official files, and not the packed ones."""
    return not (folder / PACKED[0]).is_file()


def _packed(folder: Path) -> list[Question]:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / PACKED[0]).to_pylist()
    golds = {title for row in rows for title in row["gold_titles"]}
    sentences = _gold_sentences(folder / PACKED[1], golds)
    return [
        Question(
            question_id=row["id"],
            text=row["question"].strip(),
            golds=tuple(row["answers"]),
            type=row["type"],
            level=row["level"],
            split=row["split"],
            gold_titles=tuple(row["gold_titles"]),
            facts=_facts([(f["title"], f["sent_id"]) for f in row["supporting_facts"] or ()], sentences),
        )
        for row in rows
    ]


def _gold_sentences(corpus: Path, titles: set[str]) -> dict[str, list[str]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(corpus, columns=["title", "text", "sent_starts"])
    table = table.filter(pc.is_in(table["title"], pa.array(sorted(titles))))
    found = {}
    for row in table.to_pylist():
        starts = [*(row["sent_starts"] or ()), len(row["text"])]
        found[row["title"]] = [row["text"][start:stop].strip() for start, stop in pairwise(starts)]
    return found


def _official(folder: Path) -> list[Question]:
    dev = next((folder / name for name in OFFICIAL_DEV if (folder / name).is_file()), None)
    if dev is None:
        raise InputError(f"{folder} has {OFFICIAL_TRAIN}: expected {' or '.join(OFFICIAL_DEV)} too")
    return [
        _from_official(row, "train") for row in json.loads((folder / OFFICIAL_TRAIN).read_text("utf-8"))
    ] + [_from_official(row, _dev_or_test(row["_id"])) for row in json.loads(dev.read_text("utf-8"))]


def _from_official(row: Mapping[str, Any], split: str) -> Question:
    sentences = {title: [s.strip() for s in parts] for title, parts in row.get("context", ())}
    facts = [(title, number) for title, number in row["supporting_facts"]]
    return Question(
        question_id=row["_id"],
        text=row["question"].strip(),
        golds=(row["answer"],),
        type=row["type"],
        level=row["level"],
        split=split,
        gold_titles=tuple(dict.fromkeys(title for title, _ in facts)),
        facts=_facts(facts, sentences),
    )


def _dev_or_test(question_id: str) -> str:
    percent = int(hashlib.sha256(question_id.encode()).hexdigest()[:8], 16) % 100
    return "dev" if percent < DEV_PERCENT else "test"


def _facts(
    facts: Sequence[tuple[str, int]], sentences: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    """Facts whose sentence is there: some sources number a sentence that the paragraph does not have."""
    return tuple(
        (t, sentences[t][n]) for t, n in facts if 0 <= n < len(sentences.get(t, ())) and sentences[t][n]
    )
