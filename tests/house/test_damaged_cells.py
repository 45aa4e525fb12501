"""Cells of a run that hold JSON of another kind: every command that reads them ends in one line."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_runs import run_of

from analysis.cli import main
from occupancy.record.errors import DataError
from occupancy.record.recipe import Recipe, preset
from occupancy.record.rows import evaluation_row
from occupancy.runs import create_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "run"
    recipe = preset("op-short", K="inf", n=2, T_max=12)
    run_of(folder, recipe, tasks="2", pilot=True, handback=(0, 1), replicates=1, demo_tasks=1)
    return folder


def spoiled(run: Path, copy: Path, cell: str, value: Any) -> Path:
    """A copy of a run whose every cell of a column, table.column, has one value."""
    shutil.copytree(run, copy)
    table, _, column = cell.partition(".")
    for file in copy.rglob(f"{table}.parquet"):
        rows = pq.read_table(file, partitioning=None)
        field = rows.schema.field(column).with_nullable(value is None or rows.schema.field(column).nullable)
        cells = pa.array([value] * len(rows), field.type)
        pq.write_table(rows.set_column(rows.column_names.index(column), field, cells), file)
    return copy


@pytest.mark.parametrize("value", ["[true]", '{"all": 1}', "3", "["])
@pytest.mark.parametrize("cell", ["traces.messages", "episodes.prompt", "episodes.phi", "proposals.psi"])
def test_a_cell_with_another_value_is_one_line_of_every_command(
    run: Path, cell: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    copy = spoiled(run, tmp_path / "run", cell, value)
    like = ["collect", "--env", "toy_world:Corridors", "--student", "toy_world:drunk", "--tasks", "2"]
    like += ["--teacher", "toy_world:expert", "--recipe", "op-critical", "--dry-run", "--like", str(copy)]
    for command in (
        ("view", str(copy), "--out", str(out)),
        ("export", str(copy), "--format", "verl", "--out", str(out)),
        ("export", str(copy), "--format", "atif", "--out", str(out)),
        ("publish", str(copy), "--license", "mit", "--out", str(out)),
        ("cut", str(copy), "--recipe", "op-short", "--K", "2", "--budget", "20", "--out", str(out)),
        (*like, "--set", "T_max=12", "--out", str(out)),
    ):
        code = main([*command])
        told = capsys.readouterr().err
        assert code in (0, 2)
        if code:
            assert told.count("\n") == 1, told
            assert not out.exists()
        elif out.is_dir():
            shutil.rmtree(out)
        else:
            out.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("episodes.R", 7.0),
        ("episodes.R", math.nan),
        ("proposals.probability", math.nan),
        ("turns.output_tokens", -5),
        ("turns.author", None),
    ],
)
def test_a_number_outside_its_bounds_is_one_line_of_every_command(
    run: Path, cell: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, out = str(spoiled(run, tmp_path / "run", cell, value)), tmp_path / "out"
    table, _, column = cell.partition(".")
    commands = {
        "view": ["view", copy, "--out", str(out)],
        "publish": ["publish", copy, "--license", "mit", "--out", str(out)],
        "plan": ["plan", copy, "--budget", "9000"],
    }
    for name in ("view",) if table == "proposals" else commands:
        assert main(commands[name]) == 2
        told = capsys.readouterr().err
        assert f"{table}.parquet has" in told
        assert column in told
        assert told.count("\n") == 1
        assert not out.exists()


@pytest.mark.parametrize("score", [math.nan, 7.0, -1.0])
def test_a_score_that_is_none_is_not_counted(
    score: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name in ("a", "b"):
        evaluation = Recipe("evaluation", teacher="none", T_max=5)
        made = create_run(tmp_path / name, evaluation, {"kind": "evaluation", "environment": "toy 1"})
        attempts = [evaluation_row("s", f"q{i}", attempt=0, score=1.0, status="finished") for i in (0, 1)]
        made.commit({"evaluations": attempts})
        folders.append(str(made.folder))
    assert main(["compare", *folders]) == 0
    assert main(["publish", folders[0], "--license", "mit", "--out", str(tmp_path / "out")]) == 2
    assert "holds no episode" in capsys.readouterr().err
    bad = spoiled(Path(folders[1]), tmp_path / "bad", "evaluations.score", score)
    assert main(["compare", folders[0], str(bad)]) == 2
    assert f"has score={score} (2 such in all): expected a number from 0 to 1" in capsys.readouterr().err
    with pytest.raises(DataError, match="a row of evaluations has score="):
        made.commit({"evaluations": [attempts[0] | {"score": score}]})
