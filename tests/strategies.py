"""Hypothesis strategies for ragged batches."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from occupancy import Trajectories

WEIGHTS = st.floats(0, 8, width=32)


@st.composite
def batches(draw: st.DrawFn, *, max_T: int = 5, max_B: int = 8, features: int = 0) -> Trajectories:
    """Batches with a turn at least; empty trajectories anywhere, one state, equal lengths, shared tasks.

    Weights are positive in every trajectory that has a turn.
    """
    equal = draw(st.booleans())
    if equal:
        lengths = [draw(st.integers(1, max_T))] * draw(st.integers(1, max_B))
    else:
        lengths = draw(st.lists(st.integers(0, max_T), min_size=1, max_size=max_B).filter(any))
    B, N = len(lengths), sum(lengths)
    S = draw(st.sampled_from([1, 2, 3, 7]))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    weights = np.array(draw(st.lists(WEIGHTS, min_size=N, max_size=N)), np.float32)
    first_turns = offsets[:-1][np.diff(offsets) > 0]
    weights[first_turns] = np.maximum(weights[first_turns], np.float32(0.25))
    values = draw(st.lists(WEIGHTS, min_size=N * features, max_size=N * features))
    return Trajectories(
        offsets,
        draw(st.lists(st.integers(0, S - 1), min_size=N, max_size=N)),
        draw(st.lists(st.integers(0, draw(st.sampled_from([0, 2, 9]))), min_size=B, max_size=B)),
        n_states=S + draw(st.integers(0, 1)),
        features=np.array(values).reshape(N, features) if features else None,
        weights=weights,
    )


@st.composite
def filters(draw: st.DrawFn, batch: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """psi [B] and p_phi [N] that leave at least one context some weight; p_phi in eighths, so exact."""
    B, N = len(batch), batch.n_turns
    psi = np.array(draw(st.lists(st.integers(0, 1), min_size=B, max_size=B)))
    p_phi = np.array(draw(st.lists(st.integers(0, 8), min_size=N, max_size=N))) / 8
    turn = draw(st.integers(0, N - 1))
    psi[np.searchsorted(batch.offsets, turn, side="right") - 1] = 1
    p_phi[turn] = max(p_phi[turn], 0.125)
    return psi, p_phi
