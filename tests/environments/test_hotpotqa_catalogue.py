"""Task specs, and the two forms of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hotpotqa_world import questions, write_folder

from agentloop.environments.hotpotqa.catalogue import OFFICIAL, SCALED, Catalogue, Study, open_catalogue
from agentloop.environments.hotpotqa.questions import Question, find_folder, read_questions
from occupancy.record.errors import DataError, InputError


def catalogue() -> Catalogue:
    return Catalogue(questions(), Study(train=3, held_out=1))


def ids(spec: str, *, seed: int = 0) -> list[str]:
    return [task.task_id for task in catalogue().tasks(spec, seed=seed)]


def test_splits_and_levels() -> None:
    assert ids("test") == ["test/q5", "test/q6", "test/q7"]
    assert ids("train/medium") == [f"train/q{i}" for i in range(4)]
    assert ids("train/hard") == ["train/q4"]
    task = catalogue().tasks("train/hard")[0]
    assert (task.cluster_id, task.split, task.kind) == ("q4", "train", "hard-bridge")


def test_parts_of_a_draw_are_disjoint_and_fixed_by_the_seed() -> None:
    assert set(ids("train:2")) | set(ids("train:2-5")) == set(ids("train"))
    assert ids("train:2") == ids("train:0-2")
    assert len({tuple(ids("train:3", seed=seed)) for seed in range(20)}) > 1


def test_the_papers_parts_are_disjoint_and_the_same_for_every_seed() -> None:
    train, held_out = ids("paper-train", seed=1), ids("paper-held-out", seed=2)
    assert sorted(train + held_out) == ids("train/medium")
    assert (len(train), train) == (3, ids("paper-train", seed=7))
    assert ids("paper-test") == ids("test")


def test_files_name_tasks(tmp_path: Path) -> None:
    file = tmp_path / "tasks.txt"
    file.write_text("test/q6\n\ntrain/q0\n")
    assert ids(f"@{file}") == ["test/q6", "train/q0"]
    for text, said in (("", "is empty"), ("test/q6\ntest/q6", "test/q6 more than once"), ("q6", "'q6'")):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            ids(f"@{file}")


@pytest.mark.parametrize(
    "spec", ["", "valid", "train/soft", "train:0", "train:6", "train:3-2", "paper-x", "@gone"]
)
def test_specs_that_name_nothing_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="expected"):
        ids(spec)


def test_too_few_questions_for_the_paper_are_refused() -> None:
    with pytest.raises(InputError, match=r"840 \+ 100"):
        Catalogue(questions(), SCALED).tasks("paper-train")


def test_packed_files_are_read_with_their_supporting_sentences(tmp_path: Path) -> None:
    assert read_questions(write_folder(tmp_path) / "hotpotqa") == questions()


def test_official_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {
            "_id": q.question_id,
            "question": f" {q.text} ",
            "answer": q.golds[0],
            "type": q.type,
            "level": q.level,
            "supporting_facts": [[title, 0] for title, _ in q.facts] + [[q.facts[0][0], 99]],
            "context": [[title, [f" {sentence}"]] for title, sentence in q.facts],
        }
        for q in questions()
    ]
    (tmp_path / "hotpot_train_v1.1.json").write_text(json.dumps(rows[:5]))
    monkeypatch.setenv("FEWSTEPS_DATA", str(tmp_path))
    with pytest.raises(InputError, match="hotpot_dev_fullwiki_v1"):
        read_questions(find_folder())
    (tmp_path / "hotpot_dev_fullwiki_v1.json").write_text(json.dumps(rows[5:]))
    found = open_catalogue(find_folder())
    assert found.study == OFFICIAL
    by_id = {q.question_id: q for q in found.questions}
    for q in questions():
        split = by_id[q.question_id].split
        assert split == "train" if q.split == "train" else split in ("dev", "test")
        expected = Question(q.question_id, q.text, q.golds, q.type, q.level, split, q.gold_titles, q.facts)
        assert by_id[q.question_id] == expected
    (tmp_path / "hotpot_dev_fullwiki_v1.json").write_text('[{"_id": "x"}]')
    with pytest.raises(DataError, match="KeyError"):
        read_questions(tmp_path)
    (tmp_path / "hotpot_dev_fullwiki_v1.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deep"):
        read_questions(tmp_path)
    (tmp_path / "questions.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(DataError, match="cannot be read"):
        read_questions(tmp_path)


def test_a_missing_folder_says_where_the_data_are_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEWSTEPS_DATA", str(tmp_path))
    with pytest.raises(InputError, match="To get them"):
        find_folder()
    monkeypatch.delenv("FEWSTEPS_DATA")
    with pytest.raises(InputError, match="FEWSTEPS_DATA is not set"):
        find_folder()


def test_the_real_splits(data_dir: Path) -> None:
    real = open_catalogue(data_dir / "hotpotqa")
    sizes = {spec: len(real.tasks(spec)) for spec in ("train", "dev", "test", "train/medium", "dev/hard")}
    assert sizes == {"train": 1607, "dev": 361, "test": 1437, "train/medium": 940, "dev/hard": 361}
    train, held_out = real.tasks("paper-train"), real.tasks("paper-held-out")
    assert (len(train), len(held_out), len({t.task_id for t in (*train, *held_out)})) == (840, 100, 940)
    assert sum(not question.facts for question in real.questions) < 1000
