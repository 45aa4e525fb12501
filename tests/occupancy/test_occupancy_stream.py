import argparse
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import batches
from turn_tables import COLUMNS, dense, table_of

from occupancy import DataError, InputError, Trajectories, mean, occupancy, tally
from occupancy.commands import add_commands
from occupancy.record.columns import Columns
from occupancy.streaming import partial
from occupancy.streaming.estimate import estimate_stream
from occupancy.streaming.stream import TurnStream, open_turns

PATCHED = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=15
)


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(["occupancy", *arguments])
    return given.handler(given)


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(TurnStream, "_rows", lambda self, fields: 3)


@PATCHED
@given(batch=batches(features=2), text=st.booleans(), ipc=st.booleans())
def test_a_stream_says_what_the_batch_says(few_rows, tmp_path_factory, batch, text, ipc):
    batch = dense(batch)
    file = tmp_path_factory.mktemp("stream") / ("turns.arrow" if ipc else "turns.parquet")
    table = table_of(batch, text=text)
    if ipc:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, file, row_group_size=4)
    stream = open_turns(file, COLUMNS)
    found = estimate_stream(stream)
    order = [int(name[1:]) for name in stream.states.in_order] if text else slice(None)
    assert found.tally.counts.tolist() == tally(batch).counts[order].tolist()
    for name, estimate in found.occupancies.items():
        whole, average = occupancy(batch, convention=name), mean(batch, convention=name)
        assert estimate.probability == pytest.approx(whole.probability[order], rel=1e-12)
        assert estimate.ess == pytest.approx(whole.ess, rel=1e-9)
        assert (estimate.n_trajectories, estimate.n_empty) == (len(batch), 0)
        assert found.means[name].value == pytest.approx(average.value, rel=1e-9)
        if average.standard_error is not None:
            assert found.means[name].standard_error == pytest.approx(
                average.standard_error, rel=1e-7, abs=1e-12
            )
        if stream.n_parts == 1 and whole.standard_error is not None:
            assert estimate.standard_error == pytest.approx(whole.standard_error[order], rel=1e-9)


def test_tallies_of_a_stream_are_the_same_bits_whatever_the_memory(tmp_path):
    random = np.random.default_rng(0)
    lengths = random.integers(1, 30, 400)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = random.integers(0, 50, offsets[-1])
    batch = Trajectories(
        offsets, states, np.arange(400) % 7, features=np.ones((offsets[-1], 2)), weights=states
    )
    pq.write_table(table_of(batch), tmp_path / "turns.parquet", row_group_size=999)
    expected = tally(batch)
    for memory in (1, 5000 * 160, 1 << 30):
        found = estimate_stream(open_turns(tmp_path, COLUMNS, memory=memory)).tally
        assert found.counts.tolist() == expected.counts.tolist()
        assert found.trajectory.tolist() == expected.trajectory.tolist()


def bits(estimate) -> list[bytes]:
    return [np.asarray(v).tobytes() for v in (estimate.probability, estimate.standard_error, estimate.ess)]


@PATCHED
@given(batch=batches(features=2), text=st.booleans())
def test_errors_of_a_stream_in_parts_are_those_in_memory(few_rows, tmp_path_factory, batch, text):
    """Tasks span parts; pooled, trajectory-uniform and task-pooled sums do not round, the others do."""
    batch = dense(batch)
    file = tmp_path_factory.mktemp("parts") / "turns.parquet"
    pq.write_table(table_of(batch, text=text), file)
    found = estimate_stream(open_turns(file, COLUMNS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnStream, "_rows", lambda self, fields: 1 << 20)
        whole = estimate_stream(open_turns(file, COLUMNS))
    assert (whole.n_parts, set(found.occupancies)) == (1, {"pooled", "trajectory", "task", "weights"})
    for name in ("pooled", "trajectory", "task"):
        assert bits(found.occupancies[name]) == bits(whole.occupancies[name])
    for one, other in [
        *((found.occupancies[n], whole.occupancies[n]) for n in found.occupancies),
        *((found.means[n], whole.means[n]) for n in found.means),
    ]:
        assert one.n_tasks == other.n_tasks
        assert one.ess == pytest.approx(other.ess, rel=1e-12)
        assert (one.standard_error is None) == (other.standard_error is None)
        if other.standard_error is not None:
            assert one.standard_error == pytest.approx(other.standard_error, rel=1e-7, abs=1e-12)


def test_one_long_trajectory_among_few_takes_no_table_by_length(few_rows, tmp_path):
    lengths = np.array([1, 1 << 17, 2, 2])
    owner = np.repeat(np.arange(4), lengths)
    table = pa.table({"trajectory": owner, "state": owner % 3, "task": owner // 2})
    pq.write_table(table, tmp_path / "turns.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnStream, "_rows", lambda self, fields: 1 << 17)
        found = estimate_stream(open_turns(tmp_path, Columns()))
        patch.setattr(TurnStream, "_rows", lambda self, fields: 1 << 20)
        whole = estimate_stream(open_turns(tmp_path, Columns()))
    assert (found.n_parts, whole.n_parts) == (2, 1)
    for name, share in whole.occupancies.items():
        assert bits(found.occupancies[name]) == bits(share)
    assert whole.occupancies["trajectory"].probability.tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_more_pairs_of_task_and_state_than_allowed_are_refused(few_rows, tmp_path):
    n = 40
    table = pa.table({"trajectory": np.arange(n), "state": np.arange(n), "task": np.arange(n) // 2})
    pq.write_table(table, tmp_path / "turns.parquet")
    with pytest.raises(DataError, match=r"pairs of task and state .* raise --error-memory"):
        estimate_stream(open_turns(tmp_path, Columns()), cell_memory=10 * 240)
    found = estimate_stream(open_turns(tmp_path, Columns()), cell_memory=0)
    assert set(found.occupancies) == {"pooled", "trajectory"}
    assert found.occupancies["pooled"].standard_error is None
    assert found.occupancies["pooled"].n_tasks == n // 2


TWO = {"trajectory": [1, 1, 2], "state": [0, 1, 0], "task": [0, 0, 1]}
BAD = [
    ({"trajectory": [1, 2, 1]}, "the rows of trajectory 1 are in 2 places"),
    ({"trajectory": ["a", "b", "a"]}, "the rows of trajectory 0 are in 2 places"),
    ({"task": [0, 1, 1]}, "a trajectory has two tasks, 0 and 1"),
    ({"trajectory": [1, 1, 1], "task": [0, 1, 0]}, "a trajectory has two tasks, 0 and 1"),
    ({"state": [0, -1, 0]}, "column 'state' holds -1 to 0: expected whole numbers from 0"),
    ({"state": [0, 1 << 26, 0]}, "column 'state' holds 0 to 67108864: expected"),
    ({"state": [0, None, 0]}, "column 'state' has an empty cell in row 1"),
    ({"state": [0.5, 1, 2]}, "column 'state' has type double: expected whole numbers or text"),
    ({"trajectory": [], "state": pa.array([], pa.int64()), "task": []}, "no rows"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_table_that_breaks_its_contract_is_refused(tmp_path, change, message):
    columns = {**TWO, **change}
    if not len(columns["trajectory"]):
        columns = {name: pa.array([], pa.int64()) for name in columns}
    pq.write_table(pa.table(columns), tmp_path / "turns.parquet")
    with pytest.raises(DataError, match=re.escape(message)):
        estimate_stream(open_turns(tmp_path, Columns()))


def test_a_missing_column_names_those_that_are_there(tmp_path):
    pq.write_table(pa.table(TWO), tmp_path / "turns.parquet")
    with pytest.raises(DataError, match="no column 'cell', only trajectory, state, task"):
        estimate_stream(open_turns(tmp_path, Columns.parse("state=cell")))
    (tmp_path / "turns.parquet").unlink()
    with pytest.raises(DataError, match="a folder without such files"):
        open_turns(tmp_path, Columns())
    with pytest.raises(InputError, match="--columns has no setting 'cell'"):
        Columns.parse("cell=state")


def test_the_command_prints_one_json_object(tmp_path, capsys):
    file = tmp_path / "mine.parquet"
    pq.write_table(
        pa.table({"run": [7, 7, 9], "cell": ["a", "b", "a"], "q": [0, 0, 1], "r": [1, 2, 3]}), file
    )
    columns = "trajectory=run,state=cell,task=q,feature=r"
    assert command(str(file), "--columns", columns, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["turns"], found["trajectories"], found["tasks"], found["states"]) == (3, 2, 2, 2)
    assert found["conventions"]["pooled"]["states"][0] == {
        "state": "a",
        "probability": pytest.approx(2 / 3),
        "standard_error": pytest.approx(float(occupancy(EXAMPLE, convention="pooled").standard_error[0])),
    }
    assert found["means"]["trajectory"]["value"] == [2.25]
    assert command(str(file), "--columns", columns, "--top", "1") == 0
    printed = capsys.readouterr().out
    assert "3 turns of 2 trajectories" in printed
    assert "mean, pooled: 2.0000" in printed


EXAMPLE = Trajectories([0, 2, 3], [0, 1, 0], [0, 1])


def test_the_command_reads_a_run_folder(tmp_path, capsys):
    from occupancy import preset
    from occupancy.record.tables import schema
    from occupancy.runs import create_run

    def row(table, **values):
        blank = {"string": "", "large_string": "", "bool": False}
        return {
            f.name: values.get(f.name, None if f.nullable else blank.get(str(f.type), 0))
            for f in schema(table)
        }

    lengths = {"a": ("finished", 2), "b": ("horizon", 1), "c": ("finished", 0)}
    lengths["d"] = ("environment_error", 1)
    episodes = [
        row(
            "episodes",
            episode_id=e,
            task_id=e,
            cluster_id=f"game-{e}",
            kind="rollout",
            status=status,
            length=T,
        )
        for e, (status, T) in lengths.items()
    ]
    turns = [
        row("turns", episode_id=e, task_id=e, kind="rollout", t=t + 1, context_id=f"c{t}", author="student")
        for e, (_, T) in lengths.items()
        for t in range(T)
    ]
    create_run(tmp_path / "run", preset("op-short"), {}).commit({"episodes": episodes, "turns": turns})
    assert command(str(tmp_path / "run"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[k] for k in ("turns", "trajectories", "empty", "left_out", "tasks")] == [3, 3, 1, 1, 2]
    assert found["conventions"]["trajectory"]["states"][0]["probability"] == pytest.approx(3 / 4)
    with pytest.raises(DataError, match="no episodes of kind 'demo': expected one of rollout"):
        command(str(tmp_path / "run"), "--kind", "demo")


def test_joining_parts_takes_time_in_proportion_to_them(monkeypatch):
    """Every task is joined a few times, however many parts come after it."""
    rows = []
    add = partial.joined
    monkeypatch.setattr(partial, "joined", lambda sums: rows.append(sum(map(tasks, sums))) or add(sums))
    tasks, parts, n = (lambda sums: len(sums.tasks)), partial.Parts(0), 64
    for i in range(n):
        batch = Trajectories([0, 1, 2], [0, 0], [2 * i, 2 * i + 1], features=[i, 1])
        parts.add(partial.partial_of(batch, cells=False, workers=1))
    assert sum(rows) < 2 * 5 * 2 * n, "two conventions"
    assert parts.means["pooled"].numerators[:, 0].tolist() == [float(x) for i in range(n) for x in (i, 1)]
    assert parts.all_counts().turns.tolist() == [1] * 2 * n


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("coded", [False, True])
def test_texts_of_every_type_are_states(tmp_path, kind, coded):
    """Polars writes string_view, and categories as a dictionary of them."""
    states = pa.array(["a", "b"], kind)
    column = pa.DictionaryArray.from_arrays([0, 1, 0], states) if coded else pa.array(["a", "b", "a"], kind)
    table = pa.table({"trajectory": [1, 1, 2], "state": column, "task": pa.array(["p", "p", "q"], kind)})
    stream = open_turns(arrow(tmp_path, table), Columns())
    assert estimate_stream(stream).occupancies["pooled"].probability.tolist() == [2 / 3, 1 / 3]
    assert stream.states.in_order == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "told"),
    [(["a", None], "an empty cell, in its dictionary"), ([b"a", b"b"], "type dictionary<values=binary")],
)
def test_categories_that_are_no_texts_are_refused(tmp_path, values, told):
    states = pa.DictionaryArray.from_arrays([0, 1, 0], pa.array(values))
    table = pa.table({"trajectory": [1, 1, 2], "state": states, "task": ["p", "p", "q"]})
    with pytest.raises(DataError, match=told):
        estimate_stream(open_turns(arrow(tmp_path, table), Columns()))


def arrow(folder, table):
    file = folder / "turns.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return file
