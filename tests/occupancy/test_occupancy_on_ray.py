"""The Ray engine; the cluster is real: two nodes on this machine, one of which dies half-way."""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import batches
from turn_tables import COLUMNS, dense, table_of
from waiting import LOOKS

from occupancy import DataError
from occupancy.record.columns import Columns
from occupancy.streaming import on_ray
from occupancy.streaming.estimate import estimate_stream
from occupancy.streaming.run_turns import open_run_turns
from occupancy.streaming.scan import row_groups
from occupancy.streaming.stream import open_turns


def of_pieces(file, columns, memory):
    units = row_groups([file], memory)
    stream = open_turns(file, columns)
    return on_ray.merge(on_ray.read_piece(unit, stream) for unit in units), len(units)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(batch=batches(features=2), text=st.booleans(), rows=st.integers(1, 6), ipc=st.booleans())
def test_pieces_of_any_size_add_up_to_the_stream(tmp_path_factory, batch, text, rows, ipc):
    file = tmp_path_factory.mktemp("pieces") / ("turns.arrow" if ipc else "turns.parquet")
    table = table_of(dense(batch), text=text)
    if ipc:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    else:
        pq.write_table(table, file, row_group_size=rows)
    stream = open_turns(file, COLUMNS)
    whole = estimate_stream(stream)
    (found, states), n_units = of_pieces(file, COLUMNS, 1)
    assert n_units == -(-batch.n_turns // rows)
    order = [stream.states.in_order.index(name) for name in states] if text else slice(None)
    assert found.tally.counts.tolist() == whole.tally.counts[order].tolist()
    assert found.tally.trajectory.tolist() == whole.tally.trajectory[order].tolist()
    for name in ("pooled", "trajectory", "task"):
        one, other = found.occupancies[name], whole.occupancies[name]
        assert one.probability.tobytes() == other.probability[order].tobytes()
        if not text and other.standard_error is not None:
            assert one.standard_error.tobytes() == other.standard_error.tobytes()
    for name, average in whole.means.items():
        assert found.means[name].value == pytest.approx(average.value, rel=1e-9)
        assert found.means[name].n_tasks == average.n_tasks
        assert found.occupancies[name].ess == pytest.approx(whole.occupancies[name].ess, rel=1e-9)


def test_a_trajectory_that_comes_back_in_another_piece_is_refused(tmp_path):
    file = tmp_path / "turns.parquet"
    table = pa.table({"trajectory": [1, 1, 2, 2, 1], "state": [0] * 5, "task": [0] * 5})
    pq.write_table(table, file, row_group_size=2)
    with pytest.raises(DataError, match="rows of trajectory 1 are in 2 places"):
        of_pieces(file, Columns(), 1)


@pytest.mark.parametrize("kind", ["rollout", "demo"])
def test_a_run_over_ray_is_the_run_in_memory(kind):
    """Units hold turns of every kind of episode; of some none counts."""
    pilot = Path(__file__).parents[1] / "scripted_pilot"
    turns = open_run_turns(pilot, kind=kind)
    whole = estimate_stream(turns.stream, n_empty=3)
    known = turns.stream.states.in_order
    turns = open_run_turns(pilot, kind=kind)
    units = row_groups(turns.stream.files, 1)
    found, states = on_ray.merge((on_ray.read_piece(unit, turns.stream) for unit in units), n_empty=3)
    assert found.tally.n_trajectories == whole.tally.n_trajectories > 3
    order = [known.index(name) for name in states]
    for name, share in found.occupancies.items():
        assert share.probability.tobytes() == whole.occupancies[name].probability[order].tobytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and files of dead processes open
def test_a_node_that_dies_changes_no_bit(tmp_path):
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    random = np.random.default_rng(0)
    lengths = random.integers(1, 30, 2000)
    table = pa.table(
        {
            "trajectory": np.repeat(np.arange(2000), lengths),
            "state": random.integers(0, 100, lengths.sum()),
            "task": np.repeat(random.integers(0, 50, 2000), lengths),
            "f": random.random(lengths.sum()),
        }
    )
    file, columns = tmp_path / "turns.parquet", Columns(feature=("f",))
    pq.write_table(table, file, row_group_size=1500)
    units = row_groups([file], 1)
    stream = open_turns(file, columns)
    expected, _ = on_ray.merge(on_ray.read_piece(unit, stream) for unit in units)

    def slowly(unit):
        time.sleep(0.2)
        return on_ray.read_piece(unit, stream)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        doomed = cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address, log_to_driver=False)

        def pieces():
            for done, piece in enumerate(on_ray.on_ray(slowly, units)):
                if done == 2:
                    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
                    cluster.remove_node(doomed, allow_graceful=False)
                yield piece

        found, _ = on_ray.merge(pieces())
        for _ in range(LOOKS):
            if len([node for node in ray.nodes() if node["Alive"]]) == 1:
                break
            time.sleep(0.2)
        else:
            pytest.fail("the node was never seen to be dead")
        again, _ = on_ray.estimate_on_ray(open_turns(file, columns, memory=1))
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert found.tally.counts.tobytes() == expected.tally.counts.tobytes()
    assert found.tally.trajectory.tobytes() == expected.tally.trajectory.tobytes()
    for name, average in expected.means.items():
        assert found.means[name].value.tobytes() == average.value.tobytes()
        assert found.means[name].standard_error.tobytes() == average.standard_error.tobytes()
    single = estimate_stream(open_turns(file, columns))
    assert found.tally.trajectory.tobytes() == single.tally.trajectory.tobytes()
    for name, share in single.occupancies.items():
        assert again.occupancies[name].standard_error.tobytes() == share.standard_error.tobytes()
        assert found.occupancies[name].standard_error.tobytes() == share.standard_error.tobytes()


def test_an_error_of_a_task_is_told_as_it_was(monkeypatch):
    """Ray's own error has the traceback of the task for its message."""

    class TaskError(Exception):
        cause = DataError("no column 'nope'")

    def get(_):
        raise TaskError("ray::work() File x, line 3 ...")

    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=dict,
        remote=lambda **_: lambda work: SimpleNamespace(remote=work),
        exceptions=SimpleNamespace(RayTaskError=TaskError),
        get=get,
    )
    monkeypatch.setattr(on_ray, "imported", lambda *_: ray)
    with pytest.raises(DataError, match=r"^no column 'nope'$"):
        list(on_ray.on_ray(abs, [1, 2]))
