"""The ledger: one row an attempt at a model's turn, written before the call and settled after it.

A settled attempt keeps its answer. After a kill, the same turn in the same context is answered from the
ledger and not bought twice; an attempt that was open when the process died is `lost` (it may have been
billed), and one whose context no longer occurs is `orphaned` (it was billed, and counts in C_i).

`charged` is at every moment the most that an attempt can have cost: its reservation while it is open or may
have been billed, its cost once that is known. Its sum is what a budget is compared with.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentloop.types import Answer, EnvironmentFailed, PolicyFailed, Usage
from occupancy.record.errors import RunError
from occupancy.record.rows import storable

_SCHEMA = """
create table if not exists attempts (
    id integer primary key,
    episode_id text not null,
    t integer not null,            -- turn; 0 where a teacher is asked for a switch time
    attempt integer not null,      -- from 0, within (episode_id, t)
    context_id text not null,      -- hash of the context that was sent
    role text not null,            -- teacher or student
    policy text not null,
    state text not null check (state in ('open', 'settled', 'failed', 'lost', 'orphaned')),
    billed text not null check (billed in ('no', 'perhaps', 'yes')),
    opened_at real not null,       -- seconds since 1970, by a clock that may be set: nothing is ordered by it
    settled_at real,
    charged_tokens integer,        -- most output tokens it can have cost; null where nothing bounds them
    charged_money integer,         -- the same in 10^-12 of the currency; null without a price
    output_tokens integer,         -- as `counter` counts them, reasoning included; null where unknown
    reasoning_tokens integer,
    prompt_tokens integer,
    cached_tokens integer,         -- the part of them read from a cache
    counter text,
    usage text check (usage in ('reported', 'local')),  -- local: the provider said nothing, we counted
    finish_reason text,
    answer text,                   -- JSON of the answer
    failure text,                  -- kind of failure: timeout, rate_limit, server, connection, …
    error text,
    unique (episode_id, t, attempt)
) strict
"""
_TOTALS = """
select count(*) as attempts,
    -- the teacher's output tokens of every attempt where they are known, before any filter
    coalesce(sum(output_tokens) filter (where role = 'teacher'), 0) as C_i,
    coalesce(sum(state = 'failed'), 0) as failed_attempts,
    -- open when a process died: perhaps billed, their tokens unknown
    coalesce(sum(state = 'lost'), 0) as lost_attempts,
    -- the part of C_i whose context occurs in no episode any more
    coalesce(sum(output_tokens) filter (where role = 'teacher' and state = 'orphaned'), 0) as orphaned_tokens
from attempts
"""
_LOSE = "update attempts set state = 'lost', billed = 'perhaps' where"
Work = Callable[[sqlite3.Connection], Any]
Result = Answer | PolicyFailed | EnvironmentFailed
"""What comes of an attempt."""


class CallKey(NamedTuple):
    """What a call is for: equal keys are the same turn in the same context."""

    episode_id: str
    t: int
    context_id: str
    order: int = 0
    """Place of its unit in the run; not part of the ledger."""


@dataclass(frozen=True)
class Charge:
    """What an attempt has cost, or can have cost at most; None where nothing bounds it."""

    tokens: int | None = None
    money: int | None = None


class Ledger:
    """SQLite in WAL mode; one process writes, any number read what is in it when they open it.

    A thread commits the rows of concurrent calls together: each call goes on once its row is on the disk,
    after at most two commits.
    """

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        if file.is_symlink():
            raise RunError(f"{file} is a symbolic link: a ledger is no link; put the file itself there")
        try:
            if read_only:
                self._read(file)
            else:
                self._write_and_read(file)
        except (sqlite3.Error, UnicodeError) as error:
            then = "restore it from a copy, or repair the disk"
            if not os.access(file.parent, os.W_OK):
                then = "copy the run to a folder that can be written"
            raise RunError(f"{file} cannot be opened as a ledger ({error}): {then}") from error

    def _read(self, file: Path) -> None:
        # SQLite reads a WAL file only where it may write beside it, unless told that nobody writes.
        wal = file.with_name(f"{file.name}-wal")
        frozen = not os.access(file.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size)
        mode = "mode=ro&immutable=1" if frozen else "mode=ro"
        self._reader = sqlite3.connect(f"{file.resolve().as_uri()}?{mode}", uri=True, isolation_level=None)
        self._reader.execute("begin")  # every query sees the same attempts, while another process adds some
        self._reader.execute("select 1 from attempts limit 1")

    def _write_and_read(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode = wal")
        # A commit survives a power cut, not only the death of the process.
        self._db.execute("pragma synchronous = full")
        self._db.execute(_SCHEMA)
        self._db.execute(f"{_LOSE} state = 'open'")
        self._reader = sqlite3.connect(file, isolation_level=None)
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._queue: list[tuple[Work, asyncio.Future[Any]]] = []
        self._busy = False

    def close(self) -> None:
        """Write what is queued and close the file."""
        try:
            if not self._read_only:
                self._thread.shutdown(wait=True)
                queued, self._queue = self._queue, []
                # A call that was given up before its row was known to be written stays open until here.
                self._commit(
                    [*(work for work, _ in queued), lambda db: db.execute(f"{_LOSE} state = 'open'")]
                )
        finally:
            if not self._read_only:
                self._db.close()
            self._reader.close()

    def stored(self, key: CallKey) -> Answer | None:
        """The answer already bought for this turn in this very context."""
        row = self._reader.execute(
            "select answer from attempts where episode_id = ? and t = ? and context_id = ? "
            "and state = 'settled' order by attempt desc",
            key[:3],
        ).fetchone()
        return None if row is None else read_answer(row[0])

    async def open(self, call: CallKey, *, role: str, policy: str, most: Charge) -> int:
        """Write an attempt before its call; returns its id."""
        key = call[:2]

        def work(db: sqlite3.Connection) -> int | None:
            row = db.execute("select count(*) from attempts where episode_id = ? and t = ?", key).fetchone()
            if row[0]:
                where = "episode_id = ? and t = ? and state ="
                db.execute(f"update attempts set state = 'orphaned' where {where} 'settled'", key)
                # An episode is played in one place at a time: an open call is of a machine that died.
                db.execute(f"{_LOSE} {where} 'open'", key)
            return db.execute(
                "insert into attempts (episode_id, t, attempt, context_id, role, policy, state, billed, "
                "opened_at, charged_tokens, charged_money) values (?, ?, ?, ?, ?, ?, 'open', 'no', ?, ?, ?)",
                (*key, row[0], call.context_id, role, policy, time.time(), most.tokens, most.money),
            ).lastrowid

        attempt_id: int = await self._write(work)
        return attempt_id

    async def settle(self, attempt_id: int, result: Result, *, cost: Charge) -> None:
        """Record the answer, or why there is none and whether it may have been billed all the same."""
        cells: dict[str, Any] = {
            "id": attempt_id,
            "settled_at": time.time(),
            "charged_tokens": cost.tokens,
            "charged_money": cost.money,
        }
        if isinstance(result, Answer):
            cells |= {"state": "settled", "billed": "yes", "finish_reason": result.finish_reason}
            cells["answer"] = _answer_json(result)
        else:
            cells |= {"state": "failed", "billed": result.billed, "failure": result.kind}
            cells["error"] = storable(str(result))
        if (usage := result.usage) is not None:
            cells |= {
                "output_tokens": usage.output,
                "reasoning_tokens": usage.reasoning,
                "prompt_tokens": usage.prompt,
                "cached_tokens": usage.cached,
                "counter": usage.counter,
                "usage": "reported" if usage.reported else "local",
            }
        columns = ", ".join(f"{name} = :{name}" for name in cells)
        query = f"update attempts set {columns} where id = :id"
        await self._write(lambda db: db.execute(query, cells))

    def abandon(self, attempt_id: int) -> None:
        """Record a call that was given up: it may have been billed, so its reservation stays."""
        self._write(lambda db: db.execute(f"{_LOSE} id = ?", (attempt_id,)))

    def charged(self, axis: str) -> int:
        """Most that all attempts can have cost: the teacher's output tokens, or everybody's money."""
        return self._charged(axis)[1]

    def unsure(self, axis: str) -> tuple[int, int]:
        """(attempts, amount) in `charged` whose cost is not known: failed, lost, or without usage."""
        return self._charged(axis, "and (billed = 'perhaps' or usage = 'local')")

    def _charged(self, axis: str, which: str = "") -> tuple[int, int]:
        column, role = "charged_tokens", "and role = 'teacher'"
        if axis == "money":
            column, role = "charged_money", ""
        query = f"select count(*), coalesce(sum({column}), 0) from attempts where {column} > 0 {role} {which}"
        calls, amount = self._reader.execute(query).fetchone()
        return int(calls), int(amount)

    def account(self) -> dict[str, int]:
        """Totals over every attempt: attempts, C_i, failed_attempts, lost_attempts, orphaned_tokens."""
        return self.query(_TOTALS)[0]

    def rows(self) -> list[dict[str, Any]]:
        """Every attempt as a dict, in the order (episode_id, t, attempt)."""
        return self.query("select * from attempts order by episode_id, t, attempt")

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query to the ledger, as dicts."""
        try:
            cursor = self._reader.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as error:
            raise RunError(
                f"the ledger cannot be read ({error}): restore it from a copy, or repair the disk"
            ) from error

    def copy_to(self, other: sqlite3.Connection) -> None:
        """Copy every attempt into another, empty database."""
        self._reader.backup(other)

    def _write(self, work: Work) -> Awaitable[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((work, future))
        if not self._busy:
            # One turn of the loop later, so that calls that are ready at the same time share a commit.
            self._busy = True
            asyncio.get_running_loop().call_soon(self._flush)
        return future

    def _flush(self) -> None:
        batch, self._queue = self._queue, []
        if not batch:
            self._busy = False
            return
        loop = asyncio.get_running_loop()
        done = self._thread.submit(self._commit, [work for work, _ in batch])
        done.add_done_callback(
            lambda result: loop.call_soon_threadsafe(self._tell, [future for _, future in batch], result)
        )

    def _tell(self, futures: list[asyncio.Future[Any]], result: Future[list[Any]]) -> None:
        error = result.exception()
        for at, future in enumerate(futures):
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result.result()[at])
            else:
                future.set_exception(error)
                future.exception()  # nobody awaits an abandoned attempt
        self._flush()

    def _commit(self, batch: list[Work]) -> list[Any]:
        db = self._db
        try:
            db.execute("begin immediate")
            try:
                results = [work(db) for work in batch]
                db.execute("commit")
            except BaseException:
                if db.in_transaction:
                    db.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise RunError(
                f"the ledger cannot be written ({error}): make room on the disk and run the same command "
                f"again; what was bought is kept"
            ) from error
        return results


def _answer_json(answer: Answer) -> str:
    return json.dumps(asdict(answer) | {"usage": astuple(answer.usage)})


def read_answer(text: str) -> Answer:
    """The answer in an attempt's row."""
    given = json.loads(text)
    ids = given["token_ids"]
    read = {"usage": Usage(*given["usage"]), "token_ids": None if ids is None else tuple(ids)}
    return Answer(**given | read)
