"""The command lines that buy what a plan recommends, in order; capitals are for the user to fill in."""

from __future__ import annotations

import math
import shlex

from analysis.plan.report import Plan
from occupancy.record.recipe import K_text


def commands(plan: Plan) -> tuple[str, ...]:
    """None where the recommendation is no finding.

    With r < 1 prefixes are those of a student trained on demonstrations: the pilot's and those bought first.
    """
    if plan.status != "ranked":
        return ()
    best = plan.recommended
    depth = () if best.recipe == "pure-bc" else (f"K={K_text(best.K)}",)
    student = str(plan.pilot["student"])
    if best.recipe == "pure-bc" or best.r_tokens == 1:
        return (_collect(plan, best.recipe, depth, n=best.n, tasks=best.tasks, student=student, out="RUN"),)
    lines, shown = [], ["PILOT"]
    if best.demos and best.r_tasks:
        tasks = max(round(best.tasks * (1 / best.r_tasks - 1)), 1)
        each = math.ceil(best.demos / tasks)
        lines.append(_collect(plan, "pure-bc", (), n=each, tasks=tasks, student=student, out="DEMOS"))
        shown.append("DEMOS")
    lines.append(f"fewsteps train {' '.join(shown)} --base PI_0 --preset PRESET --out PI_1")
    lines.append(_collect(plan, best.recipe, depth, n=best.n, tasks=best.tasks, student="PI_1", out="RUN"))
    return tuple(lines)


def _collect(
    plan: Plan, recipe: str, changes: tuple[str, ...], *, n: int, tasks: int, student: str, out: str
) -> str:
    made = plan.pilot
    split = str(made["task_spec"]).partition(":")[0]
    start = () if made["success_at"] == 1 else (f"success_at={made['success_at']}",)
    settings = (*changes, f"n={n}", f"T_max={made['T_max']}", *start)
    return shlex.join(
        [
            *("fewsteps", "collect", "--env", made["environment"].split()[0], "--recipe", recipe),
            *(word for setting in settings for word in ("--set", setting)),
            *("--student", student, "--teacher", made["teacher"]),
            *("--tasks", f"{'SPLIT' if split[:1] in ('', '@') else split}:{tasks}", "--out", out),
        ]
    )
