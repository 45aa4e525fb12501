"""A plan as a file that can be carried out, and the command lines that do."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from agentloop.policies.chat_spec import bounds_a_turn, served
from agentloop.run.collect import environment_of
from agentloop.run.plan_file import Part, PlanFile
from agentloop.serve.settings import HARNESS
from analysis.plan.report import Plan
from occupancy.record.drafts import new_file, write_whole
from occupancy.runs import open_run


def plan_file(plan: Plan, pilot: str | Path) -> PlanFile:
    """What `spend`, `collect --plan` and `train --plan` take: every part with its budget, tasks and n."""
    best, made = plan.recommended, plan.pilot
    left = plan.budget - (made["price"] if made["charged"] else 0.0)
    split = str(made["task_spec"]).partition(":")[0]
    parts = []
    if best.demos:
        n = best.n if best.recipe == "pure-bc" else max(math.ceil(best.demos / made["pool"]), 1)
        share = (1 - best.r_tokens) * left
        parts.append(Part("demonstrations", "pure-bc", math.inf, n, math.ceil(best.demos / n), share))
    if best.contexts:
        share = best.r_tokens * left
        parts.append(Part("continuations", best.recipe, best.K, best.n, best.tasks, share, best.context))
    run = open_run(pilot)
    environment, env_set = environment_of(run.info)
    at = run.info.get("made_with", {})
    return PlanFile(
        pilot=str(Path(pilot).resolve()),
        budget=plan.budget,
        axis=plan.axis,
        pilot_charged=made["charged"],
        beside=tuple(made.get("beside", ())),
        pilot_traces=best.pilot_traces,
        r_tokens=best.r_tokens,
        environment=environment,
        student=served(made["student"], at.get("student_server", "")),
        teacher=served(made["teacher"], at.get("teacher_server", "")),
        tasks="" if split[:1] == "@" else split,
        pool=made["pool"],
        pool_stated=made["pool_stated"],
        T_max=made["T_max"],
        success_at=made["success_at"],
        env_set=env_set,
        turn_tokens=None if bounds_a_turn(made["teacher"]) else _turn_limit(pilot),
        parts=tuple(parts),
        contenders=tuple(c.arm.to_dict() | {"pass_at_1": c.pass_at_1} for c in plan.not_worse[:12]),
    )


def _turn_limit(pilot: str | Path) -> int:
    """A limit for a teacher that names none, which a budget needs: far above the pilot's longest turn."""
    turns = open_run(pilot).read("turns", columns=["author", "output_tokens"]).to_pylist()
    return 8 * max((turn["output_tokens"] for turn in turns if turn["author"] == "teacher"), default=128)


def new_plan(name: str | Path) -> Path:
    """The path of a plan's file to write; InputError where it cannot be, or where another file is."""
    return new_file(name, begins="format = ", what="a plan of `fewsteps plan`")


def write_plan(plan: Plan, pilot: str | Path, file: str | Path) -> Path:
    """Write the plan's file whole or not at all; returns its path."""
    file = new_plan(file)
    write_whole(file, plan_file(plan, pilot).to_toml())
    return file


def commands(file: str | Path, plan: PlanFile) -> tuple[str, ...]:
    """The command lines that carry a plan out, in order; capitals are for the user to fill in."""
    lines: list[str] = []
    runs, student, file = "", "", shlex.quote(str(file))

    def train(out: str) -> str:
        return f"fewsteps train --plan {file}{runs} --base PI_0 --preset PRESET --out {out}"

    for part in plan.parts:
        if part.name == "continuations" and plan.r_tokens < 1:
            lines.append(train("PI_1"))
            student = " --student PI_1"
        run = part.name.upper()
        runs += f" {run}"
        given, harness = f"--plan {file} --part {part.name}{student}", plan.environment == HARNESS
        lines.append(f"fewsteps serve {run} {given}" if harness else f"fewsteps collect {given} --out {run}")
    return (*lines, train("FINAL"))
