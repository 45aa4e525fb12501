"""A batch of trajectories as flat columns: the input of every kernel.

Axes, used in all docstrings of this package:

    B  trajectories in the batch
    N  turns in the batch, sum of the lengths T_b
    D  features of a context
    S  states (classes of contexts under the state abstraction)
    Q  tasks, the clusters of every standard error
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.record.errors import DataError

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating]
MOST_WEIGHT = 1e100
"""Squares of such weights, added over any number of turns, are far from the ends of a float64."""


def _first(bad: npt.ArrayLike) -> int | None:
    """Place of the first that is true; None where none is."""
    return int(np.argmax(bad)) if np.any(bad) else None


def refuse_weights(weights: Floats, where: str = "") -> None:
    """DataError for weights that are negative, not finite, or whose squares vanish or overflow in sums."""
    w = weights.astype(np.float64)
    if (at := _first(~np.isfinite(w) | (w < 0))) is not None:
        raise DataError(f"{where or f'turn {at}, '}weight {w[at]}: expected a finite number >= 0")
    if (at := _first((w > 0) & ((w < 1 / MOST_WEIGHT) | (w > MOST_WEIGHT)))) is not None:
        raise DataError(
            f"weight {weights[at]}: expected 0, or a number from {1 / MOST_WEIGHT:g} to "
            f"{MOST_WEIGHT:g}; only ratios of weights count, so divide all of them by one number"
        )


def refuse_not_finite(features: Floats) -> None:
    """DataError for features [N, D] of which one is NaN or infinite."""
    if (at := _first(~np.isfinite(features).all(axis=1))) is not None:
        raise DataError(f"features of turn {at} are {features[at].tolist()}: expected finite numbers")


@dataclass(frozen=True)
class Trajectories:
    """Variable-length trajectories in compressed-sparse-row form, validated once.

    Trajectory b owns the turns offsets[b] .. offsets[b + 1] - 1. The state, features and weight of turn t are
    those of the context h_{t-1} that the policy reads before it. A trajectory may have no turn (T = 0).

    Raises:
        DataError: A column has the wrong shape, type or range; the message names the entry.

    Example:
        >>> batch = Trajectories(offsets=[0, 3, 5], states=[0, 1, 2, 0, 1], tasks=[0, 1])
        >>> len(batch), batch.n_turns, batch.lengths.tolist()
        (2, 5, [3, 2])
    """

    offsets: Int64
    """[B + 1] first turn of each trajectory; offsets[0] = 0, offsets[B] = N, never falling."""
    states: Int32
    """[N] state id of the context before each turn, 0 <= id < n_states."""
    tasks: Int32
    """[B] task of each trajectory, 0 <= id: the cluster of every standard error."""
    n_states: int
    """S; by default the largest id plus one."""
    features: Floats | None = None
    """[N] or [N, D] values to average over contexts, in float32 or float64 as given."""
    weights: Floats | None = None
    """[N] w_t(tau) >= 0, finite; None where the estimator's convention sets it."""

    def __init__(
        self,
        offsets: npt.ArrayLike,
        states: npt.ArrayLike,
        tasks: npt.ArrayLike,
        *,
        n_states: int | None = None,
        features: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "offsets", _integers("offsets", offsets, np.int64))
        set_(self, "states", _integers("states", states, np.int32))
        set_(self, "tasks", _integers("tasks", tasks, np.int32))
        largest = int(self.states.max(initial=-1))
        set_(self, "n_states", largest + 1 if n_states is None else int(n_states))
        set_(self, "features", None if features is None else exact_floats("features", features))
        set_(self, "weights", None if weights is None else exact_floats("weights", weights))
        self._validate(largest)

    def _validate(self, largest: int) -> None:
        offsets, turns = self.offsets, len(self.states)
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0:
            raise DataError(
                f"offsets start with {offsets[:1].tolist()} and have shape {offsets.shape}: expected a "
                f"vector of length B + 1 that starts with 0"
            )
        if (at := _first(np.diff(offsets) < 0)) is not None:
            fall = f"fall from {offsets[at]} to {offsets[at + 1]} at trajectory {at}"
            raise DataError(f"offsets {fall}: a length cannot be negative")
        if offsets[-1] != turns:
            raise DataError(f"offsets end at {offsets[-1]} with {turns} states: expected the same number")
        if self.tasks.shape != (len(self),):
            raise DataError(f"{len(self.tasks)} task ids for {len(self)} trajectories: expected one each")
        if (at := _first(self.tasks < 0)) is not None:
            raise DataError(f"task id {self.tasks[at]} at trajectory {at}: expected ids from 0 up")
        if turns and int(self.states.min()) < 0:
            at = _first(self.states < 0)
            raise DataError(f"state id {self.states[at]} at turn {at}: expected ids from 0 up")
        if largest >= self.n_states:
            raise DataError(f"state id {largest} with n_states={self.n_states}: expected ids below n_states")
        if self.features is not None and len(self.features) != turns:
            raise DataError(f"{len(self.features)} feature rows for {turns} turns: expected one a turn")
        if self.weights is not None:
            if self.weights.shape != (turns,):
                raise DataError(f"weights have shape {self.weights.shape}: expected ({turns},), one a turn")
            refuse_weights(self.weights)

    def __len__(self) -> int:
        """B, empty trajectories included."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        """[B] T of each trajectory."""
        return np.diff(self.offsets)

    @property
    def feature_rows(self) -> Floats | None:
        """[N, D] features with an axis of their own, D = 1 where they have none."""
        if self.features is None or self.features.ndim == 2:
            return self.features
        return self.features.reshape(len(self.features), int(np.prod(self.features.shape[1:])))

    @property
    def n_turns(self) -> int:
        """N, all turns."""
        return int(self.offsets[-1])

    @property
    def n_empty(self) -> int:
        """Trajectories without a turn: they carry no context and enter no normaliser."""
        return int((self.lengths == 0).sum())


def _integers(name: str, values: npt.ArrayLike, dtype: type) -> npt.NDArray[np.signedinteger]:
    """Contiguous vector of `dtype`; fractions and values that do not fit are refused, never wrapped."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(array.shape, dtype)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{name} have type {array.dtype} and shape {array.shape}: expected a vector of integers; "
            f"numpy.unique(values, return_inverse=True)[1] makes ids of texts"
        )
    top = np.iinfo(dtype).max
    if int(array.max()) > top or int(array.min()) < np.iinfo(dtype).min:
        raise DataError(f"{name} reach {int(array.max())}: expected at most {top} ({np.dtype(dtype)})")
    return np.ascontiguousarray(array, dtype)


def exact_floats(name: str, values: npt.ArrayLike) -> Floats:
    """Contiguous float32 or float64 with the very values given; numbers that neither can hold are refused.

    float32 and float64 stay as they are; narrower types become float32, wider ones float64.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} have type {array.dtype}: expected numbers")
    if array.dtype in (np.float32, np.float64):
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        floats = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        changed = (floats.astype(array.dtype) != array) & ~np.isnan(floats)
    if changed.any():
        raise DataError(f"{name} hold {array[changed][0]}, which no float64 equals: round or rescale them")
    return np.ascontiguousarray(floats)
