"""What bad luck does to a study's files and config: one line each, and no prediction is made twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.cli import main
from analysis.study.accounts import jobs_of, log_job, machines_of
from occupancy.runs import only_writer, open_run

DEEP = "[" * 200_000


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "study", ignore=shutil.ignore_patterns("work"))


def refused(capsys: pytest.CaptureFixture[str], named: str, *given: object) -> None:
    capsys.readouterr()
    assert main(["study", *map(str, given)]) == 2
    out = capsys.readouterr()
    assert (out.out, named in out.err.splitlines()[-1]) == ("", True), out.err


@pytest.mark.parametrize(
    "change",
    [
        ('name = "tiny"', 'name = "../tiny"', "name="),
        ('name = "tiny"', f"name = {'9' * 5000}", "integer string"),
        ('more = "train:10-40"', f'more = "train:10-{"9" * 5000}"', "more"),
        ("budgets = [6000, 12000]", "budgets = [nan]", "budgets="),
        ("budgets = [6000, 12000]", 'budgets = ["x"]', "budgets="),
        ('rivals = ["op-short K=3 r=0.5"]', "rivals = [[1]]", "rivals="),
        ("r = 1.0 }]", 'r = "x" }]', "arm's r="),
        ("r = 1.0 }]", "r = [[]] }]", "arm's r="),
        ("[equipment]\nworld =", "equipment = 5\n[unused]\nworld =", "unused"),
        ("[equipment]\n", "[equipment]\nper_gpu = {}\n", "per_gpu="),
        ("fractions = [0.25]", 'fractions = ["x"]', "fractions="),
    ],
)
def test_an_entry_of_another_kind_is_one_line(
    change: tuple[str, str, str], laboratory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, named = change
    text = laboratory.read_text("utf-8")
    assert old in text
    file = tmp_path / "bad.toml"
    file.write_text(text.replace(old, new), "utf-8")
    refused(
        capsys, named if named != "more" else "expected split", file, "--out", tmp_path / "out", "--dry-run"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", ["equipment = 5", "training = 5", "sweep = 5"])
def test_a_value_in_place_of_a_table_is_one_line(
    table: str, laboratory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = table.partition(" ")[0]
    parts = [part for part in laboratory.read_text("utf-8").split("\n[") if not part.startswith(f"{name}]")]
    file = tmp_path / "bad.toml"
    file.write_text(f"{table}\n" + "\n[".join(parts), "utf-8")
    refused(capsys, f"{name}=5: expected a table", file, "--dry-run")


@pytest.mark.parametrize(
    "change",
    [
        ("lr = 2e-4", 'lr = "x"', "lr='x': expected a number"),
        ("lr = 2e-4", "rate = 1", "unknown training settings"),
        ("lr = 2e-4", "lr = 2026-11-29", "has the date 2026-11-29"),
        ("lr = 2e-4", "seed = 3", "[training] has a seed"),
        ("workers = 24", "more = 1", "unknown entry 'more'"),
        ("workers = 24", 'workers = "many"', "workers='many'"),
        ('preset = "alfworld"', 'preset = "none"', "no preset 'none'"),
        ("max_tokens = 40", 'max_tokens = "x"', "max_tokens='x'"),
        ('grammar = "2.1.1"', "grammar = 12:00:00", "has the date 12:00:00"),
    ],
)
def test_the_products_own_equipment_is_read_before_anything_is_bought(
    change: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, named = change
    shipped = Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld.toml"
    file = tmp_path / "bad.toml"
    file.write_text(shipped.read_text("utf-8").replace(old, new, 1), "utf-8")
    refused(capsys, named, file, "--out", tmp_path / "out", "--dry-run")


def test_a_lost_registration_is_not_made_again_after_the_sweep(
    laboratory: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / "registration.json").unlink()
    refused(capsys, "restore it; a prediction is made before", laboratory, "--out", study)
    assert not (study / "registration.json").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("registration.json.sha256", ""),
        ("registration.json.sha256", None),
        ("plan.json", None),
        ("registration.json", DEEP),
        ("study.toml", DEEP),
        ("cells/pure-bc-12000-s0.json", "[]"),
        ("cells/pure-bc-12000-s0.json", '{"C_i": NaN, "C_tr": 1}'),
        ("cells/pure-bc-12000-s0.json", None),
    ],
)
def test_a_damaged_or_lost_file_is_one_line(
    name: str, text: str | None, laboratory: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / name).unlink() if text is None else (study / name).write_text(text, "utf-8")
    refused(capsys, str(study), laboratory, "--out", study)


@pytest.mark.parametrize("keep", [0, 1])
def test_a_cell_whose_attempts_were_lost_is_not_judged_by_the_others(
    keep: int, laboratory: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = open_run(study / "cells" / "pure-bc-12000-s0")
    rows = cell.read("evaluations").to_pylist()
    shutil.rmtree(cell.folder / "parts")
    if keep:
        cell.commit({"evaluations": rows[keep:]})
    refused(capsys, "restore its parts/", laboratory, "--out", study)


def test_damaged_lines_of_the_log_are_left_out(laboratory: Path, study: Path) -> None:
    log, before = study / "jobs.jsonl", len(jobs_of(study))
    bad = [
        DEEP,
        "5",
        "null",
        '{"seconds": 1}',
        '{"stage": "sweep", "job": "x", "seconds": NaN}',
        '{"machine": 5}',
    ]
    with log.open("ab") as file:
        file.write("\n".join(bad).encode() + b'\n\xff\n{"stage": "sw')
    assert (len(jobs_of(study)), len(machines_of(study))) == (before, 1)
    log_job(study, "sweep", "after a line that a kill has cut", 1.0)
    assert len(jobs_of(study)) == before + 1
    assert main(["study", str(laboratory), "--out", str(study)]) == 0
    log.write_text("", "utf-8")
    assert main(["study", str(laboratory), "--out", str(study)]) == 0


def test_pieces_of_collections_that_are_whole_do_not_stay(laboratory: Path, study: Path) -> None:
    shutil.copytree(study / "collection", study / "pieces" / "collection-0")  # as a kill leaves it
    shutil.rmtree(study / "cells" / "pi_1")
    assert main(["study", str(laboratory), "--out", str(study), "--stop-after", "sweep"]) == 0
    assert not (study / "pieces").exists()


def test_options_and_places_are_checked_first(
    laboratory: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    assert main(["study", str(laboratory), "--out", str(tmp_path), "--dry-run"]) == 0
    assert not (tmp_path / "study.toml").exists(), "a dry run writes nothing"
    refused(capsys, "--out", laboratory, "--out", "", "--dry-run")
    refused(capsys, "--out", laboratory, "--out", tmp_path / "file", "--dry-run")
    refused(capsys, "--stop-after", laboratory, "--stop-after", "x", "--dry-run")
    refused(capsys, "--base", laboratory, "--base", "", "--dry-run")
    with only_writer(study):
        assert main(["study", str(laboratory), "--out", str(study)]) == 1
    assert "another process" in capsys.readouterr().err
