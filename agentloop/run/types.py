"""The records of a run: which episode is played, with what, and what came of it.

Unit           what is played and committed at once: a proposal, a demonstration, an attempt at a task
Setup          settings, environments and policies that every unit is played with
OpenTask       an open environment with its snapshots
EpisodeSpec    an episode to be played: who plays, from where, how many turns at most
Switch         a switch time t', or why there is none
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from agentloop.ledger.budget import Continuations
from agentloop.run.episode import History
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.types import Author, Environment, Environments, Policy, Replay, Task, can_fork, traits_of
from occupancy.record.rows import Key, Row, Rows


def seed_of(*parts: object) -> int:
    """63-bit seed of (run seed, task, purpose, proposal, …, turn), independent of the order of the work."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Unit:
    """What is played and committed at once: a proposal, a demonstration, or an attempt at a task."""

    key: Key
    task: Task
    order: int
    """Place in the run: earlier units are served first when a budget gets short."""


@dataclass(frozen=True)
class Setup:
    """Everything that a unit is played with and that no task changes."""

    settings: Settings
    environments: Environments
    student: Policy
    teacher: Policy
    """Metered: every call of it is in the ledger."""
    spending: SpendingLimits = field(default_factory=SpendingLimits)
    continuation_budget: Continuations | None = None
    """Where the budget is passed by less than one continuation: who may start the next one."""

    @property
    def live(self) -> bool:
        """The teacher takes over in the running episode: the environment cannot go back to a turn."""
        return self.environments.replay is Replay.NONE and not can_fork(self.environments)

    @property
    def teacher_ids(self) -> bool:
        """Whether the teacher's token ids are the student tokenizer's."""
        tokenizer = traits_of(self.student).tokenizer
        return bool(tokenizer) and traits_of(self.teacher).tokenizer == tokenizer


@dataclass(frozen=True)
class OpenTask:
    """A unit's open environment, and the rows that have come of the unit so far."""

    env: Environment
    unit: Unit
    setup: Setup
    rows: Rows = field(default_factory=dict)
    snapshots: dict[str, object] = field(default_factory=dict)
    """Of the environment, by the context before the turn."""
    asked: list[int] = field(default_factory=list)
    """Output tokens of the teacher's answers that name a switch turn."""

    def write(self, table: str, *rows: Row) -> None:
        """Add rows of a table."""
        self.rows.setdefault(table, []).extend(rows)


@dataclass(frozen=True)
class EpisodeSpec:
    """An episode to be played."""

    key: Key
    author: Author
    """Who plays."""
    most: int
    """Most turns to play."""
    start: History | None = None
    """The history to play on from; None: a new episode."""
    parent: str = ""
    """Id of the episode whose turns `start` has."""
    switch_turn: int = 0
    """First turn of the teacher; 0 where the teacher plays no turn."""
    K: int = 0
    """Most teacher turns asked for."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch time, or why there is none."""

    t_prime: int
    """From 1; 0 where there is none."""
    probability: float
    """Of t' given tau; 0 where there is none, and where the teacher chose t'."""
    skipped: str = ""
    """Empty where the teacher takes over, else the proposal's outcome."""
