"""Named families of worlds, drawn by seed: small, middle, large and "any" best K, and random ones.

short   first repairs are rare and hard, later ones common and easy: K = 1 or 2 labels all that is needed
middle  three repairs in a row are hard and specific, and turns on the track are expensive: K = 3 to 5
long    six or seven hard repairs in a row that the student seldom reaches: the teacher must go on, K >= 8
any     a wrong turn changes nothing, so student and teacher see the same contexts: every K is as good
weak    a student that starts weak on the track and at the first repair: r decides, and its best value moves
garnet  random transitions, in which nothing was planned

and three with hopeless tasks, teachers that fail and log-linear students that saturate:

desk    8 to 12 turns: a request in a few steps, where mistakes bring trouble
maze    28 to 40 turns: a grid with pits and fog
search  5 turns, the answer among them

Which K is best also depends on the budget: with few tokens every family is won by coverage of the track.
benchmarks/worlds.md has the measured curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from simulate.worlds.desk import Desk, desk_world
from simulate.worlds.garnet import Garnet, garnet_world
from simulate.worlds.maze import Maze, maze_world
from simulate.worlds.recovery import Recovery, recovery_world
from simulate.worlds.searching import Search, search_world
from simulate.worlds.types import World, WorldError

Range = tuple[float, float]
MOST = 10**6
"""No knob comes near it: what is counted by a knob is held in memory."""


@dataclass(frozen=True)
class Family:
    """Worlds of one kind: fixed knobs, and knobs drawn uniformly from ranges."""

    name: str
    kind: str = "recovery"
    """recovery, garnet, desk, maze or search."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Inclusive bounds; two whole numbers draw a whole number."""

    def __post_init__(self) -> None:
        knobs, ranges = self.knobs, self.ranges
        if not isinstance(knobs, Mapping) or not isinstance(ranges, Mapping):
            raise WorldError(f"knobs={knobs!r}, ranges={ranges!r}: expected NAME = value, in tables")
        if not isinstance(self.kind, str) or self.kind not in _KINDS:
            raise WorldError(f"kind={self.kind!r}: expected one of {', '.join(_KINDS)}")
        known = {f.name: f.default for f in fields(_KINDS[self.kind][0])}
        unknown = sorted((set(knobs) | set(ranges)) - set(known))
        if unknown:
            raise WorldError(
                f"unknown knob {unknown[0]!r} of a {self.kind} world: expected one of "
                f"{', '.join(sorted(known))}"
            )
        for name, value in [*knobs.items(), *ranges.items()]:
            several = isinstance(value, list | tuple)
            for part in value if several else [value]:
                if not isinstance(part, int | float) or not abs(part) <= MOST:
                    raise WorldError(f"{name} is {value!r}: expected numbers of at most {MOST:,}")
            if several != (name in ranges or isinstance(known[name], tuple)):
                raise WorldError(f"{name} is {value!r}: expected a value like {known[name]!r}")
        for name, bounds in ranges.items():
            if len(bounds) != 2 or bounds[0] > bounds[1]:
                raise WorldError(f"range of {name} is {bounds}: expected [low, high] with low <= high")

    def draw(self, seed: int) -> World:
        """World number `seed`; number 0 has every drawn knob at the middle of its range."""
        rng = np.random.default_rng(seed)
        drawn = {}
        for name, (low, high) in sorted(self.ranges.items()):
            whole = isinstance(low, int) and isinstance(high, int)
            place = 0.5 if seed == 0 else float(rng.random())
            if whole:
                drawn[name] = low + min(int(place * (high - low + 1)), high - low)
            else:
                drawn[name] = low + place * (high - low)
        make, build = _KINDS[self.kind]
        knobs = make(**{**self.knobs, **drawn, "seed": seed})
        try:
            world: World = build(knobs, name=f"{self.name}-{seed}")
        except MemoryError as error:
            raise WorldError(f"this {self.kind} world does not fit in memory ({error})") from error
        return world


_KINDS: dict[str, Any] = {
    "recovery": (Recovery, recovery_world),
    "garnet": (Garnet, garnet_world),
    "desk": (Desk, desk_world),
    "maze": (Maze, maze_world),
    "search": (Search, search_world),
}
_HARDSHIPS: dict[str, Range] = {
    "hopeless": (0.0, 0.4),
    "errors": (0.1, 1.3),
    "convictions": (0.0, 1.0),
    "features": (24, 160),
    "student": (0.08, 0.55),
    "uneven": (0.0, 1.5),
}

FAMILIES: dict[str, Family] = {
    "short": Family(
        "short",
        knobs={"student_repair": (0.05, 0.5, 0.8, 0.9)},
        ranges={
            "tracks": (24, 36),
            "generic": (12.0, 25.0),
            "first_repairs": (200, 400),
            "student_track": (0.75, 0.83),
            "zipf": (0.7, 0.9),
        },
    ),
    "middle": Family(
        "middle",
        knobs={
            "path": (6, 8),
            "errors": 4,
            "actions": 6,
            "repairs": 3,
            "generic": 1.0,
            "student_repair": (0.15, 0.15, 0.15),
        },
        ranges={
            "tracks": (5, 8),
            "first_repairs": (80, 120),
            "student_track": (0.78, 0.85),
            "tokens_track": (200, 300),
        },
    ),
    "long": Family(
        "long",
        knobs={"path": (4, 6), "generic": 1.0, "student_repair": (0.1,), "horizon": 40},
        ranges={
            "tracks": (10, 14),
            "repairs": (6, 7),
            "first_repairs": (35, 60),
            "student_track": (0.9, 0.94),
            "tokens_track": (30, 60),
        },
    ),
    "any": Family(
        "any",
        knobs={"repairs": 0},
        ranges={"tracks": (40, 70), "student_track": (0.45, 0.6), "zipf": (0.6, 1.0)},
    ),
    "weak": Family(
        "weak",
        knobs={"path": (6, 10), "student_repair": (0.05, 0.5, 0.8, 0.9)},
        ranges={
            "tracks": (12, 18),
            "generic": (10.0, 20.0),
            "first_repairs": (80, 120),
            "student_track": (0.55, 0.65),
        },
    ),
    "garnet": Family(
        "garnet", kind="garnet", ranges={"states": (150, 400), "branches": (2, 4), "student": (0.3, 0.6)}
    ),
    "desk": Family(
        "desk",
        kind="desk",
        ranges=_HARDSHIPS
        | {
            "requests": (12, 24),
            "steps": (3, 5),
            "wordings": (3, 6),
            "shared": (0.3, 0.7),
            "luck": (0.02, 0.06),
            "horizon": (8, 12),
        },
    ),
    "maze": Family(
        "maze",
        kind="maze",
        ranges=_HARDSHIPS
        | {"side": (9, 12), "goals": (5, 9), "pits": (0.03, 0.06), "slip": (0.04, 0.1), "horizon": (28, 40)},
    ),
    "search": Family(
        "search",
        kind="search",
        ranges=_HARDSHIPS
        | {
            "questions": (30, 60),
            "wordings": (2, 4),
            "finds": (0.75, 0.95),
            "misled": (0.4, 0.8),
            "shared": (0.3, 0.7),
            "types": (4, 9),
        },
    ),
}
MIXED = ("short", "middle", "long", "any")


def family(name: str) -> Family:
    """A named family."""
    if name not in FAMILIES:
        raise WorldError(f"family {name!r}: expected one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def draw_worlds(count: int, *, seed: int, families: Sequence[Family] = ()) -> list[World]:
    """`count` worlds, equally many of each family (by default short, middle, long, any).

    World i is number seed * 1,000,003 + i + 1 of its family, so that no two seeds share one by accident.
    """
    if count < 1 or seed < 0:
        raise WorldError(f"count={count}, seed={seed}: expected at least 1 world and a seed of at least 0")
    chosen = list(families) or [FAMILIES[name] for name in MIXED]
    return [chosen[i % len(chosen)].draw(seed * 1_000_003 + i + 1) for i in range(count)]
