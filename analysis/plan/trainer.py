"""Small trainings on cuts of a pilot: made by a `Trainer`, checked, kept in the run folder, never repeated.

RUN/trainings/cells/KEY/   the cut that a student was trained on, a run folder
RUN/parts/…                a row of `trainings` for each training, its attempts in `evaluations`
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentloop.cuts.cut import Cell, buy, cut, own_traces
from agentloop.cuts.cut import supply as supply_of
from agentloop.cuts.whole import Whole
from agentloop.run.episode import boundary
from analysis.curves.acquisition import Option, next_trainings
from analysis.curves.arms import PILOT_TRACES, Arm
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts
from analysis.plan.kept import evidence, kept_trainings, of_pilot, own_tasks, small_trainings, training_of
from analysis.plan.read import teacher_tokens
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError, FewstepsError, InputError, RunError
from occupancy.record.recipe import INF
from occupancy.runs import Run, only_writer, open_run

Rewards = Mapping[str, Sequence[float]]
Trainer = Callable[[list[Path], int], "Path | str | Rewards"]
"""Trains a student on run folders, the cut first, with a seed; returns an evaluation's folder or rewards."""
SIZES = (1.0, 0.5, 0.25)
"""Cuts that are offered, in shares of the most that a pilot can supply."""
SEEDS = 8
TRAININGS = 16
"""Small trainings at most, unless the user says how many."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How much may be trained."""

    trainings: int = TRAININGS
    """Kept ones among them."""
    minutes: float = INF
    """Of new trainings, as their trainer takes them."""
    at_once: int = 1
    """Trainings that the trainer can make at the same time; it is then called from several threads."""

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise InputError(f"at_once={self.at_once}: expected at least 1 training at a time")
        if self.trainings < 0 or not self.minutes > 0:
            raise InputError(
                f"--trainings {self.trainings}, --gpu-minutes {self.minutes:g}: expected 0 or more trainings "
                f"and minutes above 0"
            )


@dataclass(frozen=True)
class Bench:
    """Where a pilot's trainings are made and kept."""

    run: Run
    trainer: Trainer
    name: str
    """Of the trainer: trainings of other trainers are not read."""
    beside: tuple[Path, ...] = ()
    """Runs that every student is trained on too, as D_BC."""
    _supply: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By recipe's hash: teacher tokens of demonstrations, and of continuations, that cuts can hold."""

    @cached_property
    def beside_tokens(self) -> int:
        """Teacher tokens of the runs beside."""
        return sum(sum(teacher_tokens(run)) for run in self.beside)

    @cached_property
    def _recorded(self) -> list[str]:
        return sorted(open_run(run).recorded for run in self.beside)

    @cached_property
    def whole(self) -> Whole:
        """The pilot, for cuts."""
        return Whole(self.run)

    def options(self, arms: Sequence[Arm]) -> list[Option]:
        """Every training that the pilot can supply and that is not kept, of each form of arm once."""
        kept = set(self.run.column("trainings", "training_id"))
        forms = {arm.form: arm for arm in reversed(arms)}
        own = [Arm("pilot", INF, 0.5, which) for which in PILOT_TRACES]
        offered = []
        for arm in (*forms.values(), *own):
            most = self.most(arm)
            offered += [
                Option(arm, float(math.floor(size * most)), seed)
                for size in (SIZES if arm.recipe != "pilot" else (1.0,))
                for seed in range(SEEDS)
                if size * most >= 1
            ]
        return [option for option in offered if self._key(option, self.name) not in kept]

    def most(self, arm: Arm) -> float:
        """Teacher tokens of the largest cut of an arm that the pilot can supply, with any of SEEDS seeds."""
        recipe = arm.recipe_of(self.run.recipe)
        if arm.recipe == "pilot":
            return float(sum(self.whole.cost(row, INF) for row in self.whole.taught_episodes))
        if recipe.hash not in self._supply:
            # A law on 1..T_max is drawn anew by each seed, and others hold for all of them.
            seeds = range(SEEDS if recipe.switch.law == "fixed" else 1)
            held = [supply_of(self.whole, recipe, seed) for seed in seeds]
            self._supply[recipe.hash] = held[0][0], min(continued for _, continued in held)
        demos, continued = self._supply[recipe.hash]
        if arm.r in (0.0, 1.0):
            return float(continued if arm.r else demos)
        return min(continued / arm.r, demos / (1 - arm.r))

    def is_empty(self, option: Option) -> bool:
        """Whether the cut is too small for a single episode."""
        if option.arm.recipe == "pilot":
            return False
        bought = buy(self.whole, self._cell_of(option))
        return not bought.demo_tokens + bought.continuation_tokens

    def _cell_of(self, option: Option) -> Cell:
        recipe = option.arm.recipe_of(self.run.recipe)
        return Cell(recipe, r=option.arm.r, budget=option.budget, seed=option.seed)

    def train(self, option: Option) -> Training:
        """Train and evaluate, or read what was kept; errors as of `train_all`."""
        return self.train_all([option])[0]

    def train_all(self, options: Sequence[Option]) -> list[Training]:
        """Train and evaluate several at the same time, or read what was kept; each is kept when it is done.

        Raises RunError where the trainer fails, DataError where its rewards are no evidence; trainings made
        before, and the others of these, are kept.
        """
        with only_writer(self.run.folder):
            keys = {option: self._key(option, self.name) for option in options}
            kept = kept_trainings(self.run, trainer=self.name)
            found = {option: kept[key] for option, key in keys.items() if key in kept}
            cells = {option: self._cell(option) for option in options if option not in found}
            failed: list[Exception] = []
            for option, answer, seconds in self._answers(cells):
                try:
                    found[option] = self._keep(keys[option], option, cells[option], answer, seconds)
                except FewstepsError as error:
                    failed.append(error)
        if failed:
            raise failed[0]
        return [found[option] for option in options]

    def _answers(self, cells: Mapping[Option, Run]) -> Iterator[tuple[Option, Any, float]]:
        """What the trainer returns for each, or the error that it raises, as they come."""

        def ask(option: Option) -> tuple[Option, Any, float]:
            began, cell = time.monotonic(), cells[option].folder
            what = f"the trainer {self.name} on {option.arm.name} ({cell}; trainings before are kept)"
            answer: Any
            try:
                with boundary(RunError, what):
                    answer = self.trainer([cell.resolve(), *self.beside], option.seed)
            except FewstepsError as error:
                answer = error
            return option, answer, time.monotonic() - began

        if len(cells) == 1:
            yield from map(ask, cells)
            return
        with ThreadPoolExecutor(max(len(cells), 1)) as threads:
            for done in as_completed([threads.submit(ask, option) for option in cells]):
                yield done.result()

    def _keep(self, key: str, option: Option, cell: Run, answer: Any, seconds: float) -> Training:
        if isinstance(answer, FewstepsError):
            raise answer
        evaluation = str(answer) if isinstance(answer, str | Path) else None
        seen = own_tasks(self.run, *map(open_run, self.beside))
        rows = evidence(answer, own_tasks=seen, like=self.run, trainer=self.name)
        if evaluation and evaluation in [r["data"].get("evaluation") for r in small_trainings(self.run)]:
            raise DataError(
                f"the trainer {self.name} returned {evaluation} for an earlier training too: expected a new "
                f"folder for each training"
            )
        made = cell.info["cut"]
        told = {
            "arm": option.arm.to_dict(),
            "demo_tokens": made["demo_tokens"],
            "continuation_tokens": made["continuation_tokens"],
            "sunk_tokens": self.beside_tokens,
            "seed": option.seed,
            "cell": str(cell.folder.relative_to(self.run.folder)),
            "evaluation": evaluation,
            "seconds": seconds,
            "pilot": of_pilot(self.run),
        }
        tokens = sum(cell.column("traces", "C_tr"))
        row = {
            "training_id": key,
            "base": self.name,
            "data": json.dumps(told),
            "target_tokens": tokens,
            "sequence_tokens": tokens,
            "gpu_s": seconds,
            "held_out_nll": json.dumps(None),
        }
        self.run.commit({"trainings": [row], "evaluations": [one | {"training_id": key} for one in rows]})
        return training_of(told, rows, success_at=self.run.recipe.success_at)

    def _cell(self, option: Option) -> Run:
        """The cut of an option: made once, under another name until it is whole."""
        folder = self.run.folder / "trainings" / "cells" / self._key(option)
        if not folder.exists():
            with whole_folder(folder) as draft:
                if option.arm.recipe == "pilot":
                    own_traces(self.whole, draft, success=option.arm.pilot_traces == "success")
                else:
                    cut(self.whole, self._cell_of(option), draft)
        return open_run(folder)

    def _key(self, option: Option, trainer: str = "") -> str:
        """16 hex digits of a cut and, where a trainer is named, of what else it trains on."""
        content: dict[str, Any] = {
            "recipe": option.arm.recipe_of(self.run.recipe).hash,
            "own": option.arm.pilot_traces if option.arm.recipe == "pilot" else "",
            "r": option.arm.r,
            "budget": option.budget,
            "seed": option.seed,
            "trainer": trainer,
        }
        if trainer and self.beside:
            content["beside"] = self._recorded
        return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def kept_of(run: Run, *, trainer: str | None = None, progress: Progress) -> list[Training]:
    """Trainings that a folder has kept, of one trainer or of all; how many, of whom, is told in a line."""
    by = Counter(row["base"] for row in small_trainings(run))
    told = [
        f"{sum(by[name] for name in names)} {what} ({', '.join(names)})"
        for what, used in (("used", True), ("of another trainer not used", False))
        if (names := sorted(name for name in by if (trainer in (None, name)) is used))
    ]
    if told:
        progress(f"small trainings kept in {run.folder}: {', '.join(told)}")
    return list(kept_trainings(run, trainer=trainer).values())


def train_more(
    known: Sequence[Training],
    bench: Bench,
    effort: Effort,
    *,
    facts: Facts,
    arms: Sequence[Arm],
    tokens: float,
    progress: Progress,
) -> list[Training]:
    """`known`, the trainings that the bench has kept, and new ones, each chosen by what it is worth.

    known: of other benches; not counted against the effort. tokens: to be bought, for which arms compete.
    """
    own = kept_of(bench.run, trainer=bench.name, progress=progress)
    if not bench.beside and (sunk := max((training.sunk_tokens for training in own), default=0)):
        raise InputError(
            f"{bench.run.folder} has kept trainings of {bench.name} that were made on {sunk:,.0f} teacher "
            f"tokens of other runs too, as D_BC: name these runs in `plan --already`, so that new trainings "
            f"have them too; a plan without a trainer makes no new ones"
        )
    options, minutes = bench.options(arms) if len(own) < effort.trainings else [], 0.0
    while len(own) < effort.trainings and minutes < effort.minutes:
        n = min(effort.at_once, effort.trainings - len(own))
        made = [*known, *own]
        batch = next_trainings(made, facts, arms, options, tokens, begun=len(own), n=n)
        if not batch:
            progress("a further training is not expected to change what to buy")
            break
        options = [option for option in options if option not in batch]
        batch = [option for option in batch if not bench.is_empty(option)]
        for at, option in enumerate(batch):
            progress(
                f"training {len(own) + at + 1} of at most {effort.trainings} begins: {option.arm.name}, "
                f"{option.budget:,.0f} teacher tokens, seed {option.seed}"
            )
        for training in bench.train_all(batch):
            own.append(training)
            minutes += training.seconds / 60
            alike = f", the same on all {len(training.attempts)} tasks"
            error = f" ± {training.se:.3f}" if training.se else alike
            progress(
                f"training {len(own)} of at most {effort.trainings}: {training.arm.name}, "
                f"{training.tokens:,} teacher tokens: pass@1 {training.pass_at_1:.3f}{error}"
            )
    return [*known, *own]


def named_trainer(spec: str, *, of: str = "--trainer") -> Callable[..., Any]:
    """The function that `package.module:function` names, from PYTHONPATH or the working folder."""
    from agentloop.policies.by_name import named

    if ":" not in spec:
        raise InputError(f"{of} {spec!r}: expected package.module:function")
    return named(spec)
