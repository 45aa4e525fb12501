"""Rows of a run folder: one function a table, the key of an episode, and the ids that tie tables together.

Whatever writes a run (collection, importers, simulated pilots, tests) builds its rows here, so that ids,
hashes and default cells are the same everywhere. `occupancy.record.tables` says what every column means;
`Run.commit` checks the types.

    key = Key("rollout", "task-1", rollout=0)
    rows = {
        "episodes": [episode_row(key, policy="pi_0", environment="toy 1", length=1, R=1.0)],
        "turns": [turn_row(key, 1, author="student", text="look", observation="a door", context_id="0",
                           output_tokens=3, counter="words")],
    }
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from occupancy.record.errors import DataError, one_of

Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Rows by table."""
KINDS = ("rollout", "continuation", "demo", "handback", "evaluation")
AUTHORS = ("student", "teacher")
KEY = ("task_id", "rollout", "proposal", "continuation", "replicate")
"""Columns that every table of episodes has."""
UNRENDERED = dict.fromkeys(("token_ids", "row_starts", "targets", "target_tokens", "sequence_tokens"))
"""Columns of a trace that are filled when it is rendered."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which episode of a run this is; numbers count from 0, and -1 means that one does not apply."""

    kind: str
    """One of KINDS."""
    task_id: str
    rollout: int = -1
    proposal: int = -1
    continuation: int = -1
    replicate: int = -1
    k: int = 0
    """Teacher turns before a hand-back; 0 for other kinds."""

    def __post_init__(self) -> None:
        one_of(KINDS, kind=self.kind, error=DataError)
        if not self.task_id:
            raise DataError("an episode has an empty task_id: give every task a name")
        if self.k and self.kind != "handback":
            raise DataError(f"k={self.k} in a {self.kind}: expected teacher turns before a hand-back only")

    @property
    def episode_id(self) -> str:
        """The key as one text, unique in a run."""
        numbers = (self.rollout, self.proposal, self.continuation, self.replicate)
        tail = "-".join("x" if number < 0 else str(number) for number in numbers)
        depth = self.k if self.kind == "handback" else ""
        return f"{self.task_id}#{self.kind}{depth}-{tail}"

    def columns(self) -> Row:
        """Cells of the key columns."""
        return {name: getattr(self, name) for name in KEY}


def proposal_row(
    key: Key,
    *,
    cluster_id: str,
    recipe_hash: str,
    outcome: str,
    T: int,
    R: float | None,
    t_prime: int = 0,
    probability: float = 0.0,
    psi: Mapping[str, bool | None] | None = None,
) -> Row:
    """A row of `proposals`: switch time `t_prime` drawn in a rollout of T turns and reward R."""
    return {
        **key.columns(),
        "cluster_id": cluster_id,
        "recipe_hash": recipe_hash,
        "t_prime": t_prime,
        "probability": probability,
        "T": T,
        "R": _reward(key, R),
        "psi": json.dumps(psi or {}),
        "outcome": outcome,
    }


def episode_row(
    key: Key,
    *,
    policy: str,
    environment: str,
    length: int,
    R: float | None,
    cluster_id: str = "",
    status: str = "finished",
    prompt: Sequence[Mapping[str, Any]] = (),
    parent: str = "",
    teacher: str = "",
    prefix_policy: str = "",
    switch_turn: int = 0,
    K: int = 0,
    teacher_turns: int = 0,
    task_kind: str = "",
    phi: Mapping[str, bool | None] | None = None,
    error: str = "",
    seed: int = 0,
    wall_s: float = 0.0,
) -> Row:
    """A row of `episodes`; DataError where R is outside [0, 1], or a count is negative.

    The cluster is the task unless named. The prompt, {role, content, author} of each message before turn 1,
    is stored only without a parent.
    """
    if min(length, switch_turn, K, teacher_turns) < 0:
        raise DataError(
            f"{key.episode_id} has length {length}, switch turn {switch_turn}, K {K}, teacher turns "
            f"{teacher_turns}: expected none below 0"
        )
    return {
        "episode_id": key.episode_id,
        **key.columns(),
        "cluster_id": cluster_id or key.task_id,
        "task_kind": task_kind,
        "kind": key.kind,
        "prefix_policy": prefix_policy,
        "policy": policy,
        "teacher": teacher,
        "parent": parent,
        "switch_turn": switch_turn,
        "K": K,
        "teacher_turns": teacher_turns,
        "length": length,
        "R": _reward(key, R),
        "status": status,
        "error": storable(error),
        "phi": json.dumps(phi or {}),
        "prompt": "" if parent else json.dumps([dict(message) for message in prompt]),
        "environment": environment,
        "seed": seed,
        "wall_s": wall_s,
    }


def turn_row(
    key: Key,
    t: int,
    *,
    author: str,
    text: str,
    observation: str,
    context_id: str,
    output_tokens: int,
    counter: str,
    state_id: int | None = None,
    student_tokens: int | None = None,
    reasoning_tokens: int = 0,
    prompt_tokens: int | None = None,
    cached_tokens: int | None = None,
    finish_reason: str = "stop",
    parse_status: str = "ok",
    logprob: float | None = None,
) -> Row:
    """A row of `turns`: turn t (from 1) of an episode, its observation, and token counts by `counter`."""
    if author not in AUTHORS:
        raise DataError(f"turn {t} of {key.episode_id} has author {author!r}: expected student or teacher")
    if t < 1 or output_tokens < 0:
        raise DataError(
            f"turn {t} of {key.episode_id} has {output_tokens} tokens: expected t >= 1, tokens >= 0"
        )
    return {
        "episode_id": key.episode_id,
        **key.columns(),
        "kind": key.kind,
        "t": t,
        "author": author,
        "text": storable(text),
        "observation": storable(observation),
        "observation_hash": text_hash(observation),
        "context_id": context_id,
        "state_id": state_id,
        "student_tokens": student_tokens,
        "output_tokens": output_tokens,
        "reasoning_tokens": reasoning_tokens,
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "counter": counter,
        "finish_reason": finish_reason,
        "parse_status": parse_status,
        "logprob": logprob,
    }


def trace_row(
    key: Key, *, recipe_hash: str, messages: Sequence[Mapping[str, Any]], target_turns: int, C_tr: int
) -> Row:
    """A row of `traces`, not yet rendered: messages {role, content, author, train}, C_tr in tokens."""
    return {
        "episode_id": key.episode_id,
        **key.columns(),
        "recipe_hash": recipe_hash,
        "messages": json.dumps([dict(message) for message in messages]),
        "target_turns": target_turns,
        "C_tr": C_tr,
        **UNRENDERED,
    }


def evaluation_row(
    training_id: str, task_id: str, *, attempt: int, score: float, status: str, cluster_id: str = ""
) -> Row:
    """A row of `evaluations`: one attempt at a task, with a score in [0, 1]."""
    return {
        "training_id": training_id,
        "task_id": task_id,
        "cluster_id": cluster_id or task_id,
        "attempt": attempt,
        "score": score,
        "status": status,
    }


def merged(*parts: Mapping[str, Sequence[Row]]) -> Rows:
    """Rows of several parts, table by table."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: [row for part in parts for row in part.get(name, ())] for name in names}


class ContextHash:
    """`context_id` of a context that grows turn by turn."""

    def __init__(self, prompt: Iterable[tuple[str, str]]) -> None:
        """Start from the (role, text) messages before turn 1."""
        self._digest = blake2b(digest_size=8)
        for role, text in prompt:
            self._feed(role, text)

    def add(self, text: str, observation: str) -> None:
        """Append a turn and its observation."""
        self._feed("turn", text, observation)

    @property
    def context_id(self) -> str:
        """16 hex digits of the context so far."""
        return self._digest.hexdigest()

    def _feed(self, *parts: str) -> None:
        for part in parts:  # lengths keep ("ab", "c") and ("a", "bc") apart
            data = part.encode("utf-8", "surrogatepass")
            self._digest.update(len(data).to_bytes(8, "big") + data)


def text_hash(text: str) -> str:
    """BLAKE2b-64 of a text as 16 hex digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def storable(text: str) -> str:
    """The text with lone surrogates, which no file or tokenizer takes, as visible escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _reward(key: Key, R: float | None) -> float | None:
    if R is not None and not 0 <= R <= 1:
        raise DataError(f"{key.episode_id} has reward R={R}: expected a number in [0, 1], or none")
    return R
