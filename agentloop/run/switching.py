"""When the teacher takes over: t' from the recipe's law, or from the teacher itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop.policies.by_name import named
from agentloop.run.episode import Played, boundary, context_ids
from agentloop.run.filters import psi_verdicts
from agentloop.run.parts import Job, Stage
from agentloop.run.rows import Key
from agentloop.run.seeds import seed_of
from agentloop.types import Ask, ContextOverflow, EnvironmentFailed, Environments, Message, PolicyFailed
from occupancy.record.errors import RecipeError, RunError
from occupancy.record.recipe import Recipe
from occupancy.statistics.switch import draw_switch

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch time, or why there is none."""

    t_prime: int
    """From 1; 0 where there is none."""
    probability: float
    """Of t' given tau; 0 where there is none, or where the teacher decided and no law is known."""
    outcome: str = ""
    """Empty where the teacher takes over, else the proposal's outcome."""


async def switch_of(stage: Stage, key: Key, rollout: Played) -> Switch:
    """t' for a finished rollout, or the reason to skip it; the teacher is asked last, since that costs."""
    recipe = stage.job.recipe
    refused = _refused(rollout, stage.job)
    if recipe.switch.law != "teacher":
        drawn = draw_switch(
            rollout.length,
            recipe.switch,
            seed=stage.job.seed,
            trajectory=seed_of(key.task.task_id, key.rollout),
            T_max=recipe.T_max,
            weights=_weights(rollout, stage.job) if recipe.switch.law == "weights" else None,
        )
        if rollout.length and rollout.reward is not None and not drawn.accepted:
            refused = "invalid_switch"
        return Switch(drawn.t_prime, drawn.probability, refused)
    return Switch(0, 0.0, refused) if refused else await _ask_teacher(stage, key, rollout)


def live_switch(key: Key, job: Job) -> Switch:
    """t' before the rollout is known, for an environment that can be neither replayed nor forked."""
    recipe = job.recipe
    drawn = draw_switch(
        recipe.T_max,
        recipe.switch,
        seed=job.seed,
        trajectory=seed_of(key.task.task_id, key.rollout),
        T_max=recipe.T_max,
    )
    return Switch(drawn.t_prime, drawn.probability)


def refuse_recipe(recipe: Recipe, environments: Environments) -> None:
    """RecipeError for a recipe with longer episodes than the environment has."""
    if recipe.T_max > environments.T_max:
        raise RecipeError(
            f"T_max={recipe.T_max}, but an episode of {environments.name} has at most {environments.T_max} "
            f"turns: use --set T_max={environments.T_max}"
        )


def refuse_live(recipe: Recipe, environment: str) -> None:
    """RecipeError for a law or a filter that needs the whole rollout before the teacher can take over."""
    if recipe.rho != "teacher" and (recipe.switch.law not in ("start", "fixed") or recipe.psi != "all"):
        raise RecipeError(
            f"switch law {recipe.switch.law!r} with psi={recipe.psi!r} in {environment}, which can be "
            "neither "
            f"replayed nor forked: the teacher must take over live, so t' may not depend on the rollout; use "
            f"law 'fixed' or 'start' and psi='all'"
        )


def parse_turn(text: str, *, T: int) -> int:
    """The turn that a teacher's answer names: its last number, or 0 where that is no turn of 1..T."""
    numbers = _NUMBER.findall(text)
    named = int(numbers[-1][:9]) if numbers else 0
    return named if 1 <= named <= T else 0


def with_question(context: Sequence[Message], question: str) -> tuple[Message, ...]:
    """The context with a question to its reader at the end, in the user's last message where that is open.

    Templates and servers that want the roles to alternate refuse a second user message.
    """
    *before, last = context
    if last.role != "user":
        return (*context, Message("user", question, "task"))
    return (*before, Message("user", f"{last.content}\n\n{question}", "task"))


def _weights(rollout: Played, job: Job) -> Sequence[float]:
    with boundary(RunError, f"the weights {job.switch_weights!r}"):
        weights = [float(weight) for weight in named(job.switch_weights)(rollout)]
    return weights


def _refused(rollout: Played, job: Job) -> str:
    if rollout.reward is None:
        return "no_data"
    if rollout.length == 0:
        return "empty"
    return "" if psi_verdicts(rollout, job.recipe)[job.recipe.psi] else "prefix_filtered"


async def _ask_teacher(stage: Stage, key: Key, rollout: Played) -> Switch:
    asked = Key("switch", key.task, key.rollout, key.rollout)
    *_, context_id = context_ids(rollout.history)
    question = stage.job.switch_prompt.replace("{T}", str(rollout.length))
    ask = Ask(
        with_question(rollout.history.context(), question),
        0,
        seed_of(stage.job.seed, asked.episode_id),
        stage.env,
        asked.episode_id,
        context_id,
        stage.order,
    )
    try:
        with boundary(PolicyFailed, "the policy"):
            answer = await stage.job.teacher(ask)
    except ContextOverflow:
        return Switch(0, 0.0, "context")
    except PolicyFailed:
        return Switch(0, 0.0, "teacher_failed")
    except EnvironmentFailed as error:
        return Switch(0, 0.0, str(error.status))
    t_prime = parse_turn(answer.text, T=rollout.length)
    return Switch(t_prime, 0.0, "" if t_prime else "invalid_switch")
