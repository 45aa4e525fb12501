"""Likelihood of held-out turns with dense matrices, one context and one kappa after the other."""

from __future__ import annotations

import numpy as np

from analysis.plan.calibrate import HELD_OUT_ERROR, TOP, TOP_SPREAD


def held_out(turns: list[tuple[int, int, float, float, float]], grid: np.ndarray) -> np.ndarray:
    """turns: (context, training, labels, before, after); returns the log likelihood up to a constant."""
    cells: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for context, training, labels, before, after in turns:
        if labels > 0:
            cells.setdefault((context, training), []).append((labels, np.exp(-before), np.exp(-after)))
    means = {key: np.mean(rows, axis=0) for key, rows in cells.items()}
    squares = sum((row[2] - means[key][2]) ** 2 for key, rows in cells.items() for row in rows)
    variance = max(squares / max(sum(len(rows) - 1 for rows in cells.values()), 1), 1e-3)
    raw = []
    for kappa in grid:
        parts = []
        for place in sorted({context for context, _ in cells}):
            keys = [key for key in sorted(cells) if key[0] == place]
            n, low, chance = np.array([means[key] for key in keys]).T
            left = kappa / (n + kappa)
            V = np.diag([variance / len(cells[key]) for key in keys])
            V = V + TOP_SPREAD**2 * np.outer(1 - left, 1 - left)
            parts.append((chance - left * low, 1 - left, V))
        gg = sum(g @ np.linalg.solve(V, g) for _, g, V in parts)
        gy = sum(g @ np.linalg.solve(V, y) for y, g, V in parts)
        top = min((gy + TOP[0] / TOP[1] ** 2) / (gg + 1 / TOP[1] ** 2), 1.0)
        fit = sum((y - g * top) @ np.linalg.solve(V, y - g * top) for y, g, V in parts)
        size = sum(np.linalg.slogdet(V)[1] for _, _, V in parts)
        raw.append(-0.5 * (fit + size + ((top - TOP[0]) / TOP[1]) ** 2))
    blurred = []
    for at in range(len(grid)):
        total = 0.0
        for j in range(len(grid)):
            weights = np.exp(-0.5 * (np.log(grid / grid[j]) / HELD_OUT_ERROR) ** 2)
            total += np.exp(raw[j] - max(raw)) * weights[at] / weights.sum()
        blurred.append(np.log(total))
    return np.array(blurred)
