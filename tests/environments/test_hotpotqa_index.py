"""The embedded index against BM25's formula; what is stored, and what real questions find."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_bm25 import best, bm25

from agentloop.environments.cache import KILLED_S, cache_folder, made_once
from agentloop.environments.hotpotqa.retrieval.index import (
    Bm25,
    build_bm25,
    load_bm25,
    open_bm25,
)
from agentloop.environments.hotpotqa.retrieval.passages import (
    Passage,
    join_contents,
    read_passages,
    split_contents,
)
from agentloop.environments.hotpotqa.retrieval.topk import best_documents
from occupancy.record.errors import DataError, InputError

TEXTS = [
    ("Rivers", "The running rivers run to the sea."),
    ("Sea", "A sea is a sea is a sea."),
    ("River", "One river runs."),
    ("Twin", "same words here"),
    ("Twin", "same words here"),
    ("Hill", "Nothing of it."),
]


def jsonl(file: Path, texts: Sequence[tuple[str, str]]) -> Path:
    rows = [{"id": str(i), "contents": f'"{title}"\n{text}'} for i, (title, text) in enumerate(texts)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bm25:
    folder = tmp_path_factory.mktemp("index")
    return open_bm25([jsonl(folder / "wiki.jsonl", TEXTS)], cache=folder / "cache")


@pytest.mark.parametrize("query", ["river", "running to the sea", "same words", "sea sea river", "Hill twin"])
def test_scores_are_those_of_the_formula(small: Bm25, query: str) -> None:
    documents = [small.words(f"{title}\n{text}") for title, text in TEXTS]
    scores = bm25(small.words(query), documents)
    found = small.find(query, 10)
    assert [int(p.doc_id) for p in found] == best(scores, 10)
    np.testing.assert_allclose(
        [p.score for p in found], sorted(filter(None, scores), reverse=True), rtol=1e-5
    )


def test_words_are_stems_without_stop_words_and_single_letters(small: Bm25) -> None:
    assert small.words("The Running, of Rivers' 3rd a I x1 \u00d6konomie!") == [
        "run",
        "river",
        "3rd",
        "x1",
        "\u00f6konomi",
    ]
    assert small.words("it is") == small.words("") == []
    assert small.words("a1 b2 c-d e_f") == ["a1", "b2", "e_f"]


def test_equal_scores_come_in_the_order_of_the_documents(small: Bm25) -> None:
    assert [p.doc_id for p in small.find("same words", 2)] == ["3", "4"]
    assert [p.doc_id for p in small.find("same words", 1)] == ["3"]


def test_no_shared_word_is_no_hit_and_k_is_clamped(small: Bm25) -> None:
    for query in ("", "the of is", "xylophone", "!?"):
        assert small.find(query, 3) == []
    assert len(small.find("sea river twin hill", 1000)) == 6
    with pytest.raises(InputError, match="k=0"):
        small.find("sea", 0)


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), max_size=5),
    st.integers(1, 12),
)
def test_selection_is_a_stable_sort(documents: list[list[int]], query: list[int], k: int) -> None:
    """Scores that are small whole numbers, so that many are equal."""
    postings = [
        [(d, words.count(token)) for d, words in enumerate(documents) if token in words] for token in range(6)
    ]
    indptr = np.cumsum([0, *map(len, postings)])
    flat = [pair for part in postings for pair in part]
    scores = [float(sum(words.count(token) for token in query)) for words in documents]
    found, values = best_documents(
        np.array([v for _, v in flat], np.float32),
        np.array([d for d, _ in flat], np.int32),
        indptr.astype(np.int64),
        np.array(query, np.int64),
        len(documents),
        min(k, len(documents)),
    )
    assert found.tolist() == best(scores, k)
    assert values.tolist() == [scores[d] for d in found]


def test_a_stored_index_is_opened_and_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = jsonl(tmp_path / "wiki.jsonl", TEXTS)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    first = open_bm25([file], cache=tmp_path)
    told = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in told] == ["index: read", "index: scored", "index: stored"]
    again = open_bm25([file], cache=tmp_path)
    assert not capsys.readouterr().err, "built again"
    assert again.find("river", 3) == first.find("river", 3)
    assert again.name == first.name
    assert isinstance(again.scores[0], np.memmap)


def test_another_corpus_has_another_index_and_name(tmp_path: Path) -> None:
    one = open_bm25([jsonl(tmp_path / "one.jsonl", TEXTS)], cache=tmp_path)
    two = open_bm25([jsonl(tmp_path / "two.jsonl", TEXTS[:3])], cache=tmp_path)
    both = open_bm25([tmp_path / "one.jsonl", tmp_path / "two.jsonl"], cache=tmp_path)
    assert len({one.name, two.name, both.name}) == 3
    assert len(both.corpus) == 9


def test_a_damaged_index_says_what_to_do(tmp_path: Path) -> None:
    build_bm25([jsonl(tmp_path / "wiki.jsonl", TEXTS)], tmp_path)
    (tmp_path / "indptr.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="delete it, and it is built again"):
        load_bm25(tmp_path)
    for text, told in (
        ("{}", "name=None"),
        ("[]", "JSON object"),
        ("{", "cannot be read"),
        ("[" * 10**5, "deep"),
    ):
        (tmp_path / "index.json").write_text(text)
        with pytest.raises(DataError, match=told):
            load_bm25(tmp_path)


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Anarchism"\nAnarchism is', "Anarchism", "Anarchism is"),
        ("Plain\na\nb", "Plain", "a\nb"),
        ("only a title", "only a title", ""),
        ('"', '"', ""),
        ('"Half\nx', '"Half', "x"),
    ],
)
def test_contents_are_a_title_line_and_a_text(contents: str, title: str, text: str) -> None:
    assert split_contents(contents) == (title, text)


@given(st.text(), st.text(st.characters(exclude_characters="\n")))
def test_contents_are_read_back(text: str, title: str) -> None:
    assert split_contents(join_contents(Passage("0", title, text))) == (title, text)


@pytest.mark.parametrize("line", ["{}", "[]", "no json", '{"id": 1, "contents": 5}'])
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"contents": "a"}\n' + line + "\n", "utf-8")
    with pytest.raises(DataError, match="line 2"):
        list(read_passages(file))


def test_a_damaged_corpus_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    pq.write_table(pa.table({"doc_id": ["1"], "title": ["t"]}), tmp_path / "lacks.parquet")
    (tmp_path / "latin.jsonl").write_bytes('{"contents": "é"}'.encode("latin-1"))
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    for name, told in (
        ("torn.parquet", "cannot be read"),
        ("lacks.parquet", "has no column text"),
        ("latin.jsonl", "cannot be read"),
        ("deep.jsonl", "nested too deep"),
    ):
        with pytest.raises(DataError, match=f"{name} .*{told}|{name} {told}"):
            list(read_passages(tmp_path / name))


def test_an_unknown_or_missing_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match=r"expected a \.parquet"):
        open_bm25([tmp_path / "a.txt"], cache=tmp_path)
    with pytest.raises(InputError, match="no such file"):
        open_bm25([tmp_path / "gone.parquet"], cache=tmp_path)
    with pytest.raises(DataError, match="no passage"):
        open_bm25([tmp_path / "empty.jsonl"], cache=tmp_path)


def test_recall_of_gold_titles_on_the_real_paragraphs(data_dir: Path, real_index: Bm25) -> None:
    rows = pq.read_table(
        data_dir / "hotpotqa" / "questions.parquet", columns=["question", "gold_titles"]
    ).to_pylist()
    found = [{p.title for p in real_index.find(row["question"], 5)} for row in rows]
    share = [len(titles & set(row["gold_titles"])) / 2 for titles, row in zip(found, rows, strict=True)]
    assert len(real_index.corpus) == 34_476
    assert np.mean(share) >= 0.73


@pytest.mark.parametrize("texts", [["", '""\n'], ['"The"\nthe of and', '"A"\na an'], ["! ?", "x y"]])
def test_a_corpus_without_a_word_to_search_by_is_refused(tmp_path: Path, texts: list[str]) -> None:
    file = tmp_path / "wiki.jsonl"
    file.write_text("".join(json.dumps({"id": str(i), "contents": t}) + "\n" for i, t in enumerate(texts)))
    with pytest.raises(DataError, match="no word to search by in 2 passages"):
        open_bm25([file], cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_cache_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    with pytest.raises(InputError, match=r"/proc/nothing/fewsteps/hotpotqa cannot be made .*XDG_CACHE_HOME"):
        cache_folder("hotpotqa")


def test_drafts_that_kills_left_in_a_cache_are_removed_when_they_are_old(tmp_path: Path) -> None:
    old, young = tmp_path / ".draft-old", tmp_path / ".draft-young"
    for left in (old, young):
        (left / "made").mkdir(parents=True)
    os.utime(old, (0, time.time() - 2 * KILLED_S))
    moved = tmp_path / ".draft-moved"
    moved.symlink_to(tmp_path / "gone")  # as one that another process moves while this one looks
    made_once(tmp_path / "index", lambda folder: None)
    assert sorted(tmp_path.iterdir()) == [moved, young, tmp_path / "index"]
