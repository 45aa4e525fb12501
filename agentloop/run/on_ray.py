"""Collect on many machines: units as Ray tasks, one writer of the ledger and of the run folder.

The process that calls `collect_on_ray` writes the run folder. An actor on the same machine holds the ledger
and the budget; actors on all machines hold environments and policies, and call it before and after every paid
call. When a machine dies, its units are played again elsewhere, its answered calls are in the ledger, and its
open calls count as perhaps billed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentloop.ledger.store import CallKey, Charge, Ledger, Result
from agentloop.policies.by_name import open_environments, open_policy
from agentloop.run.algorithm import play_unit
from agentloop.run.collect import begin_run, billing_of, continuation_budget, refuse_budget, with_meters
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.types import Setup, Unit
from agentloop.run.units import Progress, play_units
from agentloop.types import Answer, Environments, Policy
from occupancy.record.errors import FewstepsError, RunError, imported
from occupancy.record.rows import Rows
from occupancy.record.specs import Few, NotNegative, check
from occupancy.runs import Run, only_writer, open_run

T = TypeVar("T")


@dataclass(frozen=True)
class ComponentNames:
    """Environment and policies by their names on the command line: each machine opens its own."""

    environment: str
    student: str
    teacher: str
    environment_settings: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> tuple[Environments, Policy, Policy]:
        """Environments, student and teacher."""
        environments = open_environments(self.environment, **self.environment_settings)
        return environments, open_policy(self.student, environments), open_policy(self.teacher, environments)


@dataclass(frozen=True)
class Machines:
    """Ray actors, and what each of them takes of its node."""

    count: Few
    cpus: NotNegative = 1.0
    gpus: NotNegative = 0.0

    def __post_init__(self) -> None:
        check(self, of="machines")


async def collect_on_ray(
    folder: str | Path,
    settings: Settings,
    names: ComponentNames,
    *,
    machines: Machines,
    spending: SpendingLimits | None = None,
    progress: Progress = lambda done, total, rows: None,
) -> Run:
    """Like `collect`, on many machines; call `ray.init` first for a cluster.

    Raises:
        InputError: The teacher could exceed the budget.
        RunError: Every machine has died.
    """
    ray = imported("ray", "ray")
    spending = spending or SpendingLimits()
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    environments, student, teacher = names.open()
    refuse_budget(Setup(settings, environments, student, teacher, spending))
    run, units = begin_run(folder, settings, environments)
    with only_writer(run.folder):
        ledger = _ledger_actor(ray, run.folder, settings, spending)
        pool = _ActorPool(ray, ledger)
        given = (names, settings, spending)
        try:
            pool.start(machines, given, slots=environments.capacity)
            at_once = machines.count * environments.capacity
            return await play_units(units, run, pool.play, at_once=at_once, progress=progress)
        finally:
            pool.stop()
            await ledger.close.remote()
            ray.kill(ledger)
            await environments.close()


class _LedgerActor:
    """The actor that holds the ledger: `Billing` and `Continuations`; `worker` is the calling machine."""

    def __init__(self, folder: Path, settings: Settings, spending: SpendingLimits) -> None:
        self._ledger = Ledger(folder / "ledger.sqlite")
        self._billing = billing_of(settings, spending, self._ledger)
        self._continuations = continuation_budget(open_run(folder), spending, self._billing["teacher"])
        self._open: dict[int, tuple[str, str]] = {}
        """Machine and role by open attempt."""
        self._inside: set[tuple[str, int]] = set()
        """Machines and the units whose continuations they play, where these have a budget."""
        self._dead: set[str] = set()

    async def reserve(self, worker: str, role: str, key: CallKey, most: Charge) -> Answer | int:
        reserved = await self._billing[role].reserve(key, most)
        if isinstance(reserved, int):
            self._open[reserved] = (worker, role)
        return reserved

    async def charge(self, attempt: int, result: Result, cost: Charge) -> None:
        _, role = self._open.pop(attempt)
        await self._billing[role].charge(attempt, result, cost)

    async def abandon(self, attempt: int) -> None:
        _, role = self._open.pop(attempt)
        self._billing[role].abandon(attempt)

    async def enter(self, worker: str, unit: int) -> None:
        if self._continuations is None:
            return
        await self._continuations.enter(unit)
        self._inside.add((worker, unit))
        if worker in self._dead:  # it died while it waited
            await self.leave(worker, unit, None)

    async def leave(self, worker: str, unit: int, cost: int | None) -> None:
        # A machine that was given up may still be heard: it has left already.
        if self._continuations is not None and (worker, unit) in self._inside:
            self._inside.remove((worker, unit))
            await self._continuations.leave(unit, cost)

    async def forget(self, worker: str) -> None:
        """The machine has died: its open calls may have been billed."""
        self._dead.add(worker)
        for _, unit in [place for place in self._inside if place[0] == worker]:
            await self.leave(worker, unit, None)
        for attempt in [attempt for attempt, (who, _) in self._open.items() if who == worker]:
            await self.abandon(attempt)

    async def close(self) -> None:
        """Write what is queued."""
        self._ledger.close()


async def _told(result: Awaitable[T]) -> T:
    """What an actor tells; an error of ours without the one that Ray wraps around it."""
    try:
        return await result
    except FewstepsError as error:
        raise getattr(error, "cause", error) from None


class _RemoteLedger:
    """A machine's way to the process with the ledger: the `Billing` of a role, or the `Continuations`."""

    def __init__(self, ledger: Any, worker: str, role: str = "") -> None:
        self._ledger, self._worker, self._role = ledger, worker, role

    async def reserve(self, key: CallKey, most: Charge) -> Answer | int:
        reserved: Awaitable[Answer | int] = self._ledger.reserve.remote(self._worker, self._role, key, most)
        return await _told(reserved)

    async def charge(self, attempt: int, result: Result, cost: Charge) -> None:
        await _told(self._ledger.charge.remote(attempt, result, cost))

    def abandon(self, attempt: int) -> None:
        self._ledger.abandon.remote(attempt)

    async def enter(self, unit: int) -> None:
        await _told(self._ledger.enter.remote(self._worker, unit))

    async def leave(self, unit: int, cost: int | None) -> None:
        await self._ledger.leave.remote(self._worker, unit, cost)


class _PlayingActor:
    """The actor on a machine: it plays units."""

    def __init__(
        self, ledger: Any, name: str, names: ComponentNames, settings: Settings, spending: SpendingLimits
    ) -> None:
        self._setup = with_meters(
            Setup(settings, *names.open(), spending),
            {role: _RemoteLedger(ledger, name, role) for role in ("student", "teacher")},
            continuation_budget=_RemoteLedger(ledger, name) if spending.by_continuation else None,
        )

    async def play(self, unit: Unit) -> Rows:
        return await play_unit(unit, self._setup)


class _ActorPool:
    """The machines that are alive, each with as many free slots as it has environments."""

    def __init__(self, ray: Any, ledger: Any) -> None:
        self._ray, self._ledger = ray, ledger
        self._alive: dict[str, Any] = {}
        self._free: asyncio.Queue[str] = asyncio.Queue()
        self._why = ""
        """Last line of what the last one died of."""

    def start(self, machines: Machines, given: tuple[Any, ...], *, slots: int) -> None:
        resources = {"num_cpus": machines.cpus, "num_gpus": machines.gpus}
        actor = self._ray.remote(max_concurrency=slots, scheduling_strategy="SPREAD", **resources)(
            _PlayingActor
        )
        for i in range(machines.count):
            name = f"machine {i}"
            self._alive[name] = actor.remote(self._ledger, name, *given)
        for name in [name for _ in range(slots) for name in self._alive]:
            self._free.put_nowait(name)

    async def play(self, unit: Unit) -> Rows:
        """The unit's rows, from whichever machine lives long enough."""
        while True:
            name = await self._free.get()
            if not self._alive:
                self._free.put_nowait(name)  # wakes the next one that waits
                raise RunError(
                    f"every machine has died ({self._why}): repair it, start the cluster and run the same "
                    f"command again"
                )
            if name not in self._alive:
                continue
            playing: Awaitable[Rows] = self._alive[name].play.remote(unit)
            try:
                rows = await _told(playing)
            except self._ray.exceptions.RayActorError as error:
                self._why = str(error).strip().rpartition("\n")[2][:300]
                if self._alive.pop(name, None) is not None:
                    await self._ledger.forget.remote(name)
                if not self._alive:
                    self._free.put_nowait(name)
            else:
                self._free.put_nowait(name)
                return rows

    def stop(self) -> None:
        for actor in self._alive.values():
            self._ray.kill(actor)


def _ledger_actor(ray: Any, folder: Path, settings: Settings, spending: SpendingLimits) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The folder's file locks and its rename are only sure on the machine that has the disk.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(num_cpus=0, scheduling_strategy=here, max_concurrency=10_000)(_LedgerActor)
    return actor.remote(folder.resolve(), settings, spending)
