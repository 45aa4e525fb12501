import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import batches

from occupancy import DataError, occupancy, open_arrays, save_arrays


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=10)
@given(batch=batches(features=2))
def test_a_saved_batch_is_mapped_and_gives_the_same_bits(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("arrays") / "batch"
    save_arrays(batch, folder)
    mapped = open_arrays(folder)
    assert isinstance(mapped.states, np.memmap) or isinstance(mapped.states.base, np.memmap)
    for name in ("offsets", "states", "tasks", "features", "weights"):
        assert getattr(mapped, name).tolist() == getattr(batch, name).tolist()
    for convention in ("pooled", "trajectory", "task", "weights"):
        found, expected = (occupancy(b, convention=convention).probability for b in (mapped, batch))
        assert found.tobytes() == expected.tobytes()
    with pytest.raises(DataError, match="is not empty"):
        save_arrays(batch, folder)


def test_a_folder_without_a_batch_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no offsets\.npy"):
        open_arrays(tmp_path)
