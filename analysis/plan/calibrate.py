"""The learning curve from small training runs: a posterior of kappa on a grid.

kappa is the number of labelled turns after which half of a context is learnt: the student is teacher-like
there with chance n / (n + kappa). Before any training its prior is wide and a plan is a ranking only. Two
things move it:

pass@1    what trained students reached in an evaluation, against the model's prediction for the very turns
          that they were trained on, at every kappa of the grid
held out  the teacher's turns that a training was measured on: the chance that the student makes them
          (e^-NLL a target) leaves what it was before as kappa / (n + kappa) does, n being the labels at the
          same context. That is the planner's curve, on the scale of chances. It leans on how sure the
          teacher is of its turns, so it is believed to within a factor only

Axes: R trainings, D draws of the model, G the grid, N turns held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.pilot import STEP_KINDS, Floats, Ints, Steps
from analysis.plan.reading import COARSER
from occupancy.record.errors import InputError

KAPPA, KAPPA_SPREAD = 1.5, 0.8
"""Prior where contexts come again: log-normal around the first, with this standard deviation of the
logarithm."""
MANY, MANY_SPREAD = 0.7, 1.1
"""Prior where a state or a text stands for many contexts, in labels that the pilot's own traces are at a
usual one: they teach 59 % of what is there (19 to 90 % at 90 %). No pilot says how fast a model learns."""
GRID = np.geomspace(0.05, 50, 41)
MODEL_ERROR = 0.03
"""Standard deviation of what the model gets wrong in pass@1, whatever kappa is."""
HELD_OUT_ERROR = 0.5
"""Standard deviation of log kappa as held-out turns measure it, against the kappa that pass@1 shows."""
TOP, TOP_SPREAD = (0.95, 0.05), 0.15
"""A teacher's turn once all is learnt: its mean chance, that mean's error, and the spread of contexts."""
LEVEL = 0.9


@dataclass(frozen=True)
class Kappa:
    """Weights on a grid of kappa."""

    grid: Floats
    """[G] rising."""
    weights: Floats
    """[G] they sum to 1."""

    @property
    def centre(self) -> float:
        """Exponential of the mean logarithm."""
        return float(np.exp(self.weights @ np.log(self.grid)))

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm."""
        log = np.log(self.grid)
        return float(np.sqrt(self.weights @ (log - self.weights @ log) ** 2))

    def draws(self, n: int, rng: np.random.Generator) -> Floats:
        """[n] values, spread evenly in the logarithm within the cells of the grid."""
        edges = np.log(self.grid)
        middle = (edges[1:] + edges[:-1]) / 2
        low = np.concatenate([edges[:1], middle])
        high = np.concatenate([middle, edges[-1:]])
        cell = rng.choice(len(self.grid), size=n, p=self.weights)
        return np.asarray(np.exp(low[cell] + (high - low)[cell] * rng.random(n)))

    def to_dict(self) -> dict[str, float]:
        """Centre and 90 % band, for JSON."""
        low, high = self.band()
        return {"centre": self.centre, "low": low, "high": high}

    def band(self) -> tuple[float, float]:
        """90 % of the weight."""
        running = np.cumsum(self.weights)
        low, high = np.searchsorted(running, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(self.grid[low]), float(self.grid[min(high, len(self.grid) - 1)])


def prior(centre: float = KAPPA, spread: float = KAPPA_SPREAD) -> Kappa:
    """Log-normal, on the grid moved to its centre."""
    return _normal(-0.5 * (np.log(GRID / KAPPA) / spread) ** 2, GRID * (centre / KAPPA))


def prior_of(steps: Steps) -> Kappa:
    """What is believed before any training, by what tells the pilot's contexts apart."""
    if steps.identity not in COARSER:
        return prior()
    bought = [STEP_KINDS.index(kind) for kind in ("demo", "continuation")]
    at = steps.node[steps.teacher & np.isin(steps.kind, bought)]
    labels = np.bincount(at, minlength=int(steps.node.max()) + 1)[steps.node[~steps.teacher]]
    # What stands for many contexts is learnt no faster than one of them.
    return prior(max(MANY * float(np.median(labels)), KAPPA), MANY_SPREAD)


def kappa_posterior(
    predicted: Floats,
    measured: Floats,
    se: Floats,
    *,
    before: Kappa | None = None,
    discrepancy: float = MODEL_ERROR,
    loglik: Floats | None = None,
) -> Kappa:
    """Posterior of kappa from pass@1 of trained students.

    before: the prior. predicted: [R, G] at its grid, or [R, D, G] with draws of everything else in the
    model, over which the likelihood is averaged; measured, se: [R] of an evaluation. discrepancy: the
    model's own error, the same in all R.
    loglik: [G] of other evidence, as `held_out_loglik` gives it.
    """
    before = before or prior()
    predicted, measured, se = (np.asarray(part, np.float64) for part in (predicted, measured, se))
    if predicted.ndim == 2:
        predicted = predicted[:, None]
    R = len(measured)
    if predicted.shape[::2] != (R, len(before.grid)) or se.shape != (R,) or not (discrepancy > 0):
        raise InputError(
            f"predictions {predicted.shape}, {R} measurements, {se.shape} errors, discrepancy "
            f"{discrepancy}: expected [R, G] or [R, D, G] with G = {len(before.grid)}, R of both others, "
            f"and a discrepancy above 0"
        )
    apart = predicted - measured[:, None, None]
    # The model's error is shared by all trainings: the covariance is diag(se^2) + discrepancy^2.
    weight = np.linalg.inv(np.diag(np.maximum(se, 1e-6) ** 2) + discrepancy**2) if R else np.zeros((0, 0))
    by_draw = -0.5 * np.einsum("rdg,rs,sdg->dg", apart, weight, apart)
    seen = _mean_of_exp(by_draw) + (0.0 if loglik is None else loglik)
    return _normal(seen + np.log(before.weights), before.grid)


def held_out_loglik(
    *, context: Ints, training: Ints, labels: Floats, before: Floats, after: Floats, grid: Floats = GRID
) -> Floats:
    """[G] log likelihood of kappa from the teacher's turns that trainings were measured on.

    context, training: [N] where each turn was and which training measured it; labels: [N] turns that were
    trained on at that context; before, after: [N] its NLL in nats a target under base and trained student.
    Turns at contexts without a label say nothing. Cells are a context in a training; each context has a top
    of its own, the chance when all is learnt, TOP on average. What is left over is blurred by HELD_OUT_ERROR.
    """
    known = labels > 0
    if not known.any():
        return np.zeros(len(grid))
    cells, at = np.unique(np.column_stack([context, training])[known], axis=0, return_inverse=True)
    count = np.bincount(at)
    n, low, chance = (
        np.bincount(at, part) / count
        for part in (labels[known], np.exp(-before[known]), np.exp(-after[known]))
    )
    scatter = ((np.exp(-after[known]) - chance[at]) ** 2).sum()
    noise = max(scatter / max((count - 1).sum(), 1), _LEAST_VARIANCE) / count
    place = np.unique(cells[:, 0], return_inverse=True)[1]
    raw = np.array([_cells_loglik(kappa / (n + kappa), low, chance, noise, place) for kappa in grid])
    apart = np.log(grid)[:, None] - np.log(grid)
    blur = np.exp(-0.5 * (apart / HELD_OUT_ERROR) ** 2)
    seen = np.exp(raw - raw.max()) @ (blur / blur.sum(0)).T
    return np.asarray(np.log(np.maximum(seen, 1e-300)))


def _cells_loglik(left: Floats, low: Floats, chance: Floats, noise: Floats, place: Ints) -> float:
    """chance = left * low + (1 - left) * top + noise, a normal top for each place, their mean profiled."""
    gone, y = 1 - left, chance - left * low
    q, u, v = (np.bincount(place, part / noise) for part in (gone**2, gone * y, y**2))
    shrunk = 1 / (1 + TOP_SPREAD**2 * q)  # a rank-one update of a diagonal: Sherman and Morrison
    gg, gy = (q * shrunk).sum(), (u * shrunk).sum()
    yy = (v - TOP_SPREAD**2 * u**2 * shrunk).sum()
    mean, error = TOP
    top = min((gy + mean / error**2) / (gg + 1 / error**2), 1.0)
    fit = yy - 2 * top * gy + top**2 * gg + ((top - mean) / error) ** 2
    return float(-0.5 * (fit + np.log(noise).sum() - np.log(shrunk).sum()))


_LEAST_VARIANCE = 1e-3
"""Of a turn's chance: equal turns by accident are no certainty."""


def _mean_of_exp(loglik: Floats) -> Floats:
    """[G] log of the mean likelihood over draws [D, G]."""
    top = loglik.max()
    return np.asarray(np.log(np.maximum(np.exp(loglik - top).mean(0), 1e-300)) + top)


def _normal(loglik: Floats, grid: Floats) -> Kappa:
    weights = np.exp(loglik - loglik.max())
    return Kappa(grid, weights / weights.sum())
