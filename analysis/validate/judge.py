"""Planner and truth side by side: what a plan said in drawn worlds, and what would have come of it.

In each world a pilot is played and planned from at several budgets. The planner's choice is then played
with the budget less the pilot's price, and so are all candidates, to see what the plan's predictions are
worth; the pilot's own traces are trained on beside what they buy. Fixed rules need no pilot and get the
whole budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analysis.plan.planner import plan
from analysis.plan.read import teacher_tokens
from analysis.plan.report import Candidate, Plan
from occupancy import RunError, preset
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF, K_text
from occupancy.runs import create_run, open_run
from simulate.pilots.as_text import as_text
from simulate.pilots.playing import POOL, PilotSize, labels_of, pilot_rows
from simulate.pilots.small_runs import SmallRun, train_small
from simulate.pipelines.outcome import Owned, truth
from simulate.worlds.families import MIXED, Family, draw_worlds, family
from simulate.worlds.types import World
from simulate.worlds.worldfile import read_world_file

MULTIPLES = (5, 20)
"""Budgets, in prices of the pilot."""
RULE_R = 0.5
"""Share of fixed rules, and of plans that say nothing about r."""
RULES = (*(("op-short", float(K), RULE_R) for K in (1, 2, 3, 5, INF)), ("pure-bc", INF, 0.0))
SHOWN = (("op-critical", INF, 0.75),)
"""A rule beside them that nobody would call the obvious one; see docs/planner.md."""
Row = dict[str, Any]
Option = tuple[str, float, float]
"""Recipe, K and r by tokens."""


@dataclass(frozen=True)
class Effort:
    """How much is played in each world."""

    size: PilotSize = PilotSize()  # noqa: RUF009 - frozen
    multiples: tuple[int, ...] = MULTIPLES
    se: float | None = 0.001
    """Standard error of every truth; None for just `truth_seeds`."""
    truth_seeds: int = 32
    calibrate: bool = False
    """Plans are calibrated by two students, trained on half of the pilot and on all of it."""
    contexts: str = "ids"
    """What the pilot records of its contexts: a key of `as_text.CONTEXTS`."""

    def __post_init__(self) -> None:
        if self.calibrate and self.contexts != "ids":
            raise InputError(
                f"--calibrate with --contexts {self.contexts}: trainings are read by ids; drop one of them"
            )


def worlds_to_judge(spec: str, count: int, *, seed: int) -> list[tuple[str, World]]:
    """`count` worlds in equal shares, with their family; spec: a family's TOML file, or names with commas."""
    families = _families(spec)
    if count < len(families):
        raise InputError(f"{count} worlds of {len(families)} families: expected at least one of each")
    drawn = draw_worlds(count, seed=seed, families=families)
    return [(families[i % len(families)].name, world) for i, world in enumerate(drawn)]


def judge_worlds(
    worlds: Sequence[tuple[str, World]],
    *,
    effort: Effort,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[Row], list[Row]]:
    """Rows of options and of plans of all worlds, in their order whatever the number of workers."""
    options: list[Row] = []
    plans: list[Row] = []
    for done, (new_options, new_plans) in enumerate(_each(worlds, effort, workers), 1):
        options += new_options
        plans += new_plans
        progress(done, len(worlds))
    return options, plans


def judge(numbered: tuple[int, tuple[str, World]], *, effort: Effort) -> tuple[list[Row], list[Row]]:
    """One world, its number being the seed of its pilot: rows of options played, and of plans made.

    role of an option: planner (its choice) and candidate at what is left after the pilot; only (the best
    guess among op-short and pure BC, likewise); free (the planner's choice, had the pilot cost nothing and
    taught nothing), rule and shown at the whole budget.
    """
    number, (name, world) = numbered
    options: list[Row] = []
    plans: list[Row] = []
    with TemporaryDirectory() as folder:
        pilot, shuffled = (Path(folder) / kind for kind in ("pilot", "shuffled"))
        owned = _write_pilots(world, pilot, shuffled, effort=effort, seed=number)
        price = sum(teacher_tokens(pilot))
        small = _trained(world, pilot, seed=number) if effort.calibrate else []
        for multiple in effort.multiples:
            whole = multiple * price
            found = plan(pilot, budget=whole, seed=number, pool=POOL, calibrate=small)
            control = plan(shuffled, budget=whole, seed=number, pool=POOL)
            at = {"world": world.name, "family": name, "multiple": multiple, "price": price}
            plans.append(at | _decision(found) | {"shuffled_status": control.status})
            played = _played(world, found, owned, whole=whole, price=price, effort=effort)
            options += (at | row for row in played)
    return options, plans


def _each(
    worlds: Sequence[tuple[str, World]], effort: Effort, workers: int
) -> Iterator[tuple[list[Row], list[Row]]]:
    one = partial(judge, effort=effort)
    if workers == 1:
        yield from map(one, enumerate(worlds))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(one, enumerate(worlds))


def _families(spec: str) -> list[Family]:
    if Path(spec).suffix == ".toml":
        found = read_world_file(spec)
        if isinstance(found, World):
            raise InputError(f"{spec} holds one world: expected a family, with kind, knobs and ranges")
        return [found]
    return [family(name.strip()) for name in (spec or ",".join(MIXED)).split(",")]


def _write_pilots(world: World, pilot: Path, shuffled: Path, *, effort: Effort, seed: int) -> Owned:
    """A pilot, and the same one with its rewards shuffled over all episodes: it says nothing about K."""
    recipe, info, played = pilot_rows(world, size=effort.size, seed=seed)
    rows = as_text(played, contexts=effort.contexts)
    create_run(pilot, recipe, info).commit(rows)
    rewards = np.random.default_rng(seed).permutation([row["R"] for row in rows["episodes"]])
    lies = [row | {"R": float(R)} for row, R in zip(rows["episodes"], rewards, strict=True)]
    create_run(shuffled, recipe, info).commit(rows | {"episodes": lies})
    return labels_of(world, played)


def _trained(world: World, pilot: Path, *, seed: int) -> list[Path]:
    """Students trained on parts of the pilot: no teacher token is bought for them."""
    folders = []
    for share in (0.5, 1.0):
        folders.append(pilot.parent / f"trained-{share:g}")
        train_small(world, open_run(pilot), folders[-1], size=SmallRun(share=share), seed=seed)
    return folders


def _decision(found: Plan) -> Row:
    return {
        "status": found.status,
        "level": found.level,
        "fall_back": found.fall_back,
        "not_worse": len(found.not_worse),
        "candidates": len(found.candidates),
    }


def _played(
    world: World, found: Plan, owned: Owned, *, whole: int, price: int, effort: Effort
) -> Iterator[Row]:
    left, T = whole - price, world.horizon
    known: dict[tuple[Option, int], Row] = {}

    def play(option: Option, budget: int) -> Row:
        if (option, budget) not in known:
            known[option, budget] = _truth(
                world, option, budget=budget, T=T, owned=owned if budget == left else None, effort=effort
            )
        return known[option, budget]

    chosen = _option(found.recommended)
    yield {"role": "planner"} | _said(found.recommended) | play(chosen, left)
    yield {"role": "free"} | _said(None) | play(chosen, whole)
    plain = [c for c in found.candidates if c.recipe in ("op-short", "pure-bc") and c.value is not None]
    guess = max(plain, key=lambda c: c.value or 0.0, default=found.recommended)
    if found.fall_back:
        guess = found.recommended
    yield {"role": "only"} | _said(None) | play(_option(guess), left)
    for candidate in found.candidates:
        yield {"role": "candidate"} | _said(candidate) | play(_option(candidate), left)
    for role, rules in (("rule", RULES), ("shown", SHOWN)):
        for rule in rules:
            yield {"role": role} | _said(None) | play(rule, whole)


def _option(candidate: Candidate) -> Option:
    r = RULE_R if candidate.r_tokens is None else candidate.r_tokens
    return candidate.recipe, candidate.K, r


def _said(candidate: Candidate | None) -> Row:
    names = {"value": "value", "predicted": "pass_at_1", "low": "low", "high": "high"}
    return {column: None if candidate is None else getattr(candidate, name) for column, name in names.items()}


def _truth(world: World, option: Option, *, budget: int, T: int, owned: Owned | None, effort: Effort) -> Row:
    """J of an option; None where its filters accept so little that the budget cannot be spent."""
    name, K, r = option
    recipe = preset(name, T_max=T, **({"K": K} if name == "op-short" else {}))
    row: Row = {"recipe": name, "K": str(K_text(K)), "r": r, "budget": budget}
    try:
        outcome = truth(
            world, recipe, budget=budget, r=r, owned=owned, seeds=effort.truth_seeds, se=effort.se
        )
    except RunError as unspendable:
        return row | {"J": None, "se": None, "C_i": None, "note": str(unspendable)}
    return row | {"J": outcome.mean, "se": outcome.se, "C_i": outcome.C_i, "note": ""}
