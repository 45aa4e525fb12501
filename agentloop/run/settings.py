"""What a run collects, and what it may spend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from agentloop.ledger.budget import Axis
from occupancy.record.errors import InputError
from occupancy.record.prices import PICO, PriceTable
from occupancy.record.recipe import INF, Recipe
from occupancy.record.rows import Rows
from occupancy.record.specs import Count, Few, NotNegative, Positive, Seed, Size, check

SWITCH_PROMPT = (
    "The attempt above did not reach its goal. It has {T} assistant turns, numbered from 1. Which is the "
    "first one that you would have played differently? Answer with its number alone."
)


@dataclass(frozen=True)
class Settings:
    """What is collected, from what, by whom. Saved in run.json, and compared at a resume."""

    recipe: Recipe
    student: str
    teacher: str
    tasks: str
    """Task spec, as the environment reads it."""
    seed: Seed = 0
    n_of_task: Mapping[str, int] = field(default_factory=dict)
    """Proposals of single tasks, by task id; every other task gets the recipe's n."""
    served_by: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the models' servers: recorded, and free to change at a resume."""
    env: str = ""
    """What `--env` named, for the commands that a plan writes: recorded, and not compared at a resume."""
    env_set: Mapping[str, str] = field(default_factory=dict)
    """Its settings from `--env-set`, recorded in the same way."""
    wall_s: Positive | None = None
    """Seconds for one episode; None = no limit."""
    end_on: tuple[str, ...] = ()
    """Parse statuses, in the environment's words, that end an episode as `bad_parse`; 'any': all but ok.
    Otherwise the environment's reply to such a turn goes into the context, and the episode continues."""
    switch_prompt: str = SWITCH_PROMPT
    """The question to the teacher under the law 'teacher'; {T} is the number of turns."""
    switch_weights: str = ""
    """package.module:function that gives w_1 .. w_T of a rollout (an `Episode`), for the law 'weights'."""
    pilot: bool = False
    handback: tuple[Size, ...] = (0, 1, 2, 3, 5)
    """Pilot only: teacher turns k after which the student takes over again. k = 0 measures U_0, the student's
    value of the context; the rollout does not, since t' depends on its length."""
    replicates: Few = 2
    """Pilot only: hand-backs at each k."""
    demo_tasks: Size = 40
    """Pilot only: tasks of the list that also get a demonstration, from its start."""

    def __post_init__(self) -> None:
        check(self)
        recipe = self.recipe
        law = (recipe.psi, recipe.phi, recipe.context, recipe.switch.law)
        of_all = recipe.rho != "teacher" and law == ("all", "all", "all", "uniform")
        if self.pilot and (recipe.K != INF or not of_all):
            raise InputError(
                f"a pilot with K={recipe.K}, psi={recipe.psi!r}, phi={recipe.phi!r}, "
                f"context={recipe.context!r}, switch law {recipe.switch.law!r}, rho={recipe.rho!r}: it must "
                f"hold whole continuations of student contexts drawn uniformly; use --recipe op-short "
                f"--set K=inf"
            )
        check_end_on(self.end_on)
        if len(set(self.handback)) < len(self.handback):
            raise InputError(f"handback={self.handback}: expected each number of teacher turns once")
        for task_id, n in self.n_of_task.items():
            if n < 0:
                raise InputError(f"n={n} for task {task_id!r}: expected 0 proposals or more")
        if (recipe.switch.law == "weights") != bool(self.switch_weights):
            raise InputError(
                f"switch law {recipe.switch.law!r} with switch_weights={self.switch_weights!r}: the law "
                f"'weights', and it alone, needs --switch-weights package.module:function"
            )
        if "{T}" not in self.switch_prompt:
            raise InputError(
                f"the switch prompt {self.switch_prompt[:60]!r} lacks {{T}}: the teacher must be told "
                f"how many turns it can choose from"
            )

    def n_of(self, task_id: str) -> int:
        """Proposals of a task."""
        return self.n_of_task.get(task_id, self.recipe.n)

    def to_info(self) -> dict[str, Any]:
        """The settings as run.json holds them; the recipe has a file of its own."""
        info: dict[str, Any] = {
            "kind": "pilot" if self.pilot else "collect",
            "student": self.student,
            "teacher": self.teacher,
            "tasks": self.tasks,
            "seed": self.seed,
            "n_of_task": dict(self.n_of_task),
            "wall_s": self.wall_s,
            "end_on": sorted(self.end_on),
        }
        if self.recipe.switch.law == "teacher":
            info["switch_prompt"] = self.switch_prompt
        if self.switch_weights:
            info["switch_weights"] = self.switch_weights
        if self.pilot:
            info |= {
                "handback": list(self.handback),
                "replicates": self.replicates,
                "demo_tasks": self.demo_tasks,
            }
        return info


def check_end_on(statuses: tuple[str, ...]) -> None:
    """InputError for a parse status that ends no episode."""
    if not all(statuses) or "ok" in statuses:
        raise InputError(
            f"end_on={statuses}: expected parse statuses other than ok, or 'any' for all of them"
        )


def tasks_info(task_ids: Sequence[str]) -> dict[str, Any]:
    """The tasks, as run.json holds them: with a hash, since the same spec may name other tasks later."""
    digest = blake2b("\n".join(task_ids).encode(), digest_size=8)
    return {"n_tasks": len(task_ids), "task_hash": digest.hexdigest()}


@dataclass(frozen=True)
class SpendingLimits:
    """The budget of a run, and its retries; may change at a resume."""

    budget: float | None = None
    """Tokens, or money in the price table's currency; None = no limit."""
    axis: Axis = "inference"
    """inference: C_i, never exceeded. money: the same in money. training: C_tr, to within one
    continuation."""
    matched: bool = False
    """Pass the budget by less than one continuation instead of staying below it, so that several recipes
    spend the same."""
    prices: PriceTable | None = None
    turn_tokens: Count | None = None
    """Most output tokens of one teacher turn, where the policy itself names no limit."""
    retries: Size = 5
    """Further attempts after a transient failure."""
    backoff_s: NotNegative = 0.5
    """Wait before the first of them."""

    def __post_init__(self) -> None:
        check(self)
        if self.axis == "money" and self.budget is not None and self.prices is None:
            raise InputError("--axis money without a price table: give --prices FILE.toml")
        least = 1 / PICO if self.axis == "money" else 1
        if self.budget is not None and not least <= self.budget < INF:
            raise InputError(
                f"--budget {self.budget:g} on the axis {self.axis}: expected at least 1 token, or money "
                f"above 0; leave it out for no limit"
            )

    @property
    def by_continuation(self) -> bool:
        """Whether the budget limits whole continuations and not single calls."""
        return self.budget is not None and (self.matched or self.axis == "training")

    @property
    def by_call(self) -> bool:
        """Whether it limits every call."""
        return self.budget is not None and not self.by_continuation

    def cost_of(self, rows: Rows, *, asked: int = 0) -> int:
        """What a unit with these rows takes out of a budget for whole continuations, in tokens.

        asked: output tokens of the answer that named its switch turn.
        """
        if self.axis == "training":
            return sum(trace["C_tr"] for trace in rows.get("traces", ()))
        taught: Iterable[int] = (
            turn["output_tokens"] for turn in rows.get("turns", ()) if turn["author"] == "teacher"
        )
        return asked + sum(taught)
