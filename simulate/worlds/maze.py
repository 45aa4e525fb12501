"""Maze worlds: long horizon. Walk a grid with walls, pits and a slippery floor to one of several goals.

The teacher is unsure in fog, and its ways lead through cells where the student never was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from occupancy.record.specs import Few, Fraction, Range, Share
from simulate.worlds.hardships import Draft, Hardships, best_turns, finished
from simulate.worlds.types import Float64, Int64, World, WorldError

MOVES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
ACROSS = ((2, 3), (2, 3), (0, 1), (0, 1))
WALL, OPEN, PIT = 0, 1, 2
DISCOUNT, SWEEPS = 0.97, 80


@dataclass(frozen=True)
class Maze(Hardships):
    """Knobs of a maze world."""

    side: Annotated[int, Range(4)] = 10
    """Cells along a side."""
    goals: Few = 7
    walls: Share = 0.15
    """Fraction of cells that are walls."""
    pits: Share = 0.04
    """Fraction of cells that end the episode in failure."""
    slip: Fraction = 0.07
    """Chance that a move goes sideways."""
    fog: Share = 0.35
    """Fraction of cells where the teacher is unsure."""
    horizon: Few = 34
    """T_max, turns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.walls + self.pits > 0.4:
            raise WorldError(
                f"walls={self.walls}, pits={self.pits}: expected fractions that sum to at most .4"
            )


def maze_world(knobs: Maze, *, name: str = "maze") -> World:
    """Build the world that the knobs describe; the same knobs give the same world."""
    rng = np.random.default_rng(knobs.seed)
    grid = _grid(knobs, rng)
    cells = np.argwhere(grid == OPEN)
    C = len(cells)
    G = min(knobs.goals, C)
    goals = rng.permutation(C)[:G]
    S = G * C
    goal, cell = np.divmod(np.arange(S), C)
    number = np.full(grid.shape, -1)
    number[tuple(cells.T)] = np.arange(C)
    ahead = cells[:, None] + MOVES
    what = grid[ahead[..., 0], ahead[..., 1]]
    # [S, 4] where each move leads without a slip: walls hold, pits end, the goal solves.
    to = np.where(what == OPEN, number[ahead[..., 0], ahead[..., 1]], np.arange(C)[:, None])[cell]
    ends = np.where(to == goals[goal][:, None], S, goal[:, None] * C + to)
    ends = np.where((what == PIT)[cell], S + 1, ends)
    chances = np.zeros((S, 4, 4))
    for action, move in enumerate(rng.permutation(4)):
        chances[:, action, move] = 1 - knobs.slip
        for side in ACROSS[move]:
            chances[:, action, side] = knobs.slip / 2
    foggy = (rng.random(C) < knobs.fog)[cell]
    way = cells[goals[goal]] - cells[cell]
    draft = Draft(
        start=(np.abs(way).sum(axis=1) >= min(5, knobs.side // 2)).astype(float),
        successors=ends.astype(np.int32),
        chances=chances,
        right=best_turns(ends, chances, turns=SWEEPS, discount=DISCOUNT),
        error=np.where(foggy, 0.25, 0.04) * rng.uniform(0.6, 1.4, S),
        latent=_looks(cells[cell], way, what[cell], foggy, rng),
        tokens=rng.uniform(30, 90) * np.where(foggy, 1.6, 1.0) * rng.uniform(0.8, 1.2, S),
        horizon=knobs.horizon,
    )
    return finished(draft, knobs, rng, name=name)


def _grid(knobs: Maze, rng: np.random.Generator) -> Int64:
    """[side + 2, side + 2] WALL, OPEN or PIT, walled in; open cells are all connected."""
    from scipy.ndimage import label

    n = knobs.side
    while True:
        inner = rng.choice(
            [WALL, OPEN, PIT], (n, n), p=[knobs.walls, 1 - knobs.walls - knobs.pits, knobs.pits]
        )
        rooms, _ = label(inner == OPEN)
        largest = 1 + int(np.bincount(rooms.ravel())[1:].argmax()) if rooms.any() else 0
        inner = np.where((inner == OPEN) & (rooms != largest), WALL, inner)
        if (inner == OPEN).sum() >= 0.5 * n * n:
            return np.pad(inner, 1, constant_values=WALL)


def _looks(at: Int64, way: Int64, around: Int64, foggy: np.ndarray, rng: np.random.Generator) -> Float64:
    """[S, L] description: place and goal in random waves, what is around, the way to the goal, own noise."""
    waves = np.cos(
        np.column_stack([at, way]) @ (0.35 * rng.standard_normal((4, 60))) + rng.uniform(0, 6.3, 60)
    )
    compass = (np.sign(way)[:, :, None] == np.array([-1, 0, 1])).reshape(len(at), 6)
    sight = (around[:, :, None] == np.array([WALL, PIT])).reshape(len(at), 8)
    own = rng.standard_normal((len(at), 20))
    return np.column_stack([0.6 * waves, 1.2 * compass, 1.4 * sight, foggy[:, None], 0.3 * own])
