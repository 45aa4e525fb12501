"""`fewsteps collect --dry-run`: what it would cost, before anything is bought."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from occupancy.record.show import show, table

if TYPE_CHECKING:
    from agentloop.run.settings import Settings, SpendingLimits
    from agentloop.types import Environments


def show_forecast(
    given: argparse.Namespace,
    environments: Environments,
    settings: Mapping[str, Settings],
    spending: SpendingLimits,
) -> int:
    """Print the lowest, expected and highest cost of each recipe."""
    from agentloop.ledger.forecast import forecast
    from agentloop.run.collect import tasks_of
    from agentloop.run.plan_file import read_plan
    from occupancy.runs import open_run

    source = given.like or (read_plan(given.plan).pilot if given.plan else None)
    like = None if source is None else open_run(source)
    found = {
        name: forecast(
            one,
            tasks_of(environments, one.tasks, seed=one.seed),
            spending,
            turn_tokens=_limit_of(given.teacher) or spending.turn_tokens,
            like=like,
        )
        for name, one in settings.items()
    }
    report = {name: asdict(one) for name, one in found.items()}
    show(given, {"forecast": report}, lambda: _shown(report))
    return 0


def _limit_of(teacher: str) -> int | None:
    """Most output tokens of a model's turn, from its name alone; None for other policies."""
    from agentloop.policies.chat_spec import parse_chat
    from agentloop.policies.token_policy import parse_tokens

    kind, _, rest = teacher.partition(":")
    if kind == "openai":
        return parse_chat(teacher).max_tokens
    return parse_tokens(rest).max_tokens if kind in ("vllm", "transformers") else None


def _shown(report: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    heads = ("recipe", "proposals", "demos", "lowest", "expected", "highest", "limit")
    names = ("proposals", "demonstrations", "lowest", "expected", "highest", "limit")
    rows = [
        (recipe, *("-" if one[name] is None else f"{one[name]:,.0f}" for name in names))
        for recipe, one in report.items()
    ]
    yield table("teacher output tokens (C_i), nothing bought", heads, rows, left=("recipe",))
    learnt = next(iter(report.values()))["learnt_from"]
    if learnt is None:
        yield (
            "Nothing is expected without a run to learn from: give --like RUN, such as a pilot; before a "
            "first pilot, `fewsteps plan --design` guesses."
        )
    else:
        yield f"Expected from {learnt}; lowest and highest: 90 % interval, errors clustered by task."
    yield "limit: --budget, or every turn at its limit (--turn-tokens, or max_tokens of the teacher)."
