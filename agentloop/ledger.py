"""The ledger: one row an attempt at a teacher's turn, written before the call and settled after it.

A settled attempt keeps its answer. After a kill, the same turn in the same context is answered from the
ledger and not bought twice; an attempt that was open when the process died is `lost` (it may have been
billed), and one whose context no longer occurs is `orphaned` (it was billed, and counts in C_i).
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentloop.types import Answer, Ask, Policy, PolicyFailed, Usage

_SCHEMA = """
create table if not exists attempts (
    id integer primary key,
    episode_id text not null,
    t integer not null,            -- turn
    attempt integer not null,      -- from 0, within (episode_id, t)
    context_id text not null,      -- hash of the context that was sent
    role text not null,            -- teacher
    policy text not null,
    state text not null check (state in ('open', 'settled', 'failed', 'lost', 'orphaned')),
    opened_at real not null,       -- seconds since 1970
    settled_at real,
    output_tokens integer,         -- as `counter` counts them, reasoning included; null where unknown
    reasoning_tokens integer,
    prompt_tokens integer,
    cached_tokens integer,
    counter text,
    answer text,                   -- JSON of the answer
    error text,
    unique (episode_id, t, attempt)
) strict
"""


@dataclass(frozen=True)
class Account:
    """What the ledger says a run has cost."""

    attempts: int
    output_tokens: int
    """C_i: output tokens of every answered attempt, reasoning included, before any filter."""
    failed: int
    """Attempts that got no answer."""
    lost: int
    """Attempts open when a process died: perhaps billed, their tokens unknown."""
    orphaned_tokens: int
    """The part of C_i whose context occurs in no episode any more."""


class Ledger:
    """SQLite in WAL mode; one process writes, any number read."""

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        if read_only:
            self._db = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
            return
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        # A commit survives a power cut, not only the death of the process.
        self._db.execute("pragma synchronous = full")
        self._db.execute(_SCHEMA)
        self._db.execute("update attempts set state = 'lost' where state = 'open'")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def stored(self, ask: Ask) -> Answer | None:
        """The answer already bought for this turn in this very context."""
        row = self._db.execute(
            "select answer from attempts where episode_id = ? and t = ? and context_id = ? "
            "and state = 'settled' order by attempt desc",
            (ask.episode_id, ask.t, ask.context_id),
        ).fetchone()
        return None if row is None else _answer(row[0])

    def open(self, ask: Ask, *, role: str, policy: str) -> int:
        """Write an attempt before its call; returns its id."""
        with self._transaction() as db:
            (attempt,) = db.execute(
                "select count(*) from attempts where episode_id = ? and t = ?", (ask.episode_id, ask.t)
            ).fetchone()
            db.execute(
                "update attempts set state = 'orphaned' where episode_id = ? and t = ? and state = 'settled'",
                (ask.episode_id, ask.t),
            )
            row = db.execute(
                "insert into attempts (episode_id, t, attempt, context_id, role, policy, state, opened_at) "
                "values (?, ?, ?, ?, ?, ?, 'open', ?)",
                (ask.episode_id, ask.t, attempt, ask.context_id, role, policy, time.time()),
            )
            assert row.lastrowid is not None
            return row.lastrowid

    def settle(self, attempt_id: int, answer: Answer) -> None:
        """Record the answer and its usage."""
        usage = answer.usage
        self._db.execute(
            "update attempts set state = 'settled', settled_at = ?, output_tokens = ?, reasoning_tokens = ?, "
            "prompt_tokens = ?, cached_tokens = ?, counter = ?, answer = ? where id = ?",
            (
                time.time(),
                usage.output,
                usage.reasoning,
                usage.prompt,
                usage.cached,
                usage.counter,
                json.dumps(asdict(answer)),
                attempt_id,
            ),
        )

    def fail(self, attempt_id: int, error: str) -> None:
        """Record that the attempt got no answer."""
        self._db.execute(
            "update attempts set state = 'failed', settled_at = ?, error = ? where id = ?",
            (time.time(), error, attempt_id),
        )

    def account(self) -> Account:
        """Totals over every attempt."""
        row = self._db.execute(
            "select count(*), coalesce(sum(output_tokens), 0), coalesce(sum(state = 'failed'), 0), "
            "coalesce(sum(state = 'lost'), 0), "
            "coalesce(sum(case when state = 'orphaned' then output_tokens end), 0) from attempts"
        ).fetchone()
        return Account(*row)

    def rows(self) -> list[dict[str, Any]]:
        """Every attempt as a dict, in the order (episode_id, t, attempt)."""
        cursor = self._db.execute("select * from attempts order by episode_id, t, attempt")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("begin immediate")
        try:
            yield self._db
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")


def metered(policy: Policy, ledger: Ledger, *, role: str, name: str) -> Policy:
    """The policy with every call written to the ledger, and no answer bought twice."""

    async def call(ask: Ask) -> Answer:
        bought = ledger.stored(ask)
        if bought is not None:
            return bought
        attempt = ledger.open(ask, role=role, policy=name)
        try:
            answer = await policy(ask)
        except PolicyFailed as error:
            ledger.fail(attempt, str(error))
            raise
        ledger.settle(attempt, answer)
        return answer

    return call


def _answer(text: str) -> Answer:
    given = json.loads(text)
    ids = given.pop("token_ids")
    return Answer(
        **given | {"usage": Usage(**given["usage"]), "token_ids": None if ids is None else tuple(ids)}
    )
