"""What a study is: one TOML file, read and validated once.

Each table of the file is a record here, whose fields are its entries; benchmarks/studies has whole files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from analysis.curves.arms import Arm
from analysis.study.jobs import Equipment
from analysis.study.results import MACHINES_OWN, sampling
from occupancy.record.errors import InputError
from occupancy.record.reading import read_toml
from occupancy.record.recipe import parse_K
from occupancy.record.specs import Few, Positive, Seed, Share, Size, check, parameters, record_of, value_of
from sft.settings import preset

PURE_BC = Arm("pure-bc", r=0.0)
OF_THE_MACHINE = ("base", "workers", "per_gpu")
"""Entries of [equipment] that may differ where a study goes on."""
_SLICE = re.compile(r"(?P<split>.+?):(?:(?P<start>\d{1,15})-)?(?P<stop>\d{1,15})")


@dataclass(frozen=True)
class Demonstrations:
    """Episodes of the teacher alone."""

    first: str
    """Task spec of D_BC."""
    more: str
    """Task spec of those that budgets buy."""
    parts: Few = 1
    """Jobs that share the tasks of `more`, which several workers do at the same time."""


@dataclass(frozen=True)
class PilotDesign:
    """The pilot, as `fewsteps plan --design` proposes one."""

    tasks: str
    demo_tasks: Size = 40
    handback: tuple[int, ...] = (0, 1, 2, 3, 5)
    replicates: Few = 2
    parts: Few = 1


@dataclass(frozen=True)
class Trainings:
    """Small trainings on cuts of the pilot."""

    tasks: str
    """Of their evaluation: none of the pilot's, and none that the sweep is evaluated on."""
    count: Size = 16
    attempts: Few = 1
    at_once: Few = 8
    """Most at the same time: they are chosen without each other's results; the first eight are fixed."""


@dataclass(frozen=True)
class Collection:
    """Whole continuations that every on-policy cell is cut from."""

    tasks: str
    n: Few = 1
    """Rollouts of each task."""
    parts: Few = 1


@dataclass(frozen=True)
class Sweep:
    """Which students are trained."""

    budgets: tuple[int, ...]
    arms: tuple[Arm, ...]
    rivals: tuple[str, ...] = ()
    """Names of arms."""
    seeds: Few = 1
    """Of data and training, for every arm."""
    decisive_seeds: Few = 3
    """For pure BC, the plan's choice and the rivals."""
    fractions: tuple[float, ...] = (0.125, 0.25, 0.5)
    """Of the target budget, at which every arm is trained once: what do small runs say of large ones?"""

    def __post_init__(self) -> None:
        check(self, of="[sweep]")
        names = [arm.name for arm in self.arms]
        if unknown := [name for name in self.rivals if name not in names]:
            raise InputError(f"[sweep] rival {unknown[0]!r} is no arm: expected some of {', '.join(names)}")
        if not self.budgets or min(self.budgets) < 1 or sorted(set(self.budgets)) != list(self.budgets):
            raise InputError(f"[sweep] budgets={list(self.budgets)}: expected rising teacher tokens above 0")
        if not all(0 < share < 1 for share in self.fractions):
            raise InputError(f"[sweep] fractions={list(self.fractions)}: expected shares between 0 and 1")

    @property
    def target(self) -> int:
        """The budget of the primary comparison."""
        return self.budgets[-1]


@dataclass(frozen=True)
class Evaluations:
    """What every student of the sweep plays."""

    splits: tuple[str, ...]
    attempts: Few = 2
    turns: bool = False
    """Keep the turns of evaluations, which are most of a study's size."""
    games: Size = 0
    """Tasks of all splits, for the smallest difference that is announced; 0: as many as [trainings] plays."""

    @property
    def tasks(self) -> str:
        """All splits as one task spec."""
        return "+".join(self.splits)


@dataclass(frozen=True)
class Seconds:
    """Guesses of what one job takes, until jobs of the study itself are finished."""

    demonstrations: Positive = 120.0
    pi_1: Positive = 90.0
    pilot: Positive = 180.0
    trainings: Positive = 60.0
    collection: Positive = 300.0
    sweep: Positive = 60.0


@dataclass(frozen=True)
class StudyConfig:
    """One study. Saved in its folder; another one there is refused by name."""

    name: str
    T_max: Few
    demonstrations: Demonstrations
    pilot: PilotDesign
    trainings: Trainings
    collection: Collection
    sweep: Sweep
    evaluation: Evaluations
    teacher: str = "expert"
    success_at: Share = 1.0
    seed: Seed = 0
    pool: Size = 0
    """Tasks that budgets can be spread over; 0: those of the pilot."""
    training: Mapping[str, Any] = field(default_factory=dict)
    equipment: Mapping[str, Any] = field(default_factory=dict)
    workshop: str = ""
    """package.module:function that opens another workshop than the product's own, with the arguments of
    `analysis.study.laboratory.open_workshop`."""
    seconds: Seconds = Seconds()

    def __post_init__(self) -> None:
        check(self, of="the study", hashed=True)
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise InputError(f"name={self.name!r}: expected letters, digits, '.', '_' and '-', for a folder")
        if "seed" in self.training:
            raise InputError("[training] has a seed: each training has its own; leave it out")
        for spec, parts in (
            (self.demonstrations.more, self.demonstrations.parts),
            (self.pilot.tasks, self.pilot.parts),
            (self.collection.tasks, self.collection.parts),
        ):
            slices(spec, parts)

    def plain(self) -> dict[str, Any]:
        """What the study's results depend on, as plain values: nothing of the machine."""
        given = asdict(self)
        given["sweep"]["arms"] = [arm.to_dict() for arm in self.sweep.arms]
        kept = {k: v for k, v in self.equipment.items() if k not in OF_THE_MACHINE}
        if isinstance(sampled := kept.get("sampling"), Mapping):
            kept["sampling"] = {k: v for k, v in sampled.items() if k not in MACHINES_OWN}
        given["equipment"] = kept
        return {name: value for name, value in given.items() if name not in ("workshop", "seconds")}

    @property
    def sha256(self) -> str:
        """Of `plain`."""
        return hashlib.sha256(json.dumps(self.plain(), sort_keys=True).encode()).hexdigest()


def read_study(file: str | Path) -> StudyConfig:
    """The study of a TOML file; an unknown, missing or impossible entry is named."""
    given = read_toml(file, what="the study", error=InputError)
    of = f"the study {file}"
    if isinstance(given.get("sweep"), Mapping):
        given["sweep"]["arms"] = _arms(given["sweep"], of)
    for name, kind in parameters(StudyConfig).items():
        if isinstance(kind, type) and is_dataclass(kind) and isinstance(given.get(name), Mapping):
            given[name] = record_of(kind, given[name], of=f"{of}: [{name}]")
    made = record_of(StudyConfig, given, of=of)
    if not made.workshop:
        own = record_of(Equipment, {"base": "", **made.equipment}, of=f"{of}: [equipment]")
        sampling(own, own.base)
        settings = preset(own.preset).replace(**made.training)
        return replace(made, training={name: getattr(settings, name) for name in made.training})
    return made


def numbered(spec: str) -> tuple[str, int, int]:
    """Split, first task and end of a spec with a number of tasks (train:60, train:60-120)."""
    found = _SLICE.fullmatch(spec)
    if found is None:
        raise InputError(f"tasks {spec!r}: expected split:N or split:A-B")
    return found["split"], int(found["start"] or 0), int(found["stop"])


def slices(spec: str, parts: int) -> list[str]:
    """Such a spec as `parts` specs of disjoint tasks."""
    if parts == 1:
        return [spec]
    split, start, stop = numbered(spec)
    if stop - start < parts:
        raise InputError(f"tasks {spec!r} in {parts} parts: expected at least as many tasks")
    ends = [start + (stop - start) * k // parts for k in range(parts + 1)]
    return [f"{split}:{a}-{b}" for a, b in pairwise(ends)]


def count(spec: str) -> int | None:
    """How many tasks a spec names; None where only the environment knows."""
    if not _SLICE.fullmatch(spec):
        return None
    _, start, stop = numbered(spec)
    return stop - start


def _arms(sweep: Mapping[str, Any], of: str) -> tuple[Arm, ...]:
    """Every combination of the recipes, K and r of each table; pure BC is always among them, and first."""
    found = [PURE_BC]
    tables = sweep.get("arms", [])
    if not isinstance(tables, list):
        raise InputError(f"{of}: arms={tables!r}: expected a list of tables with recipe, K and r")
    for table in tables:
        if not isinstance(table, Mapping) or set(table) - {"recipe", "K", "r"} or "recipe" not in table:
            raise InputError(f"{of}: arm {table!r}: expected recipe, and K and r where they are a choice")
        for recipe, K, r in product(
            *(_many(table.get(n, d)) for n, d in (("recipe", ""), ("K", "inf"), ("r", 1.0)))
        ):
            share = value_of(str(r), Share, f"{of}: an arm's r=")
            found.append(Arm(str(recipe), parse_K(K), share) if recipe != "pure-bc" else PURE_BC)
    return tuple(dict.fromkeys(found))


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
