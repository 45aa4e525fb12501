"""A plan as a TOML file: what `fewsteps plan --out` writes and `collect`, `train` and `spend` take."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from agentloop.cuts.cut import own_traces
from agentloop.environments.task_specs import behind
from agentloop.ledger.budget import AXES
from agentloop.policies.by_name import takes_slices
from agentloop.policies.chat_spec import identity
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import InputError
from occupancy.record.reading import read_toml
from occupancy.record.recipe import K_text, Recipe, parse_K, preset
from occupancy.record.specs import Count, Few, Positive, Share, check, record_of
from occupancy.runs import Run, open_run

FORMAT = 1


@dataclass(frozen=True)
class Part:
    """One collection of a plan."""

    name: Literal["demonstrations", "continuations"]
    recipe: str
    K: Annotated[float, parse_K]
    n: Few
    """Rollouts, or demonstrations, of each task."""
    tasks: Count
    budget: Positive
    """On the plan's axis."""
    context: str = "all"
    """Context filter of the recipe."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "K", parse_K(self.K))
        check(self, of="a part of the plan")


@dataclass(frozen=True)
class PlanFile:
    """What to buy, and with whom."""

    pilot: str
    """The pilot's run folder."""
    budget: Positive
    axis: str
    pilot_charged: bool
    """The pilot's own cost is part of the budget."""
    pilot_traces: Literal["all", "success"]
    """Which of the pilot's traces are trained on: all, or success."""
    r_tokens: Share
    environment: str
    student: str
    teacher: str
    tasks: str
    """Split, as the environment reads it."""
    pool: Count
    T_max: Count
    success_at: Share
    parts: tuple[Part, ...]
    env_set: Mapping[str, str] = field(default_factory=dict)
    """Settings of the environment, as `--env-set` gave them to the pilot."""
    turn_tokens: int | None = None
    """Most output tokens of a teacher's turn; None where the teacher's name says it."""
    pool_stated: bool = False
    """The pool is known, and not only the pilot's own tasks."""
    beside: tuple[str, ...] = ()
    """Run folders that every student is trained on too, as D_BC; paid for before the budget."""
    contenders: tuple[Mapping[str, Any], ...] = ()
    """Candidates that were not excluded, the most expected first: recipe, K, r_tokens, pilot_traces."""

    def __post_init__(self) -> None:
        check(self, of="the plan")
        if not self.environment.strip():
            raise InputError("the plan names no environment: plan from the pilot again")
        if self.axis not in AXES:
            raise InputError(f"the plan: axis={self.axis!r}: expected one of {', '.join(AXES)}")

    def part(self, name: str | None) -> Part:
        """The part of a name; the only one where none is named."""
        found = {part.name: part for part in self.parts}
        if name is None and len(found) == 1:
            return next(iter(found.values()))
        if name not in found:
            raise InputError(f"--part {name}: expected one of {', '.join(found)}")
        return found[name]

    def recipe(self, part: Part) -> Recipe:
        """A part as a recipe."""
        return preset(part.recipe, teacher=identity(self.teacher), **self.changes(part))

    def changes(self, part: Part) -> dict[str, Any]:
        """What a part changes in the preset of its recipe."""
        K = {} if part.recipe == "pure-bc" else {"K": K_text(part.K)}
        others = {"context": part.context, "success_at": self.success_at}
        changed = {name: value for name, value in others.items() if value not in ("all", 1)}
        return {**K, "n": part.n, "T_max": self.T_max, **changed}

    def to_toml(self) -> str:
        """The plan as TOML text; `read_plan` reads it back to an equal value."""
        import tomli_w

        plain = {name: value for name, value in asdict(self).items() if value is not None}
        for part in plain["parts"]:
            part["K"] = K_text(part["K"])
        return tomli_w.dumps({"format": FORMAT, **plain})


def read_plan(file: str | Path) -> PlanFile:
    """Read what `fewsteps plan --out` wrote."""
    given = read_toml(
        file,
        what="the plan",
        then="expected what `fewsteps plan RUN --out PLAN.toml` writes",
        error=InputError,
    )
    if given.pop("format", None) != FORMAT:
        raise InputError(
            f"{file} is no plan of this version: write one with `fewsteps plan RUN --out "
            f"{shlex.quote(str(file))}`"
        )
    if isinstance(parts := given.get("parts"), list):
        given["parts"] = tuple(record_of(Part, part, of=f"a part of the plan {file}") for part in parts)
    return record_of(PlanFile, given, of=f"the plan {file}")


def fill_collect(given: argparse.Namespace) -> None:
    """Set what `fewsteps collect --plan` leaves open from the plan; what was given stays."""
    plan = read_plan(given.plan)
    part = plan.part(given.part)
    if part.name == "continuations" and plan.r_tokens < 1 and given.student is None:
        raise InputError(
            "--part continuations of a plan with r < 1: name the student that was trained on demonstrations "
            "with --student"
        )
    environment = plan.environment.split()[0]
    if given.env in (None, environment):
        given.env_set = _filled(given.env_set, plan.env_set)
    given.env = given.env or environment
    _fill_tasks(given, plan, part)
    if given.axis not in (None, plan.axis) and given.budget is None:
        raise InputError(
            f"--axis {given.axis} with a plan whose budget is on the axis {plan.axis}: give --budget too, or "
            f"leave --axis out"
        )
    given.budget = given.budget or part.budget
    for name in ("student", "teacher", "axis", "turn_tokens"):
        setattr(given, name, getattr(given, name) or getattr(plan, name))
    given.recipe = given.recipe or [part.recipe]
    given.set = _filled(given.set, plan.changes(part))


def _fill_tasks(given: argparse.Namespace, plan: PlanFile, part: Part) -> None:
    """Name tasks that are paid for nowhere yet; where too few are left, draw anew.

    With the pilot's seed a task of the pilot would be the same rollout and the same continuation again.
    """
    if given.tasks or given.seed:
        given.tasks = given.tasks or f"{plan.tasks}:{part.tasks}"
        return
    infos = [open_run(run).info for run in (plan.pilot, *plan.beside)]
    seed = infos[0].get("seed", 0)
    specs = [str(info.get("tasks", "")) for info in infos if info.get("seed", 0) == seed]
    for each in plan.parts:
        free = behind(plan.tasks, each.tasks, specs)
        specs.append(str(free))
        if each == part:
            break
    fits = takes_slices(plan.environment.split()[0]) and free.start + part.tasks <= plan.pool
    given.tasks = str(free) if fits else f"{plan.tasks}:{part.tasks}"
    given.seed = seed if fits else seed + 1


def _filled(given: list[str], by: Mapping[str, object]) -> list[str]:
    """NAME=VALUE as given, and those of `by` that were not."""
    own = {item.partition("=")[0] for item in given}
    return [*(f"{name}={value}" for name, value in by.items() if name not in own), *given]


def fill_train(given: argparse.Namespace) -> None:
    """Put the pilot's own traces, and what else a plan trains on, before the runs of `fewsteps train`."""
    plan = read_plan(given.plan)
    folder = Path(given.plan).with_suffix("").with_name(f"{Path(given.plan).stem}-pilot")
    pilot = open_run(plan.pilot)
    if not _own_traces_of(pilot, plan, folder):
        with whole_folder(folder) as draft:
            own_traces(pilot, draft, success=plan.pilot_traces == "success")
    given.runs = [str(folder), *plan.beside, *given.runs]


def _own_traces_of(pilot: Run, plan: PlanFile, folder: Path) -> bool:
    """Whether a folder has the traces that this plan trains on, and not those of an earlier plan."""
    if not folder.exists() or not any(folder.iterdir()):
        return False
    info = open_run(folder).info if (folder / "run.json").exists() else {}
    if "cut" not in info:
        raise InputError(
            f"{folder} is where the pilot's traces are written, and holds something else: move it, or rename "
            f"the plan"
        )
    same = all(info.get(name) == pilot.info.get(name) for name in ("recipe_hash", "task_hash", "seed"))
    return same and (info["cut"].get("run"), info["cut"].get("traces")) == (
        str(pilot.folder),
        plan.pilot_traces,
    )
