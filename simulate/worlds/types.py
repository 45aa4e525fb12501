"""The record of a world, validated once. `help(simulate)` lists the axes S, X, A, U, D, T."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.record.errors import InputError
from simulate.worlds.students import Student, Tabular

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class WorldError(InputError):
    """A world that no episode could be played in."""


@dataclass(frozen=True, eq=False)
class World:
    """A finite-horizon Markov decision process with a teacher and a base student.

    Both the student and its features see contexts; the teacher sees states, so that it may know what a
    context hides.
    """

    name: str
    start: Float64
    """[S] law of the first state: the task is drawn with it."""
    successors: Int32
    """[S, U] ids of the states that can follow; S and S + 1 are the ends."""
    chances: Float64
    """[S, A, U] law of the successor; each row [s, a] sums to one."""
    teacher: Float64
    """[S, A] pi_e."""
    base: Float64
    """[X, A] pi_0, the student before any training."""
    contexts: Int32
    """[S] context of each state."""
    features: Float64
    """[X, D] what the log-linear student reads."""
    tokens: Int64
    """[S] output tokens of a teacher turn played there, at least 1."""
    horizon: int
    """T_max, turns."""
    student: Student = Tabular()  # noqa: RUF009 - frozen
    """What is trained in this world, unless a call names another."""
    shown: Int32 = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    """[S] id under which a pilot records a state; by default its own. States that look alike to everybody,
    such as those of hopeless tasks, share one."""

    def __post_init__(self) -> None:
        if not len(self.shown):
            object.__setattr__(self, "shown", np.arange(len(self.start), dtype=np.int32))
        for name, (dtype, axes) in _FIELDS.items():
            given = np.asarray(getattr(self, name))
            if given.ndim != len(axes):
                raise WorldError(f"{name} has shape {given.shape}: expected {len(axes)} axes")
            with np.errstate(invalid="ignore"):  # NaN and infinities, which are no whole numbers
                whole = dtype is np.float64 or np.array_equal(given, given.astype(dtype))
            if not whole:
                raise WorldError(f"{name} has type {given.dtype}: expected whole numbers ({np.dtype(dtype)})")
            array = np.array(given, dtype, order="C")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._check_shapes()
        self._check_values()
        self._check_reach()

    def _check_shapes(self) -> None:
        S, U = self.successors.shape
        A, X, D = self.chances.shape[1], len(self.base), self.features.shape[1]
        sizes = {"S": S, "U": U, "A": A, "X": X, "D": D}
        for field, (_, axes) in _FIELDS.items():
            given, expected = getattr(self, field).shape, tuple(sizes[axis] for axis in axes)
            if given != expected:
                raise WorldError(
                    f"{field} has shape {given}: expected {expected} (S={S}, A={A}, U={U}, X={X})"
                )
        if not S or not A or not isinstance(self.horizon, int) or self.horizon < 1:
            raise WorldError(f"S={S}, A={A}, horizon={self.horizon!r}: expected at least 1 of each")

    def _check_values(self) -> None:
        S, X = len(self.start), len(self.base)
        for field in ("start", "chances", "teacher", "base"):
            _check_law(field, getattr(self, field))
        for field, limit, letter in (("successors", S + 2, "S + 2"), ("contexts", X, "X"), ("shown", S, "S")):
            ids = getattr(self, field)
            _refuse(field, ids, (ids < 0) | (ids >= limit), f"an id from 0 below {letter} = {limit}")
        _refuse("tokens", self.tokens, self.tokens < 1, "a cost of at least 1 token a turn")
        _refuse("features", self.features, ~np.isfinite(self.features), "finite numbers")

    def _check_reach(self) -> None:
        S = len(self.start)
        possible = (self.chances > 0).any(axis=1)
        # One more turn from the end at each pass; a world of n states needs at most n passes.
        reached = np.zeros(S + 2, bool)
        reached[S] = True
        for _ in range(min(self.horizon, S)):
            reached[:S] |= (possible & reached[self.successors]).any(axis=1)
        # A hopeless task is no mistake where another one, that looks the same, can be solved.
        solvable = np.zeros(len(self.base), bool)
        solvable[self.contexts[reached[:S]]] = True
        lost = (self.start > 0) & ~solvable[self.contexts]
        if lost.any():
            at = int(np.argmax(lost))
            raise WorldError(
                f"start[{at}] = {self.start[at]:g}, but success cannot be reached from state {at} within "
                f"{self.horizon} turns: give it a path to the end {S}, or start it with chance 0"
            )

    @property
    def S(self) -> int:
        """Number of states that are not an end; also the id of success."""
        return len(self.start)

    @property
    def A(self) -> int:
        """Number of actions."""
        return int(self.chances.shape[1])

    @property
    def X(self) -> int:
        """Number of contexts."""
        return len(self.base)

    def by_state(self, policy: npt.ArrayLike) -> Float64:
        """[S, A] a policy over contexts [X, A], looked up at every state."""
        table = np.asarray(policy, np.float64)
        if table.shape != self.base.shape:
            raise WorldError(
                f"policy has shape {table.shape}: expected {self.base.shape} (contexts, actions)"
            )
        return table[self.contexts]


_FIELDS: dict[str, tuple[type[np.generic], str]] = {
    "start": (np.float64, "S"),
    "successors": (np.int32, "SU"),
    "chances": (np.float64, "SAU"),
    "teacher": (np.float64, "SA"),
    "base": (np.float64, "XA"),
    "contexts": (np.int32, "S"),
    "features": (np.float64, "XD"),
    "tokens": (np.int64, "S"),
    "shown": (np.int32, "S"),
}
"""Type and axes of each array."""


def _refuse(field: str, values: np.ndarray, bad: np.ndarray, expected: str) -> None:
    """Name the first bad value."""
    if bad.any():
        at = np.argwhere(bad)[0].tolist()
        raise WorldError(f"{field}{at} = {values[tuple(at)]}: expected {expected}")


def _check_law(field: str, rows: Float64) -> None:
    _refuse(field, rows, ~np.isfinite(rows) | (rows < 0), "a probability >= 0")
    sums = np.asarray(rows.sum(axis=-1))
    wrong = np.abs(sums - 1) > 1e-9
    if wrong.any():
        row = np.argwhere(wrong)[0].tolist()
        where = f"row {row} of {field}" if row else field
        raise WorldError(f"{where} sums to {sums[tuple(row)]:.12g}: expected 1")
