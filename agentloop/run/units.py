"""Units of work, many at a time: bounded memory, and rows on disk soon after they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agentloop.run.folder import never_began, refuse_failures_alone, units_left, withdraw_unopened
from agentloop.run.types import Unit
from occupancy.record.errors import BudgetStopped, RunError
from occupancy.record.rows import Rows, merged
from occupancy.runs import Run

COMMIT_EVERY_S = 2.0
"""Finished rows wait at most so long: a kill loses no more of the student's work than this."""
COMMIT_MOST = 256
"""Units that wait for a commit at most."""

NOT_OPENED_MOST = 10
"""Tasks in a row that may not open before the environment counts as lost."""

Progress = Callable[[int, int, Rows], None]
"""Called after every commit: units done, units in all, the rows just written."""


class Committer:
    """Collects rows of finished units and writes them as parts of the run.

    One thread writes: a commit that nobody waits for any more is still finished before the next one begins.
    """

    def __init__(self, run: Run, *, done: int, total: int, progress: Progress) -> None:
        self._run, self.done, self._total, self._progress = run, done, total, progress
        self._pending: list[Rows] = []
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "commit")

    async def add(self, rows: Rows) -> None:
        """Take a unit's rows; waits for the disk where too many are pending."""
        self._pending.append(rows)
        if len(self._pending) >= COMMIT_MOST:
            await self.flush()

    async def flush(self) -> None:
        """Write what is pending as one part."""
        async with self._lock:
            batch, self._pending = self._pending, []
            if not batch:
                return
            rows = merged(*batch)
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._run.commit, rows)
            except OSError as error:
                raise RunError(
                    f"{self._run.folder} cannot be written ({error}): make room on the disk and run the same "
                    f"command again; what was bought is kept"
                ) from error
            self.done += len(batch)
            self._progress(self.done, self._total, rows)

    def close(self) -> None:
        """Wait for the commit that is under way."""
        self._thread.shutdown(wait=True)

    async def flush_often(self, ended: asyncio.Event) -> None:
        """Write at least every COMMIT_EVERY_S seconds until the units have ended.

        It ends by the event, since a commit that is cancelled before its thread begins would lose its rows.
        """
        while not ended.is_set():
            try:
                async with asyncio.timeout(COMMIT_EVERY_S):
                    await ended.wait()
            except TimeoutError:
                await self.flush()


async def play_units(
    units: Sequence[Unit],
    run: Run,
    play: Callable[[Unit], Awaitable[Rows]],
    *,
    at_once: int,
    progress: Progress,
) -> Run:
    """Play the units that the run lacks, `at_once` at a time, and commit their rows; returns the whole run.

    After a stop at the budget no unit is begun; those that are running may finish without another call. One
    that did not open is written once all others are done, and a resume tries it again.

    Raises:
        BudgetStopped: The budget ended it.
        RunError: The environment or a model failed in all episodes, or many tasks in a row did not open.
    """
    tried = withdraw_unopened(run)  # then many in a row are expected
    left = units_left(units, run)
    committer = Committer(run, done=len(units) - len(left), total=len(units), progress=progress)
    waiting = iter(left)
    stops: list[BudgetStopped] = []
    closed: list[Rows] = []
    in_a_row: set[str] = set()

    async def worker() -> None:
        for unit in waiting:
            try:
                rows = await play(unit)
            except BudgetStopped as stop:
                stops.append(stop)
            else:
                if never_began(rows):
                    closed.append(rows)
                    in_a_row.add(unit.key.task_id)
                    if len(in_a_row) >= NOT_OPENED_MOST and not tried:
                        raise _lost(rows)
                else:
                    in_a_row.clear()
                    await committer.add(rows)
            if stops:
                return

    try:
        async with asyncio.TaskGroup() as group:
            ended = asyncio.Event()
            often = group.create_task(committer.flush_often(ended))
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(at_once, len(left))):
                        workers.create_task(worker())
            finally:
                # One failure ends the run; what the others have finished is kept.
                ended.set()
                await often
                await committer.flush()
        if closed and not stops:
            if not committer.done:
                raise _lost(closed[0])
            for rows in closed:
                await committer.add(rows)
            await committer.flush()
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    finally:
        committer.close()
    if stops:
        raise stops[0]
    refuse_failures_alone(run)
    return run


def _lost(unopened: Rows) -> RunError:
    return RunError(
        f"the environment opens no task any more ({unopened['episodes'][0]['error']}): repair it and run "
        f"the same command again, which tries these tasks again"
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure, which stopped every worker."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
