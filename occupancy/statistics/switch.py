"""Switch times t', the first turn that the teacher plays: one draw a trajectory from a `SwitchLaw`.

`draw_switches` serves batches by numba kernels, `draw_switch` one trajectory in plain Python; the same
(seed, trajectory, draw) gives the same t' in both, on any number of threads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from occupancy.kernels.rng import bits, require_words, stream_key, uniform
from occupancy.record.errors import DataError, RecipeError
from occupancy.record.recipe import SwitchLaw
from occupancy.record.types import Float64, Int32, Trajectories, refuse_weights


class Draw(NamedTuple):
    """One switch time. t_prime = 0 means that the trajectory is empty and nothing was drawn."""

    t_prime: int
    probability: float
    """Of this t' given tau; under a fixed law the mass nu_t'."""
    accepted: bool
    """False where t' > T (outcome `invalid_switch`) or T = 0 (outcome `empty`)."""


@dataclass(frozen=True)
class Switches:
    """One draw of t' for every trajectory of a batch; fields as in `Draw`."""

    t_prime: Int32
    """[B] 1 <= t', or 0 where T = 0."""
    probability: Float64
    """[B] of this t' given tau; 0 where T = 0."""
    accepted: npt.NDArray[np.bool_]
    """[B] False where t' > T or T = 0."""


def draw_switches(
    trajectories: Trajectories,
    law: SwitchLaw,
    *,
    seed: int,
    draw: int = 0,
    first: int = 0,
    T_max: int | None = None,
) -> Switches:
    """One switch time t' a trajectory, drawn from `law`.

    Args:
        trajectories: B trajectories; their weights are used by the law `weights` alone.
        law: T_switch, such as preset("oec").switch.
        seed: From 0 to 2**64 - 1.
        draw: Number of an independent draw for the same trajectories.
        first: Number of the batch's first trajectory: a part of a larger data set then gets the draws
            that the whole would give it.
        T_max: Horizon in turns; needed by a fixed law without nu, which is Unif{1..T_max}.

    Raises:
        DataError: The weights of a trajectory sum to zero, or a trajectory is longer than T_max.
        RecipeError: The teacher decides t', or T_max is missing.
    """
    from occupancy.kernels import draw as kernels

    _refuse(law, T_max)
    longest = int(trajectories.lengths.max(initial=0))
    _refuse_length(longest, law, T_max)
    B = len(trajectories)
    out = Switches(np.empty(B, np.int32), np.empty(B, np.float64), np.empty(B, np.bool_))
    require_words(first=first)
    stream = kernels.Stream(np.uint64(stream_key(seed, draw)), np.uint64(first))
    drawn = kernels.Drawn(out.t_prime, out.probability, out.accepted)
    if law.law == "start":
        for column in (out.accepted, out.t_prime, out.probability):
            column[:] = trajectories.lengths > 0
    elif law.law == "uniform" or (law.law == "fixed" and not law.nu):
        top = 0 if law.law == "uniform" or T_max is None else T_max
        kernels.draw_uniform(trajectories.offsets, top, stream, drawn)
    elif law.law == "fixed":
        nu, cdf = (np.array(column, np.float64) for column in (law.nu, _running(law.nu)))
        kernels.draw_fixed(trajectories.offsets, nu, cdf, stream, drawn)
    else:
        if trajectories.weights is None:
            raise DataError("switch law 'weights' on a batch without weights: give Trajectories(weights=...)")
        bad = kernels.draw_weighted(trajectories.offsets, trajectories.weights, stream, drawn)
        if bad >= 0:
            raise _zero_weights(f"trajectory {bad}")
    return out


def draw_switch(
    T: int,
    law: SwitchLaw,
    *,
    seed: int,
    trajectory: int,
    draw: int = 0,
    T_max: int | None = None,
    weights: Sequence[float] | None = None,
) -> Draw:
    """The t' that `draw_switches` draws for trajectory number `trajectory` of length T and `weights` [T]."""
    _refuse(law, T_max)
    _refuse_length(T, law, T_max)
    if T == 0:
        return Draw(0, 0.0, False)
    if law.law == "start":
        return Draw(1, 1.0, True)
    u = uniform(bits(seed, draw, trajectory))
    if law.law == "uniform":
        return Draw(1 + int(u * T), 1.0 / T, True)
    if law.law == "fixed" and not law.nu:
        assert T_max is not None  # _refuse has seen it
        at = int(u * T_max)
        return Draw(at + 1, 1.0 / T_max, at < T)
    if law.law == "fixed":
        at = bisect_right(_running(law.nu), u)
        return Draw(at + 1, law.nu[at], at < T)
    if weights is None or len(weights) != T:
        raise DataError(
            f"switch law 'weights' with T={T} and "
            f"{'no weights' if weights is None else f'{len(weights)} weights'}: expected one weight a turn"
        )
    w = [float(weight) for weight in weights]
    refuse_weights(np.array(w))
    sums = list(accumulate(w))
    if not sums[-1] > 0:
        raise _zero_weights(f"trajectory {trajectory}")
    at = bisect_right(sums, u * sums[-1])
    return Draw(at + 1, w[at] / sums[-1], True)


def _refuse(law: SwitchLaw, T_max: int | None) -> None:
    if law.law == "teacher":
        raise RecipeError(
            "switch law 'teacher': t' is the teacher's answer, not a draw from a known law; "
            "take it from the proposals of the run"
        )
    if law.law == "fixed" and not law.nu and (T_max is None or T_max < 1):
        raise RecipeError(f"law 'fixed' without nu is Unif{{1..T_max}}, but T_max={T_max}: give T_max >= 1")


def _refuse_length(longest: int, law: SwitchLaw, T_max: int | None) -> None:
    if longest < 0:
        raise DataError(f"T={longest}: a length cannot be negative")
    if longest > np.iinfo(np.int32).max:
        raise DataError(f"a trajectory has {longest} turns: expected fewer than 2**31")
    if law.law == "fixed" and T_max is not None and longest > T_max:
        raise DataError(f"a trajectory has {longest} turns with T_max={T_max}: expected T <= T_max")


def _zero_weights(where: str) -> DataError:
    return DataError(f"the weights of {where} sum to zero: expected a positive weight in its turns")


def _running(nu: Sequence[float]) -> list[float]:
    """nu_1 + .. + nu_t for every t; exactly 1 from the last t with mass on."""
    cdf = list(accumulate(nu))
    last = max(t for t, mass in enumerate(nu) if mass > 0)
    cdf[last:] = [1.0] * (len(nu) - last)
    return cdf
