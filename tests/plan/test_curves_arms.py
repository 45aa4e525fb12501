"""Arms as rows of the model of learning curves: effects by hand, and laws of their features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_curves import BC, CANDIDATES

from analysis.curves.arms import DIMENSION, EFFECTS, KNOTS, Arm, effects, features, hat
from occupancy.record.recipe import INF

TWINS: dict[Arm, dict[str, float]] = {
    BC: {},
    Arm("op-short", 4, 0.5): {"r": 0.5, "4r(1-r)": 1, "r/K": 0.125, "r(K^-.5-1/K)": 0.125},
    Arm("op-failed", 4, 1.0): {
        "r": 1,
        "r=1": 1,
        "r/K": 0.25,
        "r(K^-.5-1/K)": 0.25,
        "failed": 1,
        "failed/K": 0.25,
    },
    Arm("op-critical", INF, 0.5): {"r": 0.5, "4r(1-r)": 1, "success": 0.5, "failed": 0.5, "critical": 0.5},
    Arm("oec", INF, 1.0): {"r": 1, "r=1": 1, "success": 1, "oec": 1, "success r=1": 1},
    Arm("bc-success", INF, 0.0): {"demo success": 1},
    Arm("pilot", INF, 0.25): {"r": 0.25, "4r(1-r)": 0.75, "success": 0.25, "demo success": 0.75},
    Arm("pilot", INF, 0.25, "all"): {"r": 0.25, "4r(1-r)": 0.75},
}
"""The effects of some arms by hand, beside the level; those that are not named are 0."""


@pytest.mark.parametrize("arm", TWINS)
def test_effects_are_those_worked_out_by_hand(arm: Arm) -> None:
    found = dict(zip(EFFECTS, effects(arm), strict=True))
    assert found == pytest.approx(dict.fromkeys(EFFECTS, 0.0) | {"level": 1.0} | TWINS[arm])
    assert features(arm, 1.0).shape == (DIMENSION,)


@given(st.floats(0.01, 1000))
def test_knots_weigh_one(size: float) -> None:
    weights = hat(size)
    assert np.isclose(weights.sum(), 1)
    assert (weights >= 0).all()
    inside = np.clip(np.log(size), KNOTS[0], KNOTS[-1])
    assert np.isclose(weights @ KNOTS, inside)


def test_unfiltered_traces_matter_less_with_size() -> None:
    gap = [features(Arm("pure-bc", INF, 0.0, "all"), s, final=True)[-2] for s in (2.0, 5.0, 20.0)]
    assert gap[0] > gap[1] > gap[2] > 0 == features(BC, 5.0, final=True)[-2]


@given(st.floats(0.3, 4), st.floats(0, 4))
def test_data_that_every_student_is_trained_on_count_as_data(size: float, sunk: float) -> None:
    """More demonstrations beside demonstrations are more demonstrations; other arms differ by their share."""
    assert np.allclose(features(BC, size, sunk=sunk), features(BC, size + sunk))
    for arm in CANDIDATES:
        lead, alone = (
            features(arm, size, sunk=sunk) - features(BC, size, sunk=sunk),
            features(arm, size + sunk) - features(BC, size + sunk),
        )
        assert np.allclose(lead, alone * size / (size + sunk))


def test_bad_arms_are_refused() -> None:
    for bad in (("nothing", 1, 0.5), ("op-short", 0, 0.5), ("op-short", 1, 1.5)):
        with pytest.raises(ValueError, match=r"arm|recipe"):
            Arm(*bad)
