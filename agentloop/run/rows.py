"""Episodes as rows of the run folder's tables; occupancy/record/tables.py says what every column means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentloop.run.episode import History, Played, context_ids, teacher_turns
from agentloop.run.filters import phi_verdicts
from agentloop.run.replay import observation_hash
from agentloop.types import Author, Message, Task, Turn, storable
from occupancy.record.recipe import Recipe

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Key:
    """Which episode this is: the run folder's key, and what tells kinds of episode apart."""

    kind: str
    """rollout, continuation, demo, handback or evaluation."""
    task: Task
    rollout: int = -1
    proposal: int = -1
    continuation: int = -1
    replicate: int = -1
    k: int = 0
    """Teacher turns before a hand-back."""

    @property
    def episode_id(self) -> str:
        """Unique in a run."""
        numbers = (self.rollout, self.proposal, self.continuation, self.replicate)
        tail = "-".join("x" if number < 0 else str(number) for number in numbers)
        depth = self.k if self.kind == "handback" else ""
        return f"{self.task.task_id}#{self.kind}{depth}-{tail}"

    def columns(self) -> dict[str, Any]:
        """The key's columns."""
        return {
            "task_id": self.task.task_id,
            "rollout": self.rollout,
            "proposal": self.proposal,
            "continuation": self.continuation,
            "replicate": self.replicate,
        }


@dataclass(frozen=True)
class Cast:
    """Who played what in an episode."""

    policy: str
    """Who played from the switch on; in a hand-back, after the teacher."""
    teacher: str = ""
    prefix_policy: str = ""
    parent: str = ""
    switch_turn: int = 0
    K: int = 0
    """Most teacher turns asked for."""
    first_turn: int = 1
    """First turn that this episode stores; earlier ones are its parent's."""


def episode_rows(
    key: Key, played: Played, cast: Cast, recipe: Recipe, *, environment: str, seed: int, wall_s: float
) -> Rows:
    """One row for `episodes` and one for each of the turns that the episode owns."""
    history = played.history
    episode = {
        "episode_id": key.episode_id,
        **key.columns(),
        "cluster_id": key.task.cluster_id,
        "task_kind": key.task.kind,
        "kind": key.kind,
        "prefix_policy": cast.prefix_policy,
        "policy": cast.policy,
        "teacher": cast.teacher,
        "parent": cast.parent,
        "switch_turn": cast.switch_turn,
        "K": cast.K,
        "teacher_turns": sum(turn.author is Author.TEACHER for turn in history.turns),
        "length": played.length,
        "R": played.reward,
        "status": str(played.status),
        "error": storable(played.error),
        "phi": json.dumps(phi_verdicts(played.reward, recipe, played=played)),
        "prompt": "" if cast.parent else messages_json(history.prompt),
        "environment": environment,
        "seed": seed,
        "wall_s": wall_s,
    }
    ids = list(context_ids(history))
    turns = [
        {"episode_id": key.episode_id, **key.columns(), "kind": key.kind, "context_id": ids[turn.t - 1]}
        | _turn(turn, _state_before(history, turn.t))
        for turn in history.turns
        if turn.t >= cast.first_turn
    ]
    return {"episodes": [episode], "turns": turns}


def trace_row(
    key: Key, played: Played, recipe: Recipe, *, switch_turn: int, teacher_ids: bool
) -> dict[str, Any]:
    """An accepted trace: the context at the switch, then the continuation up to its last teacher turn.

    Sampled ids go with a turn where the student's tokenizer made them; `teacher_ids` says whether the
    teacher's are of that kind.
    """
    turns = [turn for turn in played.history.turns if turn.t < switch_turn]
    targets = teacher_turns([turn for turn in played.history.turns if turn.t >= switch_turn])
    messages = [_message(message, train=False) for message in played.history.prompt]
    # The reply to the last turn is stored with the turn and is in no context.
    for turn in (*turns, *targets):
        train = turn.t >= switch_turn
        ids = turn.answer.token_ids if turn.author is Author.STUDENT or teacher_ids else None
        messages.append(_message(Message("assistant", turn.answer.text, turn.author, ids), train=train))
        messages.append(
            _message(Message(turn.reply.role, turn.reply.observation, "environment"), train=False)
        )
    return {
        "episode_id": key.episode_id,
        **key.columns(),
        "recipe_hash": recipe.hash,
        "messages": json.dumps(messages[:-1]),
        "target_turns": len(targets),
        "C_tr": sum(turn.answer.usage.output for turn in targets),
        "token_ids": None,
        "row_starts": None,
        "targets": None,
        "target_tokens": None,
        "sequence_tokens": None,
    }


def messages_json(messages: tuple[Message, ...]) -> str:
    """A context as JSON text."""
    return json.dumps([{"role": m.role, "content": m.content, "author": str(m.author)} for m in messages])


def merged(*parts: Rows) -> Rows:
    """Rows of several episodes, table by table."""
    names = {name: None for part in parts for name in part}
    return {name: [row for part in parts for row in part.get(name, [])] for name in names}


def _message(message: Message, *, train: bool) -> dict[str, Any]:
    row = {"role": message.role, "content": message.content, "author": str(message.author), "train": train}
    return row if message.token_ids is None else row | {"token_ids": list(message.token_ids)}


def _turn(turn: Turn, state_id: int | None) -> dict[str, Any]:
    usage = turn.answer.usage
    return {
        "t": turn.t,
        "author": str(turn.author),
        "text": storable(turn.answer.text),
        "observation": storable(turn.reply.observation),
        "observation_hash": observation_hash(turn.reply.observation),
        "state_id": state_id,
        "student_tokens": None,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "counter": usage.counter,
        "finish_reason": turn.answer.finish_reason,
        "parse_status": turn.reply.parse_status,
        "logprob": turn.answer.logprob,
    }


def _state_before(history: History, t: int) -> int | None:
    return history.turns[t - 2].reply.state_id if t > 1 else None
