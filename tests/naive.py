"""Obviously right twins of the kernels: plain Python over lists of turns, with exact fractions for sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from occupancy import Trajectories

MASK = 2**64 - 1


def splitmix64(state: int, n: int) -> list[int]:
    """First n outputs of SplitMix64 as published: a state that steps by a constant, mixed."""
    outputs = []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        outputs.append(z ^ (z >> 31))
    return outputs


def uniform_of(seed: int, trajectory: int, draw: int) -> Fraction:
    """The number in [0, 1) that belongs to (seed, trajectory, draw)."""
    over_draws = splitmix64(seed, 1)[0]
    over_trajectories = splitmix64(over_draws, draw + 1)[draw]
    return Fraction(splitmix64(over_trajectories, trajectory + 1)[trajectory] >> 11, 2**53)


def first_above(u: Fraction, masses: Sequence[Fraction]) -> int:
    """Smallest t, counted from 1, with masses_1 + .. + masses_t > u * sum of masses."""
    running = Fraction(0)
    for t, mass in enumerate(masses, start=1):
        running += mass
        if running > u * sum(masses):
            return t
    raise AssertionError("u is below 1")


def turns(batch: Trajectories) -> Iterator[tuple[int, int, int]]:
    """(trajectory b, place t = 1..T, turn i) of every context."""
    for b in range(len(batch)):
        begin, end = int(batch.offsets[b]), int(batch.offsets[b + 1])
        for i in range(begin, end):
            yield b, i - begin + 1, i


def context_weights(
    batch: Trajectories,
    convention: str,
    psi: Sequence[float] | None = None,
    p_phi: Sequence[float] | None = None,
) -> list[Fraction]:
    """w_t(tau) Psi p_Phi of every turn, exactly."""
    T = [int(n) for n in batch.lengths]
    weights = []
    for b, _, i in turns(batch):
        if convention == "pooled":
            w = Fraction(1)
        elif convention == "trajectory":
            w = Fraction(1, T[b])
        elif convention == "task":
            w = Fraction(1, sum(n for n, q in zip(T, batch.tasks, strict=True) if q == batch.tasks[b]))
        else:
            assert batch.weights is not None
            w = Fraction(float(batch.weights[i]))
        if psi is not None:
            w *= Fraction(float(psi[b]))
        if p_phi is not None:
            w *= Fraction(float(p_phi[i]))
        weights.append(w)
    return weights


def occupancy(batch: Trajectories, weights: Sequence[Fraction]) -> list[Fraction]:
    """Share of each state in the weighted contexts."""
    total = sum(weights)
    share = [Fraction(0)] * batch.n_states
    for _, _, i in turns(batch):
        share[batch.states[i]] += weights[i] / total
    return share


def ratio_and_variance(
    batch: Trajectories, weights: Sequence[Fraction], values: Sequence[Fraction]
) -> tuple[Fraction, Fraction | None]:
    """R = sum_q A_q / sum_q B_q and C/(C-1) sum_q (A_q - R B_q)^2 / (sum_q B_q)^2, values one a turn."""
    A: dict[int, Fraction] = {}
    B: dict[int, Fraction] = {}
    for b, _, i in turns(batch):
        q = int(batch.tasks[b])
        A[q] = A.get(q, Fraction(0)) + weights[i] * values[i]
        B[q] = B.get(q, Fraction(0)) + weights[i]
    R = sum(A.values()) / sum(B.values())
    C = sum(b > 0 for b in B.values())
    if C == 1:
        return R, None
    residuals = sum((A[q] - R * B[q]) ** 2 for q in A)
    return R, Fraction(C, C - 1) * residuals / sum(B.values()) ** 2


def ess(weights: Sequence[Fraction]) -> Fraction:
    """Kish effective number of contexts."""
    return sum(weights) ** 2 / sum(w * w for w in weights)
