"""Cells of a run that hold JSON of another kind: every command that reads them ends in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_runs import run_of

from analysis.cli import main
from occupancy.record.recipe import preset


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "run"
    recipe = preset("op-short", K="inf", n=2, T_max=12)
    run_of(folder, recipe, tasks="2", pilot=True, handback=(0, 1), replicates=1, demo_tasks=1)
    return folder


@pytest.mark.parametrize("value", ["[true]", '{"all": 1}', "3", "["])
@pytest.mark.parametrize("cell", ["traces.messages", "episodes.prompt", "episodes.phi", "proposals.psi"])
def test_a_cell_with_another_value_is_one_line_of_every_command(
    run: Path, cell: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, out = tmp_path / "run", tmp_path / "out"
    like = ["collect", "--env", "toy_world:Corridors", "--student", "toy_world:drunk", "--tasks", "2"]
    like += ["--teacher", "toy_world:expert", "--recipe", "op-critical", "--dry-run", "--like", str(copy)]
    shutil.copytree(run, copy)
    table, _, column = cell.partition(".")
    for file in copy.rglob(f"{table}.parquet"):
        rows = pq.read_table(file, partitioning=None)
        cells = pa.array([value] * len(rows), rows.schema.field(column).type)
        at = rows.column_names.index(column)
        pq.write_table(rows.set_column(at, rows.schema.field(column), cells), file)
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
