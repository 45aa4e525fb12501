"""A run folder that was changed, half made or belongs to other tasks is refused in words, or mended."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from toy_runs import attempts, rows, run_of
from toy_world import Corridors, drunk

from agentloop.ledger.report import account_of
from agentloop.ledger.store import Ledger
from agentloop.run.evaluate import Evaluation, evaluate
from agentloop.run.folder import open_or_create
from agentloop.run.summary import summarise
from agentloop.types import Task
from occupancy.record.errors import DataError, RecipeError, RunError
from occupancy.record.recipe import preset
from occupancy.record.rows import evaluation_row
from occupancy.record.tables import SCHEMA_VERSION, TABLES, schema
from occupancy.runs import MOST_TOLD, Run, create_run, only_writer, open_run
from occupancy.streaming.run_turns import open_run_turns

RECIPE = preset("op-short", K=3, n=1, T_max=12)


class Renamed(Corridors):
    """As many tasks under the same spec, and one of them is another."""

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        *same, _ = super().tasks(spec, seed=seed)
        return [*same, Task("corridor/99", "corridor/99", "train")]


def test_other_tasks_under_the_same_spec_are_no_resume(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", RECIPE)
    with pytest.raises(DataError, match="task_hash"):
        run_of(tmp_path / "run", RECIPE, worlds=Renamed())
    info = json.loads((run.folder / "run.json").read_text("utf-8"))
    del info["task_hash"]
    (run.folder / "run.json").write_text(json.dumps(info), "utf-8")
    run_of(tmp_path / "run", RECIPE)  # a run from before there was a hash goes on


def test_an_evaluation_of_other_tasks_is_no_resume(tmp_path: Path) -> None:
    settings = Evaluation("drunk", "3", 1)
    asyncio.run(evaluate(tmp_path, settings, environments=Corridors(), policy=drunk))
    with pytest.raises(DataError, match="task_hash"):
        asyncio.run(evaluate(tmp_path, settings, environments=Renamed(), policy=drunk))


def collect_again(run: Run) -> object:
    return run_of(run.folder, RECIPE)


@pytest.mark.parametrize("empty", [False, True])
def test_a_lost_ledger_is_refused_and_never_counted_as_nothing(tmp_path: Path, empty: bool) -> None:
    run = run_of(tmp_path / "run", RECIPE)
    (run.folder / "ledger.sqlite").unlink()
    if empty:
        Ledger(run.folder / "ledger.sqlite").close()
    for use in (summarise, collect_again, account_of)[: 3 if empty else 2]:
        with pytest.raises(DataError, match=r"knows 0 teacher turns, .* restore the ledger"):
            use(run)


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", RECIPE)
    (run.folder / "ledger.sqlite").write_text("garbage" * 1000)
    for use in (summarise, account_of, collect_again):
        with pytest.raises(RunError, match=r"ledger\.sqlite cannot be opened as a ledger .*not a database"):
            use(run)


def test_a_ledger_is_read_where_nothing_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "run", RECIPE)
    summary = summarise(run)
    for file in run.folder.glob("ledger.sqlite-*"):
        file.unlink()  # what readers before this one left
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    for left in ("ledger.sqlite", "ledger.sqlite-wal"):
        (run.folder / left).touch()  # the second is empty, as a copy without the third file has it
        assert summarise(run) == summary
        assert attempts(run)
    assert not (run.folder / "ledger.sqlite-shm").exists()
    (run.folder / "ledger.sqlite").write_text("garbage" * 1000)
    with pytest.raises(RunError, match="copy the run to a folder that can be written"):
        summarise(run)


def test_a_kill_before_run_json_leaves_a_folder_that_can_be_started(tmp_path: Path) -> None:
    for name in ("recipe.toml", ".recipe.toml.draft", ".run.json.draft"):
        (tmp_path / name).write_text("K = ", "utf-8")
    assert rows(run_of(tmp_path, RECIPE), "proposals")
    (tmp_path / "run.json").unlink()
    with pytest.raises(DataError, match="is not empty and holds no run"):
        create_run(tmp_path, RECIPE, {})


def test_a_broken_folder_says_which_file(tmp_path: Path) -> None:
    open_or_create(tmp_path, RECIPE, {}, made_with={})
    (tmp_path / "recipe.toml").unlink()
    with pytest.raises(DataError, match=r"recipe\.toml cannot be read"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text("[1]", "utf-8")
    with pytest.raises(DataError, match=r"run\.json is .*: expected a JSON object"):
        open_run(tmp_path)


def test_a_recipe_that_cannot_be_followed_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="T_max=13, but an episode of toy has at most 12 turns"):
        run_of(tmp_path / "run", preset("op-short", K=1, T_max=13))
    assert not (tmp_path / "run").exists()


def test_an_episode_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Two runs in one folder, or a copied part: all of it would count twice."""
    run = run_of(tmp_path / "run", RECIPE)
    shutil.copytree(run.folder / "parts" / "000000", run.folder / "parts" / "000077")
    for use in (summarise, lambda run: run_of(run.folder, RECIPE)):
        with pytest.raises(DataError, match="000077 is a copy of part 000000"):
            use(run)
    unlisted(run)
    with pytest.raises(DataError, match=r"holds episode corridor/\S+ 2 times: a part was copied"):
        open_run(run.folder).read("episodes")
    settings = Evaluation("drunk", "3", 1)
    again = asyncio.run(evaluate(tmp_path / "e", settings, environments=Corridors(), policy=drunk))
    shutil.copytree(again.folder / "parts" / "000000", again.folder / "parts" / "000001")
    with pytest.raises(DataError, match="000001 is a copy of part 000000"):
        asyncio.run(evaluate(tmp_path / "e", settings, environments=Corridors(), policy=drunk))


def unlisted(run: Run) -> None:
    """Make the run one of version 2, whose parts list nothing."""
    for file in run.folder.glob("parts/*/part.json"):
        file.unlink()
    info = json.loads((run.folder / "run.json").read_text("utf-8"))
    (run.folder / "run.json").write_text(json.dumps(info | {"schema_version": 2}), "utf-8")


def test_every_reader_refuses_a_part_that_is_not_whole(tmp_path: Path) -> None:
    """The check is in `Run.files`, which export, traces, plan and occupancy read through."""
    folder = run_of(tmp_path / "run", RECIPE).folder
    part = folder / "parts" / "000000"
    readers = (
        lambda: open_run(folder).read("turns"),
        lambda: open_run_turns(folder),
        lambda: summarise(open_run(folder)),
    )

    def refused(match: str) -> None:
        for read in readers:
            with pytest.raises(DataError, match=match):
                read()

    turns = pq.read_table(part / "turns.parquet", partitioning=None)
    pq.write_table(turns.slice(1), part / "turns.parquet")
    with pytest.raises(DataError, match=rf"has {len(turns) - 1} rows, but part.json says {len(turns)}"):
        open_run_turns(folder)
    later = {"fewsteps": str(SCHEMA_VERSION + 1)}
    pq.write_table(turns.replace_schema_metadata(later), part / "turns.parquet")
    with pytest.raises(DataError, match=f"schema version {SCHEMA_VERSION + 1}: this fewsteps reads"):
        open_run_turns(folder)
    (part / "turns.parquet").unlink()
    refused(r"000000 has lost turns\.parquet, which part\.json lists")
    listed = json.loads((part / "part.json").read_text("utf-8"))
    (part / "part.json").write_text(json.dumps(listed | {"rows": {"turns": -1}}), "utf-8")
    refused(r"part\.json has turns=-1: expected a whole number of at least 0")
    (part / "part.json").unlink()
    refused(r"part\.json cannot be read")


def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine", "utf-8")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".run.json.draft").symlink_to(target)
    run = create_run(folder, RECIPE, {})
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(target)
    with pytest.raises(DataError, match="lock is a symbolic link"), only_writer(folder):
        pass
    (tmp_path / "elsewhere").mkdir()
    (folder / "parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="parts is a symbolic link"):
        run.commit({"evaluations": [evaluation_row("t", "q", attempt=0, score=1.0, status="finished")]})
    assert target.read_text("utf-8") == "mine"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_ledger_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "other.sqlite"
    target.write_bytes(b"")
    (tmp_path / "ledger.sqlite").symlink_to(target)
    with pytest.raises(RunError, match="is a symbolic link"):
        Ledger(tmp_path / "ledger.sqlite")
    assert target.read_bytes() == b""


def test_every_table_has_its_schema_also_where_it_has_no_row(tmp_path: Path) -> None:
    """64-bit offsets for texts, and JSON text for what has no fixed form: parts of any kind fit together."""
    run = open_or_create(tmp_path, RECIPE, {}, made_with={})
    for name in TABLES:
        table = run.read(name)
        assert len(table) == 0
        assert table.schema.equals(schema(name))
        assert not [field.name for field in table.schema if str(field.type) in ("string", "null", "binary")]
    run.commit({"proposals": []})
    assert not list(tmp_path.glob("parts/*")), "nothing to write is no part"


def test_a_run_of_the_first_schema_is_read_and_goes_on(tmp_path: Path) -> None:
    """Version 1 had no `traces.row_starts`."""
    run = run_of(tmp_path / "run", RECIPE)
    before = run.read("traces").drop_columns(["row_starts"])
    unlisted(run)
    for file in run.folder.glob("parts/*/*.parquet"):
        table = pq.read_table(file, partitioning=None)
        if file.stem == "traces":
            table = table.drop_columns(["row_starts"])
        pq.write_table(table.replace_schema_metadata({"fewsteps": "1"}), file)
    info = json.loads((run.folder / "run.json").read_text("utf-8"))
    (run.folder / "run.json").write_text(json.dumps(info | {"schema_version": 1}), "utf-8")
    old = open_run(run.folder)
    traces = old.read("traces")
    assert traces.drop_columns(["row_starts"]).equals(before)
    assert traces["row_starts"].null_count == len(traces) > 0
    run_of(run.folder, RECIPE)
    assert open_run(run.folder).read("traces").equals(traces), "new parts beside old ones"


def test_a_run_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", RECIPE)
    info = json.loads((run.folder / "run.json").read_text("utf-8"))
    later = info | {"schema_version": SCHEMA_VERSION + 1}
    (run.folder / "run.json").write_text(json.dumps(later), "utf-8")
    with pytest.raises(DataError, match=f"reads versions 1 to {SCHEMA_VERSION}"):
        open_run(run.folder)


def test_a_run_is_started_once(tmp_path: Path) -> None:
    with only_writer(tmp_path), pytest.raises(RunError, match="is being written by another process"):
        create_run(tmp_path, RECIPE, {})
    assert not (tmp_path / "run.json").exists()
    create_run(tmp_path, RECIPE, {})
    with pytest.raises(DataError, match="holds a run already"):
        create_run(tmp_path, RECIPE, {})


def test_a_commit_does_not_read_or_sync_the_parts_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(tmp_path / "run", RECIPE, {})
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    counts = []
    for attempt in range(4):
        synced.clear()
        run.commit({"evaluations": [evaluation_row("t", "q", attempt=attempt, score=1.0, status="finished")]})
        counts.append(len(synced))
    assert counts == [4] * 4, "the table, the list of tables, the part, and its name among the parts"


def test_a_lost_part_is_told_once_and_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentloop.run.units.COMMIT_MOST", 1)
    monkeypatch.setattr("occupancy.runs._TOLD", told := set[str]())
    whole = run_of(tmp_path / "run", RECIPE)
    before = rows(whole, "episodes")
    copies = [tmp_path / f"copy-{i}" for i in range(5)]
    for copy in copies:
        shutil.copytree(whole.folder, copy)
        for lost in ("000001", "000003")[: 1 + (copy == copies[0])]:
            shutil.rmtree(copy / "parts" / lost)
    assert not capsys.readouterr().err
    for copy in (*copies, *copies):
        open_run(copy)
    first, *others = capsys.readouterr().err.splitlines()
    assert f"{copies[0]} has lost parts 000001 and 1 more: what was recorded there is not counted" in first
    assert f"{copies[1]} has lost part 000001: " in others[0]
    assert len(others) == MOST_TOLD - 1, "at most three lines in all"
    assert len(rows(open_run(copies[0]), "episodes")) < len(before)
    assert rows(run_of(copies[0], RECIPE), "episodes") == before
    told.clear()
    open_run(copies[0])
    assert not capsys.readouterr().err, "nothing is missing any more"
    (copies[1] / "parts" / "000001").mkdir()  # as restored
    assert open_run(copies[1]).lost() == []
