"""Agents of Harbor: a student's prefix and the teacher's continuation; and one that fewsteps plays through.

    harbor run -p TASK -a agentloop.environments.terminal.harbor.agent:StudentThenTeacher \\
        --ak student=openai:MODEL@URL --ak teacher=openai:MODEL@URL --ak switch=4 --ak K=3

They work in any environment of Harbor: the terminal is a tmux session in it. `fewsteps import` reads the
trial's trajectory.json with the author of each turn, and the reward from result.json.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from agentloop.policies.by_name import open_model
from agentloop.run.episode import EpisodeSettings, play, start
from agentloop.types import Author, Closes, EnvironmentFailed, Status
from occupancy.record.errors import InputError

from ..episode import Rules, TerminalEpisode
from ..sandbox.sandbox import Ran
from ..tasks.task import Place, TerminalTask
from ..terminus.elsewhere import open_screen_elsewhere
from ..terminus.prompts import load_template
from ..terminus.screen import SETTLED, TIMED
from .trajectory import Trajectory, find_recorded, recorded_policy
from .trial import LONGEST_LINE, said, sent

GET_TMUX = "command -v tmux >/dev/null || (apt-get update -qq && apt-get install -y -qq tmux)"
UNIFORM = "uniform"


class _Ours(BaseAgent):  # type: ignore[misc]
    """What both agents share."""

    capabilities = AgentCapabilities(atif=True)

    @staticmethod
    def name() -> str:
        """The name of this agent in Harbor's results."""
        return "fewsteps"

    def version(self) -> str:
        """The version of the protocol of turns, which Terminus-2 set."""
        return "terminus-2"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Install tmux where the image has none."""
        ran = await environment.exec(GET_TMUX, user="root")
        if ran.return_code:
            raise RuntimeError(f"no tmux in the image, nor to install: {(ran.stdout or '')[-200:]}")


class StudentThenTeacher(_Ours):
    """The student plays turns 1 to t' - 1, the teacher at most K from t' on.

    Options (`--ak NAME=VALUE`): `student` and `teacher` as `fewsteps collect` takes them. `prefix`, a jobs
    folder of this agent, in place of `student`: the student's turns that were recorded there for the same
    task are played again. `switch` is t', or `uniform`: drawn from 1..T of that trajectory; without it the
    student plays alone. `K` is a number or inf. Also `turns` (T_max), `mode`, `prompt` and `seed`. Where
    the task is not complete after turn T_max or after K turns, it is graded as it is.
    """

    def __init__(
        self,
        *given: Any,
        student: str = "",
        teacher: str = "",
        prefix: str = "",
        switch: int | str = 0,
        K: int | str = "inf",
        turns: int = 50,
        mode: str = TIMED,
        prompt: str = "",
        seed: int = 0,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        if bool(student) == bool(prefix) and switch != 1:
            raise InputError("expected --ak student=SPEC or --ak prefix=FOLDER, one of them")
        if bool(teacher) != bool(switch) or (switch == UNIFORM and not prefix):
            raise InputError("expected --ak teacher=SPEC with switch=T, or with switch=uniform and a prefix")
        if mode not in (SETTLED, TIMED):
            raise InputError(f"mode={mode!r}: expected {SETTLED} or {TIMED}")
        self._student, self._teacher, self._prefix = student, teacher, prefix
        self._switch, self._K = switch, turns if K == "inf" else int(K)
        self._turns, self._mode, self._seed = turns, mode, int(seed)
        self._template = load_template(Path(prompt) if prompt else None)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Play the episode; tokens and the trajectory are written at every turn, whatever ends it."""
        told = Trajectory(self.logs_dir / "trajectory.json", instruction, context)
        rules = Rules(self._turns, self._mode, self._template)
        env = TerminalEpisode(_task(instruction, environment), rules)
        try:
            history = await start(env, seed=self._seed)
            for author, spec, policy, most in self._parts(instruction):
                try:
                    how = EpisodeSettings(author, most, self._turns, lambda t: self._seed * 1000 + t)
                    episode = await play(env, told.noting(policy, author, spec), history, how)
                finally:
                    if isinstance(policy, Closes):
                        await policy.close()
                history = episode.history
                told.write(history.context())
                if episode.error:
                    raise RuntimeError(f"{episode.status}: {episode.error}")
                if episode.status is not Status.CAPPED:
                    break
        finally:
            await env.close()

    def _parts(self, instruction: str) -> list[tuple[Author, str, Any, int]]:
        recorded = find_recorded(Path(self._prefix), instruction) if self._prefix else []
        t = self._switch or self._turns + 1
        if t == UNIFORM:
            t = random.Random(f"{self._seed}:{instruction}").randint(1, len(recorded))
        parts: list[tuple[Author, str, Any, int]] = []
        if int(t) > 1:
            policy = recorded_policy(recorded) if self._prefix else open_model(self._student)
            parts.append((Author.STUDENT, self._student or self._prefix, policy, int(t) - 1))
        if self._teacher:
            parts.append((Author.TEACHER, self._teacher, open_model(self._teacher), self._K))
        return parts


class Relay(_Ours):
    """Runs the commands that fewsteps sends over a local socket (`--ak socket=PATH`); see trial.py."""

    def __init__(self, *given: Any, socket: str = "", **named: Any) -> None:
        super().__init__(*given, **named)
        self._socket = socket

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Serve commands until fewsteps ends the episode."""
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=LONGEST_LINE)
        try:
            await sent(writer, {"instruction": instruction})
            while (asked := await said(reader)) is not None and "run" in asked:
                ran = await environment.exec(asked["run"])
                output = f"{ran.stdout or ''}{ran.stderr or ''}"
                await sent(writer, {"output": output, "code": ran.return_code})
        finally:
            writer.close()


class _Container:
    """An environment of Harbor as a machine that runs commands."""

    def __init__(self, environment: BaseEnvironment) -> None:
        self._environment = environment

    async def run(self, command: str) -> Ran:
        try:
            ran = await self._environment.exec(command)
        except RuntimeError as error:
            raise EnvironmentFailed(f"Harbor's environment failed: {error}") from error
        return Ran(f"{ran.stdout or ''}{ran.stderr or ''}".encode(), ran.return_code)


def _task(instruction: str, environment: BaseEnvironment) -> TerminalTask:
    @asynccontextmanager
    async def opened(mode: str) -> AsyncIterator[Place]:
        async def later() -> float:
            return 0.0  # Harbor's verifier runs after the agent; this number goes nowhere

        yield Place(await open_screen_elsewhere(_Container(environment), mode=mode), later)

    return TerminalTask(instruction, opened)
