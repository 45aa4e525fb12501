"""One ALFWorld game, played inside a worker process, and the caches that make it fast there.

textworld translates the PDDL problem twice when a game is loaded and twice more at every reset; at every step
it parses the same text templates and copies the same names again. A worker keeps the translations of its last
few games (30 MB for a large one) and the parsed templates (a few hundred, small).
"""

from __future__ import annotations

import copy
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from agentloop.types import Reply

from .expert import Expert
from .games import Game
from .grammars import parse_command

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
TEMPLATES_KEPT = 4096


class Player:
    """Loads games one after another into the one planner library that this process may hold."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        # Every PddlEnv maps a copy of the planner's library and never unmaps it: one serves all games.
        wanted = textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
        self._env = AlfredDemangler(PddlEnv(wanted))
        self._game: Game | None = None
        self._expert: Expert | None = None
        self._state: Any = None

    def load(self, game: Game) -> None:
        """Make `game` the one that is played."""
        from mementos import core

        self._expert = None
        # textworld's table of all propositions would grow by about 1 MB a game. They are equal by value, so
        # those that live on stay good.
        core._memento_cache.clear()
        texts = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem}
        self._env.load(texts | {"solvable": True})
        self._game = game

    def reset(self, seed: int) -> Reply:
        """Start an episode: the room and the task. A game draws nothing at random: `seed` changes nothing."""
        assert self._game is not None, "reset before load"
        self._state = self._env.reset()
        self._expert = Expert(self._game, self._state)
        return Reply(self._state["feedback"].removeprefix(BANNER).strip())

    def step(self, text: str) -> Reply:
        """Play the command in a turn's raw text.

        parse_status  ok | empty | multiline | not_admissible; every text is played, as the game sees it
        """
        if self._expert is None or self._state["won"]:
            raise RuntimeError("step after the end of the episode, or before its start: reset first")
        command, status = parse_command(text)
        if command and command not in self._state["admissible_commands"]:
            status = "not_admissible"
        self._state, _, _ = self._env.step(command)
        self._expert.watch(self._state, command)
        won = bool(self._state["won"])
        return Reply(self._state["feedback"], won, 1.0 if won else None, parse_status=status)

    def ask(self, question: str) -> Any:
        """`expert`: the scripted expert's next command. `admissible`: the commands that do something now."""
        assert self._expert is not None, "ask before reset"
        return self._expert.plan() if question == "expert" else list(self._state["admissible_commands"])


def install_caches(*, games: int) -> None:
    """Cache translations of the last `games` problems, and the parsed templates, until this process ends."""
    import fast_downward
    from textworld.envs.pddl import logic, textgen

    plain = lru_cache(games)(fast_downward.pddl2sas)
    parsed = lru_cache(TEMPLATES_KEPT)(textgen._parse_and_convert)
    query = lru_cache(TEMPLATES_KEPT)(textgen.Rule.parse_conjunctive_query)

    def pddl2sas(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        # The pruned translation (`optimize=True`) serves the planner only, which is never asked here.
        return plain(domain, problem)

    def parse_and_convert(text: str, *, rule_name: str, trace: bool = False) -> Any:
        return copy.deepcopy(parsed(text, rule_name=rule_name))  # callers write into what they get

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        # What its dictionaries hold is only read, so it is shared.
        return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    logic.fast_downward = SimpleNamespace(**(vars(fast_downward) | {"pddl2sas": pddl2sas}))
    textgen._parse_and_convert, textgen.copy_context = parse_and_convert, copy_context
    textgen.Rule = SimpleNamespace(parse_conjunctive_query=query)
