"""The switch turn t': drawn from the recipe's law, or named by the teacher."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentloop.policies.by_name import named
from agentloop.run.episode import Episode, boundary, context_ids, status_of
from agentloop.run.filters import psi_verdicts
from agentloop.run.types import OpenTask, Switch, seed_of
from agentloop.types import Ask, Author, EnvironmentFailed, Message, PolicyFailed, Status
from occupancy.record.errors import RunError
from occupancy.statistics.switch import Draw, draw_switch

_NUMBER = re.compile(r"\d+")


async def draw_switch_turn(opened: OpenTask, rollout: Episode) -> Switch:
    """t' for a rollout, or why the proposal is skipped; filters come first, since a question costs."""
    recipe, skipped = opened.setup.settings.recipe, _skipped(opened, rollout)
    if recipe.switch.law == "teacher":
        return Switch(0, 0.0, skipped) if skipped else await _ask_teacher(opened, rollout)
    drawn = _draw(opened, rollout)
    if rollout.reward is not None and rollout.length and not drawn.accepted:
        skipped = "invalid_switch"
    return Switch(drawn.t_prime, drawn.probability, skipped)


def turns_before_switch(opened: OpenTask) -> int:
    """Turns that the student plays: all of them, or t' - 1 where the teacher takes over live."""
    T_max = opened.setup.settings.recipe.T_max
    return _draw(opened, None).t_prime - 1 if opened.setup.live else T_max


def _draw(opened: OpenTask, rollout: Episode | None) -> Draw:
    """t' by the recipe's law; a live switch is drawn without its rollout, the same before and after it."""
    settings, key = opened.setup.settings, opened.unit.key
    recipe = settings.recipe
    weights = None
    if recipe.switch.law == "weights" and rollout is not None and rollout.length:
        with boundary(RunError, f"the weights {settings.switch_weights!r}"):
            weights = [float(weight) for weight in named(settings.switch_weights)(rollout)]
    return draw_switch(
        recipe.T_max if rollout is None or opened.setup.live else rollout.length,
        recipe.switch,
        seed=settings.seed,
        trajectory=seed_of(key.task_id, key.rollout),
        T_max=recipe.T_max,
        weights=weights,
    )


def _skipped(opened: OpenTask, rollout: Episode) -> str:
    """The outcome of a proposal in which the teacher does not take over; empty where it may."""
    recipe = opened.setup.settings.recipe
    if rollout.status is Status.SWITCHED:
        return ""
    if rollout.reward is None:
        return "no_data"
    if opened.setup.live:
        return "invalid_switch"
    if rollout.length == 0:
        return "empty"
    return "" if psi_verdicts(rollout, recipe)[recipe.psi] else "prefix_filtered"


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


async def _ask_teacher(opened: OpenTask, rollout: Episode) -> Switch:
    settings, key = opened.setup.settings, opened.unit.key
    asked = f"{key.task_id}#switch-{key.rollout}-{key.rollout}-x-x"
    *_, context_id = context_ids(rollout.history)
    question = settings.switch_prompt.replace("{T}", str(rollout.length))
    ask = Ask(
        with_question(rollout.history.context(), question),
        0,
        seed_of(settings.seed, asked),
        opened.env,
        asked,
        context_id,
        opened.unit.order,
    )
    try:
        with boundary(PolicyFailed, "the policy"):
            answer = await opened.setup.teacher(ask)
            opened.asked.append(answer.usage.output)
    except (PolicyFailed, EnvironmentFailed) as error:
        return Switch(0, 0.0, str(status_of(error, Author.TEACHER)))
    # The number at the end of an answer that was cut may be another one, or half of one.
    t_prime = parse_turn(answer.text, T=rollout.length) if answer.finish_reason == "stop" else 0
    return Switch(t_prime, 0.0, "" if t_prime else "invalid_switch")
