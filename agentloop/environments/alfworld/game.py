"""One ALFWorld game, played synchronously inside a worker process."""

from __future__ import annotations

from typing import Any

from agentloop.types import Reply

from . import memo
from .commands import parse_command
from .expert import Expert
from .games import Game

BANNER = "-= Welcome to TextWorld, ALFRED! =-"


class Player:
    """Loads games one after another into the one planner library that this process may hold."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        # Every PddlEnv maps a copy of the planner's library and never unmaps it: one serves all games.
        wanted = textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
        self._env = AlfredDemangler(PddlEnv(wanted))
        self._expert: Expert | None = None
        self._state: Any = None

    def load(self, game: Game) -> None:
        """Make `game` the one that is played."""
        self._state = None
        memo.forget_propositions()
        self._env.load(
            {
                "pddl_domain": game.domain,
                "grammar": game.grammar,
                "pddl_problem": game.problem,
                "solvable": True,
            }
        )
        self._expert = Expert(game)

    def reset(self, seed: int) -> Reply:
        """Start an episode: the room and the task. A game draws nothing at random: `seed` changes nothing."""
        assert self._expert is not None, "reset before load"
        self._state = self._env.reset()
        self._expert.start(self._state)
        return Reply(observation=self._state["feedback"].removeprefix(BANNER).strip())

    def step(self, text: str) -> Reply:
        """Play the command in a turn's raw text.

        parse_status  ok | empty | multiline | not_admissible; every text is played, as the game sees it
        """
        assert self._expert is not None, "step before load"
        if self._state is None or self._state["won"]:
            raise RuntimeError("step after the end of the episode, or before its start: reset first")
        command, status = parse_command(text)
        if command and command not in self._state["admissible_commands"]:
            status = "not_admissible"
        self._state, _, _ = self._env.step(command)
        self._expert.watch(self._state, command)
        won = bool(self._state["won"])
        return Reply(
            observation=self._state["feedback"], done=won, reward=1.0 if won else None, parse_status=status
        )

    def ask(self, question: str) -> Any:
        """`expert`: the scripted expert's next command. `admissible`: the commands that do something now."""
        assert self._expert is not None, "ask before load"
        if question == "expert":
            return self._expert.plan()
        if question == "admissible":
            return list(self._state["admissible_commands"])
        raise ValueError(f"question {question!r}: expected 'expert' or 'admissible'")
