"""The tables of a run folder: every column with its Arrow type, its unit and its meaning.

docs/formats.md is made from this file, and a test compares them. Text is `large_string`, so that a
column can pass 2 GiB; free-form values are JSON text, so that a schema never depends on the rows.

Rows of `episodes` are unique by (task_id, rollout, proposal, continuation, replicate), the kind and K:
hand-backs of one continuation differ in K alone. `episode_id` says all of it in one text. A part of the key
that does not apply is -1.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 3
"""`Column.since` and `ADDED_TABLES` record what a version added; older runs are read without it."""
ADDED_TABLES = {"trained_turns": 2}

_TEXT, _INT, _LONG, _REAL, _FLAG = pa.large_string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
_INTS = pa.large_list(_INT)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str
    """With the unit, and what an empty cell means."""
    nullable: bool = False
    since: int = 1
    """Schema version that added it; a later column is nullable."""
    within: tuple[float, float] | None = None
    """Bounds of its numbers, which are no NaN then."""


def _key() -> tuple[Column, ...]:
    return (
        Column("task_id", _TEXT, "the task, as the environment names it"),
        Column("rollout", _INT, "student rollout of the task, from 0; -1 for demonstrations"),
        Column("proposal", _INT, "proposal of the task, from 0; -1 for plain rollouts and demonstrations"),
        Column("continuation", _INT, "continuation or demonstration, from 0; -1 for rollouts"),
        Column("replicate", _INT, "replicate of a hand-back or evaluation, from 0; -1 elsewhere"),
    )


def _reward(meaning: str) -> Column:
    return Column("R", _REAL, meaning, nullable=True, within=(0.0, 1.0))


def _amount(name: str, meaning: str, type: pa.DataType = _INT, *, nullable: bool = False) -> Column:
    return Column(name, type, meaning, nullable, within=(0.0, 1e15))


_EPISODE_ID = Column("episode_id", _TEXT, "the key as one text, unique in the run")
_CLUSTER = Column("cluster_id", _TEXT, "underlying task, the cluster of standard errors; never its seed")

TABLES: dict[str, tuple[Column, ...]] = {
    "proposals": (
        *_key(),
        _CLUSTER,
        Column("recipe_hash", _TEXT, "recipe that proposed"),
        Column("t_prime", _INT, "drawn switch time t', from 1; 0 where none was drawn"),
        _amount(
            "probability", "of the drawn t' given tau; 0 if none was drawn or the teacher decided", _REAL
        ),
        Column("T", _INT, "length of the rollout before the switch, in turns"),
        _reward("terminal reward of that rollout; empty where it has none"),
        Column("psi", _TEXT, "JSON object: verdict of every prefix filter"),
        Column(
            "outcome",
            _TEXT,
            "accepted, invalid_switch, prefix_filtered, context_filtered, empty, continuation_filtered, "
            "no_target (no teacher turn has text), no_data (the rollout ended in an error), or the status "
            "that ended the continuation before its first teacher turn",
        ),
    ),
    "episodes": (
        _EPISODE_ID,
        *_key(),
        _CLUSTER,
        Column("task_kind", _TEXT, "type of the task, empty where the benchmark has none"),
        Column("kind", _TEXT, "rollout, continuation, demo, handback or evaluation"),
        Column("prefix_policy", _TEXT, "who made the turns before `switch_turn`"),
        Column("policy", _TEXT, "who played from `switch_turn` on (in a hand-back: after the teacher)"),
        Column("teacher", _TEXT, "who played the teacher's turns; empty where there are none"),
        Column("parent", _TEXT, "episode_id that the prefix comes from; empty where there is none"),
        Column("switch_turn", _INT, "first turn of the teacher, t'; 0 where there is none"),
        Column("K", _INT, "cap on teacher turns; 0 if there is none"),
        Column("teacher_turns", _INT, "teacher turns played, L"),
        Column("length", _INT, "T, all turns of the episode, prefix included"),
        _reward("terminal reward in [0, 1]; empty where the episode has none"),
        Column("status", _TEXT, "how the episode ended; agentloop.types.Status lists the words"),
        Column("error", _TEXT, "failure in one line; empty if there is none"),
        Column("phi", _TEXT, "JSON object: verdict of every continuation filter; null if unknown"),
        Column("prompt", _TEXT, "JSON list of the messages before turn 1; empty where the parent has them"),
        Column("environment", _TEXT, "name and version, grammar or corpus included"),
        Column("seed", _LONG, "seed of the environment"),
        Column("wall_s", _REAL, "seconds of wall clock, replay included"),
    ),
    "turns": (
        _EPISODE_ID,
        *_key(),
        Column("kind", _TEXT, "kind of the episode"),
        Column("t", _INT, "turn, numbered absolutely from 1; a continuation stores its own turns only"),
        Column("author", _TEXT, "student or teacher"),
        Column("text", _TEXT, "the turn as its author wrote it"),
        Column("observation", _TEXT, "the environment's reply to it"),
        Column("observation_hash", _TEXT, "16 hex digits of the observation's BLAKE2b"),
        Column("context_id", _TEXT, "16 hex digits of the BLAKE2b of h_{t-1}, the context before the turn"),
        Column("state_id", _LONG, "environment state before the turn, where there is one", nullable=True),
        _amount("student_tokens", "length under the student's tokenizer, if any", nullable=True),
        _amount("output_tokens", "output tokens as the provider counts them, reasoning included"),
        _amount("reasoning_tokens", "the part of them that is reasoning"),
        _amount("prompt_tokens", "prompt tokens, where the provider says", nullable=True),
        _amount("cached_tokens", "the part of them read from a cache, likewise", nullable=True),
        Column("counter", _TEXT, "what counted the tokens: the provider, or a named counter"),
        Column(
            "finish_reason",
            _TEXT,
            "stop; length where the turn was cut; 'unknown: WORD' where its server ended it so",
        ),
        Column("parse_status", _TEXT, "ok, or what was wrong with the turn's text"),
        Column(
            "logprob",
            _REAL,
            "log probability of the turn under its author, as the engine gave it, nats; in simulated worlds "
            "under the student",
            nullable=True,
        ),
    ),
    "traces": (
        _EPISODE_ID,
        *_key(),
        Column("recipe_hash", _TEXT, "recipe that accepted the trace"),
        Column("messages", _TEXT, "JSON list of {role, content, author, train}: context, then continuation"),
        Column("target_turns", _INT, "teacher turns in the trace: the only ones trained on"),
        _amount(
            "C_tr",
            "output tokens of those turns as the provider counts them, without reasoning that it kept apart",
            _LONG,
        ),
        Column("token_ids", _INTS, "ids of its training rows, end to end, once rendered", nullable=True),
        Column("row_starts", _INTS, "place in token_ids of each row's first id", nullable=True, since=2),
        Column("targets", pa.large_list(_FLAG), "which ids are targets, once rendered", nullable=True),
        Column("target_tokens", _LONG, "number of targets, once rendered", nullable=True),
        Column("sequence_tokens", _LONG, "number of ids, once rendered", nullable=True),
    ),
    "trainings": (
        Column("training_id", _TEXT, "name of the training, unique in the run"),
        Column("base", _TEXT, "checkpoint that was started from"),
        Column("data", _TEXT, "JSON: the traces' hashes, their mix, and r by tokens and by tasks"),
        Column("target_tokens", _LONG, "tokens trained on, one epoch"),
        Column("sequence_tokens", _LONG, "all tokens of the rows, one epoch"),
        Column("gpu_s", _REAL, "GPU seconds, summed over devices"),
        Column("held_out_nll", _TEXT, "JSON: nats per target token by depth and by context class"),
    ),
    "trained_turns": (
        Column("training_id", _TEXT, "the training"),
        _EPISODE_ID,
        *_key(),
        Column("cluster_id", _TEXT, "underlying task; a training holds out whole clusters"),
        Column("t", _INT, "the teacher's turn, as in `turns` of the run that it is from"),
        Column("depth", _INT, "j, number of the teacher's turn within its trace, from 1"),
        Column("context_class", _TEXT, "class of the context before the turn"),
        Column("targets", _INT, "ids of the turn that are targets, its closing token included"),
        Column("held_out", _FLAG, "whether the turn was measured on and never trained on"),
        Column("nll_before", _REAL, "nats per target under the base; empty if trained on", nullable=True),
        Column("nll", _REAL, "the same under the chosen checkpoint", nullable=True),
    ),
    "evaluations": (
        Column("training_id", _TEXT, "what was evaluated"),
        Column("task_id", _TEXT, "the task or question"),
        Column("cluster_id", _TEXT, "underlying task, the cluster of standard errors"),
        Column("attempt", _INT, "attempt at the task, from 0"),
        Column("score", _REAL, "in [0, 1]", within=(0.0, 1.0)),
        Column("status", _TEXT, "how the episode ended"),
    ),
}


def schema(table: str) -> pa.Schema:
    """Arrow schema of a table, with the schema version in its metadata."""
    columns = [pa.field(c.name, c.type, nullable=c.nullable) for c in TABLES[table]]
    return pa.schema(columns, metadata={"fewsteps": str(SCHEMA_VERSION)})
