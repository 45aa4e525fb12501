"""Tables read by threads, with T counted from ids or taken from a column."""

import argparse
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import batches
from turn_tables import dense, table_of

from occupancy import DataError, Trajectories, occupancy, tally
from occupancy.commands import add_commands
from occupancy.record.columns import Columns
from occupancy.streaming import scan
from occupancy.streaming.estimate import estimate_stream
from occupancy.streaming.stream import open_turns

FILES = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=25
)
STORED = Columns(length="T", weight="w")


def with_lengths(batch: Trajectories, **kind) -> pa.Table:
    return table_of(batch, **kind).append_column("T", pa.array(np.repeat(batch.lengths, batch.lengths)))


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(scan, "UNIT_ROWS", 5)


@FILES
@given(
    batch=batches(features=2), text=st.booleans(), cut=st.tuples(st.integers(1, 6), st.sampled_from([1, 3]))
)
def test_a_scan_says_what_the_batch_says(small_units, tmp_path_factory, batch, text, cut):
    batch, (rows, workers) = dense(batch), cut
    file = tmp_path_factory.mktemp("scan") / "turns.parquet"
    pq.write_table(with_lengths(batch, text=text), file, row_group_size=rows)
    expected = tally(batch)
    for columns in (STORED, Columns(weight="w")):
        found, names = scan.scan_table(file, columns, workers=workers)
        order = [int(name[1:]) for name in names] if text else slice(None)
        assert found.tally.counts.tolist() == expected.counts[order].tolist()
        assert found.tally.trajectory.tobytes() == expected.trajectory[order].tobytes()
        assert found.tally.n_trajectories == len(batch)
        for name, estimate in found.occupancies.items():
            whole = occupancy(batch, convention=name)
            assert estimate.probability == pytest.approx(whole.probability[order], rel=1e-12)
            assert estimate.ess == pytest.approx(whole.ess, rel=1e-9)
            assert estimate.standard_error is None


def test_weights_are_the_same_bits_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "UNIT_ROWS", 100)
    random = np.random.default_rng(0)
    T = random.integers(1, 90, 200)
    states = random.integers(0, 11, T.sum())
    w = random.random(T.sum(), dtype=np.float32)
    batch = Trajectories(
        np.concatenate([[0], np.cumsum(T)]), states, np.arange(200), weights=w, features=np.ones((T.sum(), 2))
    )
    pq.write_table(with_lengths(batch), tmp_path / "turns.parquet", row_group_size=100)
    first, *others = (scan.scan_table(tmp_path, STORED, workers=n)[0].occupancies for n in (1, 2, 5))
    for other in others:
        assert all(first[name].probability.tobytes() == other[name].probability.tobytes() for name in first)


def write(folder, **columns):
    table = {"trajectory": [1, 1, 2], "state": [0, 1, 0], "task": [0, 0, 1], "T": [2, 2, 1], **columns}
    pq.write_table(pa.table(table), folder / "turns.parquet", row_group_size=1)
    return folder / "turns.parquet"


BAD = [
    ({"T": [2, 3, 1]}, "column 'T' says 2 in 1 rows"),
    ({"T": [2, 2, 0]}, "column 'T' holds 0 to 0: expected whole numbers from 1 up"),
    ({"state": [0, -1, 0]}, "column 'state' holds -1 to -1"),
    ({"T": [2, None, 1]}, "column 'T' has an empty cell"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_lengths_that_cannot_be_are_refused(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        scan.scan_table(write(tmp_path, **change), Columns(length="T"))


def test_rows_apart_are_refused_unless_lengths_are_taken_on_trust(tmp_path):
    file = write(tmp_path, trajectory=[1, 2, 1])
    with pytest.raises(DataError, match="rows of trajectory 1 are in 2 places"):
        scan.scan_table(file, Columns())
    assert scan.scan_table(file, Columns(length="T"))[0].tally.n_trajectories == 2


def test_reading_everything_checks_the_lengths(tmp_path):
    file = write(tmp_path, trajectory=[1, 2, 2])
    with pytest.raises(DataError, match="is 2 for a trajectory of 1 rows"):
        estimate_stream(open_turns(file, Columns(length="T")))


def test_the_command_is_fast_where_no_error_is_asked_for(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(
        ["occupancy", str(write(tmp_path)), "--columns", "length=T", "--fast", "--json"]
    )
    assert given.handler(given) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["turns"], found["trajectories"], found["tasks"]) == (3, 2, None)
    assert found["conventions"]["trajectory"]["states"][0] == {
        "state": 0,
        "probability": 0.75,
        "standard_error": None,
    }


def test_ids_that_come_back_after_consecutive_ones_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "UNIT_ROWS", 2)
    ids = [5, 6, 7, 8, 2, 3, 7]
    table = {"trajectory": ids, "state": [0] * 7}
    pq.write_table(pa.table(table), tmp_path / "turns.parquet", row_group_size=1)
    with pytest.raises(DataError, match="rows of trajectory 7 are in 2 places"):
        scan.scan_table(tmp_path, Columns())
    table["trajectory"] = [5, 6, 7, 8, 2, 3, 4]
    pq.write_table(pa.table(table), tmp_path / "turns.parquet", row_group_size=1)
    assert scan.scan_table(tmp_path, Columns())[0].tally.n_trajectories == 7


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "uint64", "int64"])
def test_columns_of_any_integer_type_give_the_same(tmp_path, dtype):
    columns = {"trajectory": [3, 3, 9], "state": [1, 0, 1], "T": [2, 2, 1]}
    table = pa.table({name: pa.array(values, pa.type_for_alias(dtype)) for name, values in columns.items()})
    pq.write_table(table.append_column("w", pa.array([1.0, 2.0, 3.0])), tmp_path / "turns.parquet")
    for known in (STORED, Columns(weight="w")):
        found = scan.scan_table(tmp_path, known)[0]
        assert found.tally.trajectory.tolist() == [0.25, 0.75]
        assert found.occupancies["weights"].probability == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
def test_weights_that_are_no_weights_are_refused(tmp_path, bad):
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"trajectory": [0, 0], "state": [0, 1], "task": [0, 0], "w": [1.0, bad]}), file)
    with pytest.raises(DataError, match=f"column 'w', weight {bad}"):
        scan.scan_table(file, Columns(weight="w"))


def test_weights_that_are_all_zero_are_refused(tmp_path):
    file = write(tmp_path, w=[0.0, 0.0, 0.0])
    with pytest.raises(DataError, match="the weights of all turns sum to zero"):
        scan.scan_table(file, STORED)
    with pytest.raises(DataError, match="no context has weight"):
        estimate_stream(open_turns(file, STORED))
