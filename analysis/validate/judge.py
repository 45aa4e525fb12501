"""Planner and truth side by side: what a plan says in drawn worlds, and what would really come of it.

In each world a pilot is played and planned from at several budgets. The planner's choice and all its
candidates are then played with the budget less the pilot's cost, and the pilot's traces are trained on beside
what they buy. Fixed rules need no pilot and get the whole budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analysis.curves.arms import SHORT, Arm
from occupancy import RunError, preset
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF, K_text
from occupancy.record.rows import Row, Rows
from occupancy.runs import create_run
from simulate.pilots.playing import POOL, TEACHER, PilotSize, as_text, labels_of, pilot_rows
from simulate.pilots.trainer import WorldTrainer
from simulate.pipelines.outcome import Owned, truth
from simulate.worlds.families import MIXED, Family, draw_worlds, family
from simulate.worlds.types import World
from simulate.worlds.worldfile import read_world_file

MULTIPLES = (5, 20)
"""Budgets, as multiples of the pilot's cost in teacher tokens."""
EPISODES = 400
"""Of the evaluation by which the small runs of the rule "one run at B/4" are ranked."""
Trainer = Callable[[Sequence[Path], int], dict[str, list[float]]]


@dataclass(frozen=True)
class Guess:
    """An arm, and pass@1 as a planner predicts it, with its 90 % interval."""

    arm: Arm
    predicted: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Planned:
    """A plan: what it recommends among what it compared."""

    status: str
    recommended: Guess
    candidates: tuple[Guess, ...]


Planner = Callable[[Path, int, int, int, Trainer | None], Planned]
"""(pilot folder, budget in teacher tokens, tasks on offer, seed, trainer or None) -> plan."""
Rounds = Callable[[World, Path, int, int, Path], tuple[Guess, float, float]]
"""(world, pilot folder, budget in teacher tokens, seed, folder to write) -> what was bought last, pass@1 of
the final student, and C_i, the pilot's included."""
RULES = (
    *(Arm("op-short", float(K), 0.5, "all") for K in (1, 2, 3, 5, INF)),
    *(Arm(recipe, INF, r, "all") for recipe in ("op-success", "op-critical") for r in (0.75, 1.0)),
    Arm("op-failed", INF, 1.0, "all"),
    Arm("pure-bc", INF, 0.0, "all"),
)


@dataclass(frozen=True)
class Effort:
    """How much is played in each world."""

    size: PilotSize = PilotSize()  # noqa: RUF009 - frozen
    multiples: tuple[int, ...] = MULTIPLES
    se: float | None = 0.001
    """Standard error of every true pass@1 of a tabular student; None for just `truth_seeds`."""
    truth_seeds: int = 32
    log_linear_seeds: int = 6
    """Pipelines of every arm where students train by gradient steps: a thousand times as slow."""
    trained: bool = False
    """The planner may train students on the pilot."""
    text: bool = False
    """Pilots record whole histories, as text does: no context recurs and states have no ids."""


def worlds_to_judge(spec: str, count: int, *, seed: int) -> list[tuple[str, World]]:
    """Worlds with the name of their family, equally many of each; spec: a TOML file, or names with commas."""
    families = _families(spec)
    if count < len(families):
        raise InputError(f"{count} worlds of {len(families)} families: expected at least one of each")
    drawn = draw_worlds(count, seed=seed, families=families)
    return [(families[i % len(families)].name, world) for i, world in enumerate(drawn)]


def judge_worlds(
    worlds: Sequence[tuple[str, World]],
    *,
    planner: Planner,
    effort: Effort,
    buyer: Rounds | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[Row], list[Row]]:
    """Rows of options and of plans of all worlds, in their order whatever the number of workers.

    buyer: buys the budget in rounds too.
    """
    options: list[Row] = []
    plans: list[Row] = []
    one = partial(judge, planner=planner, effort=effort, buyer=buyer)
    with ExitStack() as stack:
        each: Callable[..., Iterator[tuple[list[Row], list[Row]]]] = map
        if workers > 1:
            each = stack.enter_context(ProcessPoolExecutor(workers, mp_context=get_context("spawn"))).map
        for done, (new_options, new_plans) in enumerate(each(one, enumerate(worlds)), 1):
            options += new_options
            plans += new_plans
            progress(done, len(worlds))
    return options, plans


def judge(
    numbered: tuple[int, tuple[str, World]], *, planner: Planner, effort: Effort, buyer: Rounds | None = None
) -> tuple[list[Row], list[Row]]:
    """One world, its number being the seed of its pilot: rows of options played, and of plans made.

    Roles of an option: planner (its choice) and candidate, at what is left after the pilot; free (the
    planner's choice had the pilot cost nothing and taught nothing), rule, and quarter (the best rule of one
    run of each at a quarter of the budget, those runs not charged) at the whole budget; rounds where asked.
    """
    number, (name, world) = numbered
    options: list[Row] = []
    plans: list[Row] = []
    with TemporaryDirectory() as folder:
        pilot, shuffled = (Path(folder) / kind for kind in ("pilot", "shuffled"))
        rows = _write_pilots(world, pilot, shuffled, effort=effort, seed=number)
        price = sum(turn["output_tokens"] for turn in rows["turns"] if turn["author"] == TEACHER)
        owned = {
            traces: labels_of(world, rows, only_success=traces == "success") for traces in ("all", "success")
        }
        trainer = WorldTrainer(world) if effort.trained else None
        for multiple in effort.multiples:
            whole = multiple * price
            found = planner(pilot, whole, POOL, number, trainer)
            control = planner(shuffled, whole, POOL, number, None)
            at = {"world": world.name, "family": name, "multiple": multiple, "price": price}
            decision = {"status": found.status, "candidates": len(found.candidates)}
            plans.append(at | decision | {"shuffled_status": control.status})
            play = _Played(world, owned, whole=whole, left=whole - price, effort=effort)
            options += (at | row for row in _rows(play, found, seed=number))
            if buyer is not None:
                guess, J, spent = buyer(world, pilot, whole, number, Path(folder) / f"rounds-{multiple}")
                row = _told(guess.arm, whole) | {"J": J, "se": 0.0, "C_i": spent, "note": ""}
                options.append(at | {"role": "rounds"} | row | _predicted(guess))
    return options, plans


def _families(spec: str) -> list[Family]:
    if Path(spec).suffix == ".toml":
        found = read_world_file(spec)
        if isinstance(found, World):
            raise InputError(f"{spec} holds one world: expected a family, with kind, knobs and ranges")
        return [found]
    return [family(name.strip()) for name in (spec or ",".join(MIXED)).split(",")]


def _write_pilots(world: World, pilot: Path, shuffled: Path, *, effort: Effort, seed: int) -> Rows:
    """A pilot's rows; its folder, and one with its rewards shuffled over all episodes, which says nothing."""
    recipe, info, played = pilot_rows(world, size=effort.size, seed=seed)
    rows = as_text(played) if effort.text else played
    create_run(pilot, recipe, info).commit(rows)
    rewards = np.random.default_rng(seed).permutation([row["R"] for row in rows["episodes"]])
    lies = [row | {"R": float(R)} for row, R in zip(rows["episodes"], rewards, strict=True)]
    create_run(shuffled, recipe, info).commit(rows | {"episodes": lies})
    return played


def _rows(play: _Played, found: Planned, *, seed: int) -> Iterator[Row]:
    best = found.recommended
    yield {"role": "planner"} | play(best.arm, charged=True) | _predicted(best)
    yield {"role": "free"} | play(best.arm, charged=False) | _predicted()
    for candidate in found.candidates:
        yield {"role": "candidate"} | play(candidate.arm, charged=True) | _predicted(candidate)
    for rule in RULES:
        yield {"role": "rule"} | play(rule, charged=False) | _predicted()
    yield {"role": "quarter"} | play(play.best_of_small_runs(seed), charged=False) | _predicted()


def _predicted(guess: Guess | None = None) -> Row:
    return {name: getattr(guess, name, None) for name in ("predicted", "low", "high")}


def _told(arm: Arm, budget: int) -> Row:
    """What was bought, as columns."""
    name = arm.recipe if arm.recipe == "pure-bc" else arm.name
    row: Row = {"arm": name, "recipe": arm.recipe, "K": str(K_text(arm.K)), "r": arm.r}
    return row | {"traces": arm.pilot_traces, "budget": budget}


class _Played:
    """True outcomes of arms at one budget in one world, each played once."""

    def __init__(
        self, world: World, owned: dict[str, Owned], *, whole: int, left: int, effort: Effort
    ) -> None:
        self.world, self.owned, self.effort = world, owned, effort
        self.whole, self.left = whole, left
        self.known: dict[tuple[Arm, bool], Row] = {}

    def __call__(self, arm: Arm, *, charged: bool) -> Row:
        """The arm and its J, after the pilot where it is charged; None if the budget cannot be spent."""
        what = arm if charged else replace(arm, pilot_traces="all")
        if (what, charged) not in self.known:
            budget, owned = (self.left, self.owned[arm.pilot_traces]) if charged else (self.whole, None)
            self.known[what, charged] = self.outcome(what, budget, owned)
        return self.known[what, charged]

    def outcome(self, arm: Arm, budget: int, owned: Owned | None) -> Row:
        """J of an arm with its standard error over seeds, and C_i."""
        row = _told(arm, budget)
        slow = self.world.student.in_tokens
        seeds = self.effort.log_linear_seeds if slow else self.effort.truth_seeds
        try:
            found = self.truth(arm, budget, owned=owned, seeds=seeds, se=None if slow else self.effort.se)
        except RunError as unspendable:
            return row | {"J": None, "se": None, "C_i": None, "note": str(unspendable)}
        return row | {"J": found.mean, "se": found.se, "C_i": found.C_i, "note": ""}

    def truth(self, arm: Arm, budget: int, **settings: Any) -> Any:
        """`simulate.truth` of an arm."""
        K = {"K": arm.K} if arm.recipe in SHORT else {}
        recipe = preset(arm.recipe, T_max=self.world.horizon, **K)
        return truth(self.world, recipe, budget=budget, r=arm.r, **settings)

    def best_of_small_runs(self, seed: int) -> Arm:
        """The rule whose one run at a quarter of the budget does best on 400 episodes."""
        rng = np.random.default_rng([seed, 4])
        scores = []
        for rule in RULES:
            try:
                J = self.truth(rule, self.whole // 4, seeds=1, seed=seed + 1).mean
            except RunError:
                J = 0.0
            scores.append(rng.binomial(EPISODES, min(J, 1.0)))
        return RULES[int(np.argmax(scores))]
