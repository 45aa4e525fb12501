"""A HotpotQA of eight questions and twenty-odd paragraphs, made up, small enough for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentloop.environments.hotpotqa.catalogue import SCALED, Catalogue
from agentloop.environments.hotpotqa.environment import HotpotQA, Rules
from agentloop.environments.hotpotqa.prompts import DEFAULTS
from agentloop.environments.hotpotqa.questions import Question
from agentloop.environments.hotpotqa.retrieval.passages import Passage
from agentloop.environments.hotpotqa.retrieval.retriever import Retriever, RetrieverFailed
from agentloop.environments.hotpotqa.scripted.view import words_of
from agentloop.policies.scripted import words_and_marks

PLACES = ("Aldor", "Brenik", "Corvale", "Dunmarsh", "Eskelund", "Farrowby", "Glimmen", "Hartholm")
RIVERS = ("Ystra", "Quell", "Oban", "Murn", "Tavel", "Lisk", "Nemmer", "Wend")


def paragraphs() -> list[tuple[str, list[str]]]:
    """(title, sentences): a town, its river, and one beside the point for each of eight places."""
    found: list[tuple[str, list[str]]] = []
    for i, (place, river) in enumerate(zip(PLACES, RIVERS, strict=True)):
        found.append((place, [f"{place} is a town of the north.", f"It stands on the river {river}."]))
        found.append((f"{river} (river)", [f"The {river} is a river.", f"It ends in the sea of {i}{i}{i}."]))
        found.append((f"{place} railway station", [f"The station of {place} was opened late."]))
    return found


def questions() -> list[Question]:
    """In which sea does the river of a town end? Two steps each."""
    return [
        Question(
            f"q{i}",
            f"In which sea ends the river of the town {place}",
            (f"sea of {i}{i}{i}",),
            "bridge",
            "medium" if i < 4 else "hard",
            "train" if i < 5 else "test",
            (place, f"{river} (river)"),
            (
                (place, f"It stands on the river {river}."),
                (f"{river} (river)", f"It ends in the sea of {i}{i}{i}."),
            ),
        )
        for i, (place, river) in enumerate(zip(PLACES, RIVERS, strict=True))
    ]


def write_folder(folder: Path) -> Path:
    """The same as questions.parquet and corpus.parquet."""
    rows = [
        {
            "id": q.question_id,
            "question": q.text,
            "answers": list(q.golds),
            "type": q.type,
            "level": q.level,
            "gold_titles": list(q.gold_titles),
            "supporting_facts": [{"title": title, "sent_id": 1} for title in q.gold_titles],
            "split": q.split,
        }
        for q in questions()
    ]
    corpus = [
        {
            "doc_id": i,
            "title": title,
            "text": " ".join(sentences),
            "sent_starts": [0, *(len(" ".join(sentences[:n])) + 1 for n in range(1, len(sentences)))],
        }
        for i, (title, sentences) in enumerate(paragraphs())
    ]
    (folder / "hotpotqa").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "hotpotqa" / "questions.parquet")
    pq.write_table(pa.Table.from_pylist(corpus), folder / "hotpotqa" / "corpus.parquet")
    return folder


PASSAGES = [Passage(str(i), title, " ".join(parts)) for i, (title, parts) in enumerate(paragraphs())]


async def by_words(query: str, k: int) -> Sequence[Passage]:
    """The passages that share most words with the query, those of the title twice; `broken` breaks it."""
    if query == "broken":
        raise RetrieverFailed("no server at all")
    words = set(words_of(query))
    shared = [
        (2 * len(words & set(words_of(p.title))) + len(words & set(words_of(p.text))), p) for p in PASSAGES
    ]
    return [p for n, p in sorted(shared, key=lambda pair: (-pair[0], int(pair[1].doc_id))) if n][:k]


def world(*, retriever: Retriever | None = None, workers: int = 4, **rules: object) -> HotpotQA:
    """The benchmark without any file."""
    format = str(rules.get("format", "tags"))
    given = {
        "format": format,
        "turns": 5,
        "k": 3,
        "passage_tokens": 300,
        "ends": words_and_marks,
        "prompts": DEFAULTS[format],
        "scoring": "exact",
        "retriever": retriever or Retriever("by words", by_words),
    } | rules
    return HotpotQA(
        Catalogue(questions(), SCALED),
        Rules(**given),
        version="hotpotqa test",
        workers=workers,  # type: ignore[arg-type]
    )
