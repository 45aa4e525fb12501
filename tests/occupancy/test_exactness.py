"""What `python -m benchmarks exactness` checks over 1e9 turns, over fewer."""

import pytest

from benchmarks.exactness import largest_errors


@pytest.mark.filterwarnings("ignore:overflow")
def test_no_sum_over_a_stream_is_off_by_more_than_one_in_1e12():
    done, errors = largest_errors(3e6)
    assert done >= 3e6
    assert errors["pooled"] == 0
    assert max(errors.values()) < 1e-12
