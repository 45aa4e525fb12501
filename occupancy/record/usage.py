"""A provider's `usage` object as counts that do not contradict each other, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Counts(NamedTuple):
    """Tokens of one answer."""

    output: int
    """Reasoning included."""
    reasoning: int
    prompt: int | None
    cached: int | None
    """The part of the prompt read from a cache."""


def read_counts(given: Any) -> Counts | None:
    """`counts_of` a `usage` object of OpenAI's interface; None where there is none."""
    if not isinstance(given, Mapping):
        return None
    return counts_of(
        given.get("completion_tokens"),
        prompt=given.get("prompt_tokens"),
        total=given.get("total_tokens"),
        reasoning=_detail(given, "completion_tokens_details", "reasoning_tokens"),
        cached=_detail(given, "prompt_tokens_details", "cached_tokens"),
    )


def counts_of(output: Any, *, prompt: Any, total: Any, reasoning: Any, cached: Any) -> Counts | None:
    """The counts that a provider gives; None without output, or where they contradict each other.

    Output includes reasoning: where the parts add up to the total only with the reasoning beside the
    completion, the provider counts it apart, and it is added. A total that the parts do not add up to, or
    more reasoning than output, may hide output that is billed: such usage is unknown, and so is one with more
    cached tokens than its prompt has.
    """
    output, prompt, total, cached = map(whole, (output, prompt, total, cached))
    reasoning = whole(reasoning) or 0
    if output is None:
        return None
    if reasoning and prompt is not None and total == prompt + output + reasoning:
        output += reasoning
    hidden = total is not None and prompt is not None and not max(prompt, output) <= total <= prompt + output
    too_many = cached is not None and prompt is not None and cached > prompt
    return None if hidden or too_many or reasoning > output else Counts(output, reasoning, prompt, cached)


def whole(value: Any) -> int | None:
    """A plausible count; None for anything else."""
    plausible = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if plausible else None


def _detail(given: Mapping[str, Any], part: str, name: str) -> Any:
    inner = given.get(part)
    return inner.get(name) if isinstance(inner, Mapping) else None
