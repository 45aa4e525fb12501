"""Caches over textworld's pure functions, installed once in a worker process.

textworld translates the PDDL problem twice when a game is loaded and twice more at every reset; at every step
it parses the same text templates and copies the same names again. A worker keeps the translations of its last
few games (30 MB for a large one) and the parsed templates (a few hundred, small).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

TEMPLATES_KEPT = 4096


def install(*, games: int) -> None:
    """Cache translations of the last `games` problems and the parsed templates, in this process, for good."""
    import fast_downward
    from textworld.envs.pddl import logic, textgen

    logic.fast_downward = SimpleNamespace(
        Atom=fast_downward.Atom,
        Operator=fast_downward.Operator,
        translate=fast_downward.translate,
        pddl2sas=translations(fast_downward.pddl2sas, games=games),
    )
    textgen._parse_and_convert = copies(textgen._parse_and_convert)
    textgen.copy_context = shallow_context
    textgen.Rule = SimpleNamespace(
        parse_conjunctive_query=lru_cache(TEMPLATES_KEPT)(textgen.Rule.parse_conjunctive_query)
    )


def forget_propositions() -> None:
    """Empty textworld's own table of every proposition it ever made, which no game after it needs.

    It would grow by about 1 MB a game. Propositions are equal by value, so those that live on stay good.
    """
    from mementos import core

    core._memento_cache.clear()


def translations(translate: Callable[..., Any], *, games: int) -> Callable[..., Any]:
    """`fast_downward.pddl2sas` with the last `games` results kept.

    The pruned translation (`optimize=True`) serves the planner only, which is never asked here: the plain one
    is given in its place. The planner would plan from it too, more slowly.
    """

    @lru_cache(maxsize=games)
    def plain(domain: str, problem: str) -> Any:
        return translate(domain, problem)

    def cached(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        return plain(domain, problem)

    return cached


def copies(parse: Callable[..., Any]) -> Callable[..., Any]:
    """A grammar parser whose results are kept; callers write into what they get, so they get copies."""

    @lru_cache(TEMPLATES_KEPT)
    def parsed(text: str, rule_name: str) -> Any:
        return parse(text, rule_name=rule_name)

    def fresh(text: str, *, rule_name: str, trace: bool = False) -> Any:
        return copy.deepcopy(parsed(text, rule_name))

    return fresh


def shallow_context(context: dict[str, Any]) -> dict[str, Any]:
    """A derivation's context with dictionaries of its own; their values are only read, so they are shared."""
    return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}
