"""Damaged files of every kind: no traceback, no hang, no partial result.

FEWSTEPS_MUTATIONS says how many damages are tried in all (default 2,000). Every family of readers (run
folders, tables of turns, prices, recipes, worlds, imports) has an equal part of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_files import (
    ALPACA,
    ATIF,
    CLAUDE,
    CODEX,
    INSPECT,
    MESSAGES,
    MINI_RESPONSES,
    OPENHANDS,
    OPENHANDS_1,
    ROLLOUT,
    SHAREGPT,
    TAU_2,
    TRAJ,
    VERIFIERS,
    lines,
    write,
)
from mutations import mutated
from toy_runs import run_of

from agentloop.cuts.whole import Whole
from agentloop.ledger.report import account_of
from agentloop.run.plan_file import read_plan
from agentloop.run.summary import summarise
from analysis.cli import main
from analysis.plan.read import read_pilot
from occupancy.importers import formats_of, read_episodes
from occupancy.importers.episodes import ImportSettings
from occupancy.importers.rows import rows_of
from occupancy.record.columns import Columns
from occupancy.record.errors import FewstepsError
from occupancy.record.prices import read_prices
from occupancy.record.reading import reading
from occupancy.record.recipe import Recipe, preset
from occupancy.record.tables import TABLES
from occupancy.runs import Run, create_run, open_run, table_of
from occupancy.streaming.estimate import estimate_stream
from occupancy.streaming.run_turns import RUN_COLUMNS, open_run_turns
from occupancy.streaming.scan import scan_table
from occupancy.streaming.stream import open_turns
from simulate.worlds.worldfile import load_world

MUTATIONS = int(os.environ.get("FEWSTEPS_MUTATIONS", "2000"))
FAMILIES = 6
LONGEST_S = 10
WORLD = """
name = "two turns"
horizon = 5
start = [1.0, 0.0]
contexts = [0, 1]
tokens = [100, 80]
teacher = [[1.0, 0.0], [1.0, 0.0]]
student = [[0.6, 0.4], [0.3, 0.7]]
transitions = [[0, 0, "success", 1.0], [0, 1, 1, 1.0], [1, 0, 0, 1.0], [1, 1, "failure", 1.0]]
"""
FAMILY = """
name = "mine"
kind = "recovery"
[knobs]
repairs = 3
[ranges]
tracks = [10, 20]
"""
PRICES = """
currency = "USD"
context = 0.01
[models."openai:gpt-4o@*"]
input = 2.50
cached_input = 1.25
output = 10.00
"""
PLAN = """
format = 1
pilot = "pilot"
budget = 300000
axis = "inference"
pilot_charged = true
pilot_traces = "all"
r_tokens = 0.5
environment = "toy 1"
student = "drunk"
teacher = "expert"
tasks = "train"
pool = 100
T_max = 12
success_at = 1.0
[[parts]]
name = "continuations"
recipe = "op-short"
K = 3
n = 2
tasks = 40
budget = 1000.0
"""
SETTINGS = ImportSettings(author="student")


def imported(format: str) -> Callable[[Path], Any]:
    """Read a file, and make the tables of a run from it."""

    def read(file: Path) -> None:
        with suppress(FewstepsError):
            formats_of([file])
        rows = rows_of(read_episodes({str(file): format}, settings=SETTINGS), environment="e")
        for name, part in rows.items():
            table_of(name, part)

    return read


def occupied(file: Path, *, stream: bool = True) -> None:
    columns = Columns.parse("trajectory=trajectory,state=state,task=task,weight=weight")
    if stream:
        estimate_stream(open_turns(file, columns))
    else:
        scan_table(file, columns, workers=1)


def priced(file: Path) -> None:
    read_prices(file).find("openai:gpt-4o@x").most(prompt=3, output=3)


def hashed(file: Path) -> None:
    parsed = Recipe.from_toml(file.read_bytes().decode("utf-8", "replace"))
    assert Recipe.from_toml(parsed.to_toml()).hash == parsed.hash


def planned(file: Path) -> None:
    plan = read_plan(file)
    for part in plan.parts:
        plan.recipe(part)


CHAT = {"task_id": "key", "messages": MESSAGES, "reward": 0.5}
TEXTS: dict[str, tuple[str, Any, Callable[[Path], Any]]] = {
    "world": ("world.toml", WORLD, lambda file: load_world(str(file))),
    "family": ("family.toml", FAMILY, lambda file: load_world(str(file))),
    "prices": (
        "prices.toml",
        PRICES,
        lambda file: read_prices(file).find("openai:gpt-4o@x").most(prompt=3, output=3),
    ),
    "recipe": ("recipe.toml", preset("oec", n=2).to_toml(), hashed),
    "plan": ("plan.toml", PLAN, planned),
    "chat": ("a.jsonl", CHAT, imported("chat")),
    "sharegpt": ("a.json", {"task_id": "key", "conversations": SHAREGPT}, imported("sharegpt")),
    "atif": ("a.json", ATIF, imported("atif")),
    "inspect": ("a.json", INSPECT, imported("inspect")),
    "swe-agent": ("key.traj", TRAJ, imported("swe-agent")),
    "trl": ("a.parquet", [{"task_id": "key", "messages": MESSAGES}], imported("trl")),
    "verl": ("a.parquet", [{"task_id": "key", "messages": MESSAGES}], imported("verl")),
    "alpaca": ("a.json", [ALPACA], imported("alpaca")),
    "claude-code": ("a.jsonl", lines(CLAUDE), imported("claude-code")),
    "codex": ("a.jsonl", lines(CODEX), imported("codex")),
    "mini-swe-agent": ("a.traj.json", MINI_RESPONSES, imported("mini-swe-agent")),
    "openhands": ("a.json", OPENHANDS, imported("openhands")),
    "openhands-1": ("a.jsonl", OPENHANDS_1, imported("openhands")),
    "tau-bench": ("a.json", TAU_2, imported("tau-bench")),
    "verifiers": ("a.jsonl", VERIFIERS, imported("verifiers")),
    "verl-rollouts": ("a.jsonl", ROLLOUT, imported("verl-rollouts")),
    "auto": ("a.jsonl", CHAT, lambda file: imported(formats_of([file])[str(file)])(file)),
}


def share(kinds: int) -> range:
    """The damages of one of so many kinds of a family."""
    return range(max(1, MUTATIONS // FAMILIES // kinds))


def tried(call: Callable[[], Any], what: str) -> None:
    """Run `call`: it may succeed or refuse in one line, within LONGEST_S seconds."""

    def late(*given: Any) -> None:
        raise AssertionError(f"{what}: no end after {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        call()
    except (FewstepsError, sqlite3.Error, AssertionError) as error:
        if isinstance(error, AssertionError) or not str(error):
            raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


SMALL = {"world": 2, "family": 2, "recipe": 2, "plan": 2, "prices": 1}
"""Kinds in the family of each, but for the imports."""


@pytest.mark.parametrize("kind", TEXTS)
def test_a_damaged_file_is_refused_in_one_line_or_read(kind: str, tmp_path: Path) -> None:
    name, content, read = TEXTS[kind]
    file = write(tmp_path, name, content)
    whole = file.read_bytes()
    read(file)
    for number in share(SMALL.get(kind, len(TEXTS) - len(SMALL) + 1)):
        file.write_bytes(mutated(whole, number))
        tried(lambda: read(file), f"{kind}, damage {number}")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_damaged_table_of_turns_too(suffix: str, tmp_path: Path) -> None:
    rows = 40
    table = pa.table(
        {
            "trajectory": np.arange(rows) // 5,
            "state": [f"s{i % 7}" for i in range(rows)],
            "task": np.arange(rows) // 20,
            "weight": np.ones(rows),
        }
    )
    file = tmp_path / f"turns{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, file)
    else:
        with pa.ipc.new_file(str(file), table.schema) as sink:
            sink.write_table(table)
    whole = file.read_bytes()
    occupied(file)
    for number in share(2):
        file.write_bytes(mutated(whole, number))
        tried(partial(occupied, file, stream=number % 8 > 0), f"{suffix}, damage {number}")


def test_an_arrow_stream_and_doubled_columns_are_named(tmp_path: Path) -> None:
    table = pa.table({"trajectory": [1], "state": [1], "task": [1], "weight": [1.0]})
    with pa.ipc.new_stream(str(tmp_path / "turns.arrow"), table.schema) as sink:
        sink.write_table(table)
    with pytest.raises(FewstepsError, match="not a stream"):
        occupied(tmp_path / "turns.arrow")
    twice = pa.table([[1], [1], [1], [1], [1.0]], ["trajectory", "state", "task", "task", "weight"])
    pq.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(FewstepsError, match="2 columns 'task'"):
        occupied(tmp_path / "t.parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pilot with a ledger."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    recipe = preset("op-short", K="inf", n=2, T_max=12)
    run_of(folder, recipe, tasks="2", pilot=True, handback=(0, 1), replicates=1, demo_tasks=1)
    return folder


def whole_of(run: Run) -> None:
    whole = Whole(run)
    assert whole.traces
    assert whole.proposals
    assert whole.attempts


READERS: tuple[Callable[[Run], Any], ...] = (
    lambda run: [run.read(name) for name in TABLES],
    summarise,
    account_of,
    lambda run: read_pilot(run.folder),
    whole_of,
    lambda run: estimate_stream(open_run_turns(run.folder, RUN_COLUMNS).stream),
)
"""Whatever reads a run."""


def read_one(folder: Path, number: int) -> None:
    """Open a run and read it in one of the ways."""
    run = open_run(folder)
    with suppress(FewstepsError, sqlite3.Error):
        READERS[random.Random(number).randrange(len(READERS))](run)


def test_a_run_with_a_damaged_file_is_refused_in_one_line_or_read(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    files = sorted(f for f in run.rglob("*") if f.is_file() and f.name != "lock")
    for number in share(2):
        file = files[number % len(files)]
        other = copy / file.relative_to(run)
        other.write_bytes(mutated(file.read_bytes(), number))
        tried(partial(read_one, copy, number), f"{other}, damage {number}")
        shutil.copy(file, other)
        if file.name.startswith("ledger"):
            for left in copy.glob("ledger.sqlite*"):
                left.unlink()
            for kept in run.glob("ledger.sqlite*"):
                shutil.copy(kept, copy / kept.name)


def test_a_run_with_a_damaged_cell_is_refused_in_one_line_or_read(run: Path, tmp_path: Path) -> None:
    """Whole Parquet, with a text in it that is not what it should be."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    files = sorted(run.rglob("*.parquet"))
    for number in share(2):
        file = files[number % len(files)]
        table = pq.read_table(file, partitioning=None)
        fields = [field for field in table.schema if pa.types.is_large_string(field.type)]
        field = fields[number % len(fields)]
        cells = table[field.name].to_pylist()
        at = number % len(cells)
        cells[at] = mutated((cells[at] or "").encode(), number).decode("utf-8", "replace")
        place, other = table.column_names.index(field.name), copy / file.relative_to(run)
        pq.write_table(table.set_column(place, field, pa.array(cells, field.type)), other)
        tried(partial(read_one, copy, number), f"{other}, {field.name}, damage {number}")
        shutil.copy(file, other)


def test_a_damaged_import_leaves_a_whole_run_or_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "a.jsonl", CHAT)
    whole, out = file.read_bytes(), tmp_path / "out"
    for number in share(len(TEXTS) - len(SMALL) + 1):
        file.write_bytes(mutated(whole, number + 7))
        code = main(["import", str(file), "--format", "chat", "--author", "student", "--out", str(out)])
        told = capsys.readouterr()
        if code:
            assert (code, told.err.count("\n"), told.out) == (2, 1, "")
            assert [f.name for f in tmp_path.iterdir()] == [file.name]
        else:
            assert len(open_run(out).read("episodes"))
            shutil.rmtree(out)


def test_a_fault_of_a_reader_is_no_damage_of_the_file(tmp_path: Path) -> None:
    for fault in (TypeError, KeyError, AttributeError, ValueError, MemoryError):
        with pytest.raises(fault), reading(tmp_path):
            raise fault("ours")
    for damage in (lambda: json.loads("{"), b"\xff".decode, lambda: pq.read_table(tmp_path / "no")):
        with pytest.raises(FewstepsError, match="cannot be read"), reading(tmp_path):
            damage()


def test_a_deep_run_json_is_one_line(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", preset("op-short"), {}).folder
    (folder / "run.json").write_text('{"a":' * 100_000)
    with pytest.raises(FewstepsError, match="nested too deep"):
        open_run(folder)
    (folder / "run.json").write_text(json.dumps({"schema_version": [1]}))
    with pytest.raises(FewstepsError, match="schema version"):
        open_run(folder)
