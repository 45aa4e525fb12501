"""Terminal tasks as an `Environments`: `--env terminal`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentloop.environments.task_specs import Slice, named_ids
from agentloop.policies import scripted
from agentloop.types import Policy, Replay, Task
from occupancy.record.errors import InputError
from occupancy.record.specs import Few, Positive, checked

from .episode import Rules, TerminalEpisode
from .harbor.trial import HarborTasks, find_harbor
from .sandbox.images import HOST, open_image
from .sandbox.launch import check_machine
from .sandbox.limits import Limits, sweep
from .scripted import student, teacher
from .tasks.folders import FolderTasks
from .tasks.nl2bash import NaturalLanguageToBash, find_data
from .terminus.prompts import load_template
from .terminus.screen import SETTLED, Mode

NL2BASH = "nl2bash"
ALL = "all"
T_MAX = 12
TaskSet = NaturalLanguageToBash | FolderTasks | HarborTasks
"""The tasks of one benchmark, with their version."""


class Terminal:
    """The benchmark; an `Environments`."""

    name = "terminal"
    replay = Replay.CHECKED
    policies = (teacher.NAME, scripted.NAME)

    def __init__(self, task_set: TaskSet, rules: Rules, *, version: str, workers: int) -> None:
        self.task_set, self.rules, self.version, self.capacity = task_set, rules, version, workers
        self.T_max = rules.T_max
        self._free = asyncio.Semaphore(workers)

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Tasks named by `spec`: a split (train, test, all), split:N, split:A-B, or @file of task ids."""
        tasks = self.task_set.tasks
        splits = [*sorted({task.split for task in tasks.values()}, reverse=True), ALL]

        def pool(part: Slice) -> list[str]:
            return [task_id for task_id, task in tasks.items() if part.split in (ALL, task.split)]

        return [self._task(task_id) for task_id in named_ids(spec, pool, splits=splits, seed=seed)]

    def policy(self, spec: str) -> Policy | None:
        """`expert`, or `scripted` with settings as in `scripted:blunder=0.5`; None for any other name."""
        teachers = {teacher.NAME: teacher.scripted_teacher}
        return scripted.own_policy(spec, teachers, student.StudentSettings, student.scripted_student)

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[TerminalEpisode]:
        """One task; its sandbox starts with `reset`. Waits while `workers` are open."""
        async with self._free:
            episode = TerminalEpisode(self.task_set.open(self._task(task.task_id).task_id), self.rules)
            try:
                yield episode
            finally:
                await episode.close()

    async def close(self) -> None:
        """Nothing is kept between tasks."""

    def _task(self, task_id: str) -> Task:
        task = self.task_set.tasks.get(task_id)
        if task is None:
            raise InputError(f"task id {task_id!r} is none of {self.version}")
        return task


@checked
def open_terminal(
    *,
    workers: Few = 2,
    tasks: str = NL2BASH,
    benchmark: str = "",
    network: str = "",
    timeout_factor: Positive = 1.0,
    harbor: str = "",
    image: str = HOST,
    turns: Few = T_MAX,
    mode: Mode = SETTLED,
    prompt: str = "",
    memory_mb: int = 512,
    disk_mb: int = 256,
    processes: int = 256,
) -> Terminal:
    """The benchmark; docs/terminal.md has more.

    Args:
        workers: sandboxes that are open at once; the scripted policies open some more for a moment.
        tasks: nl2bash, in the folder that FEWSTEPS_DATA names; or a folder of tasks, see `folders`.
        benchmark: name and version of a folder's tasks (terminal-bench@2.1); its own name by default.
        network: build and verifier, with a comma: which of them has the machine's network; never the agent.
        timeout_factor: multiplies the seconds that a folder's tasks give an agent.
        harbor: an environment of Harbor (docker, or module:Class) that a folder's tasks are played in, in
            place of the local sandbox; the settings below but turns, mode and prompt are then Harbor's own.
        image: host, or the folder of a root file system; see `images`.
        turns: T_max; the last turn is graded like any other end.
        mode: settled (waits for commands, so that a replay sees the same) or timed (sleeps, as Terminus-2).
        prompt: file with another template; see `prompts`.
        memory_mb: memory of one sandbox, written files included.
        disk_mb: written files of one sandbox.
        processes: processes of one sandbox.
    """
    if tasks != NL2BASH and not Path(tasks).is_dir():
        raise InputError(f"tasks={tasks!r}: expected {NL2BASH}, or a folder of tasks")
    if harbor and (tasks == NL2BASH or network):
        raise InputError(f"harbor={harbor!r} plays folders of tasks (tasks=FOLDER), with their own networks")
    template = load_template(Path(prompt) if prompt else None)
    played = f"turns={turns} mode={mode} prompt={template.hash}"
    factor = "" if timeout_factor == 1 else f" timeout_factor={timeout_factor:g} (not comparable)"
    if harbor:
        trials = HarborTasks(
            Path(tasks), find_harbor(harbor), benchmark=benchmark, timeout_factor=timeout_factor
        )
        rules = Rules(turns, mode, template)
        return Terminal(trials, rules, version=f"{trials.version} {played}{factor}", workers=workers)
    check_machine()
    sweep()
    limits = Limits(memory_mb=memory_mb, disk_mb=disk_mb, processes=processes)
    found = open_image(image)
    task_set: TaskSet = (
        NaturalLanguageToBash(find_data(), found, limits=limits)
        if tasks == NL2BASH
        else FolderTasks(Path(tasks), found, limits=limits, benchmark=benchmark, network=network)
    )
    version = (
        f"{task_set.version} image={found.name} {played} "
        f"memory_mb={memory_mb} disk_mb={disk_mb} processes={processes}"
        f"{f' network={network}' if network else ''}{factor}"
    )
    rules = Rules(turns, mode, template, timeout_factor)
    return Terminal(task_set, rules, version=version, workers=workers)
