"""The benchmark's scripted expert, as a teacher.

Inside a worker, `Expert` follows an episode, whichever policy plays it, and gives the command that it would
play next. In the parent, `scripted_expert` is the policy that asks for it.

The expert of alfworld 0.4.2 plays `move X to Y`, but tracks what it holds by `put`: given its own commands it
never notices that it has placed an object, and fails most two-object tasks. It is therefore shown placements
as `put` in both grammars, which is what it was written for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agentloop.policies.scripted import BoundedScript
from agentloop.types import Ask, Policy, PolicyFailed

from .games import Game
from .grammars import move_to_put, put_to_move

MAX_STEPS = 10_000
"""The expert's own step limit is never met: the episode loop has T_max."""


class Expert:
    """Watches one episode from its first state; `plan` is a function of what it has watched, nothing else.

    Turns are kept, and processed only when a plan is asked for: an episode of a language model without such a
    question costs nothing.
    """

    def __init__(self, game: Game, state: Mapping[str, Any]) -> None:
        self._game = game
        self._watched = [(_kept(state), "")]
        self._policy: Any = None
        self._turn, self._plan, self._failure = 0, "look", ""

    def watch(self, state: Mapping[str, Any], command: str) -> None:
        """One more turn: the command that was played and the state after it."""
        self._watched.append((_kept(state), command))

    def plan(self) -> str:
        """The command to play now; PolicyFailed where the expert's own code fails off its plan."""
        for state, command in self._watched:
            self._advance(state, command)
        self._watched.clear()
        if self._failure:
            raise PolicyFailed(self._failure)
        return self._plan

    def _advance(self, state: dict[str, Any], command: str) -> None:
        from alfworld.agents.expert import HandCodedTWAgent, handcoded_expert

        if self._policy is None:
            self._policy = HandCodedTWAgent(max_steps=MAX_STEPS)
            params = _task_params(self._game)
            self._policy.policy = self._policy.get_task_policy(params)(params, max_steps=MAX_STEPS)
            self._policy.observe(state["feedback"])
            return
        self._turn += 1
        # The expert draws among like objects from the module `random`: let the draw depend on the turn alone.
        handcoded_expert.random = random.Random(self._turn)
        admissible = state["admissible_commands"]
        seen = {**state, "admissible_commands": [put_to_move(c) for c in admissible]}
        try:
            action = self._policy.act(seen, 0, False, move_to_put(command))
        except Exception as error:  # its code has no error contract: IndexError, KeyError, its own
            told = f"{type(error).__name__}: {error}"
            self._failure = f"the scripted expert failed at turn {self._turn + 1}: {told}"
            return
        self._failure = ""
        if self._game.grammar_version == "2.1.1":
            action = move_to_put(action)
        self._plan = action if action in admissible else "look"


def _kept(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: state[key] for key in ("feedback", "admissible_commands", "facts")}


def _task_params(game: Game) -> dict[str, Any]:
    from alfworld.gen import constants

    params = {k: v.lower() if v in constants.OBJECTS else v for k, v in game.params.items()}
    return {**params, "task_type": game.task_type}


def scripted_expert() -> Policy:
    """A policy that plays what the benchmark's expert says; the command is the whole text of its turn."""

    async def play(ask: Ask) -> str:
        return str(await ask.env.ask("expert"))

    return BoundedScript(play, most=64)
