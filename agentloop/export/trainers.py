"""Accepted traces in the formats of other trainers, with the per-turn mask as each of them can say it.

    verl          messages with `loss_mask` 0 and `trainable` false on every message that is no target. verl
                  0.6 reads `loss_mask`; 0.7 to 0.9 read neither and train on every assistant turn, so
                  that verl_dataset.py goes with the data
    axolotl       messages with `train` (type chat_template, roles_to_train [], message_field_training train)
    trl           one row a teacher turn, its context as `prompt` and the turn as `completion`: TRL has no
                  mask by turn, and trains on the whole completion
    llamafactory  one row a teacher turn, which comes last, for `mask_history: true`: its released versions
                  have no other mask by turn
    tokens        ids and labels (-100 where nothing is trained), rendered here: any trainer that takes
                  tokenised rows; with `verifiers` (a module of its own) the form that keeps sampled ids

Where a row is a whole trace its messages name their authors and the row its task, so that `fewsteps import`
(verl, and chat for axolotl) reads it back; the trainers read neither.

A teacher turn that was cut or that has no text is no target in any of them, and a trace without a target has
no row; `fewsteps export` counts both. A trace that a format cannot hold is refused by name, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentloop.render.types import TraceMessage
from occupancy.record.errors import DataError
from occupancy.record.rows import Row

Exporter = Callable[[Sequence[TraceMessage], str], Iterator[Row]]
IGNORED = -100


def verl(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
    """One row a trace; a key on every message, so that Parquet has one type for them."""
    marks = [{"trainable": m.is_target, "loss_mask": int(m.is_target)} for m in messages]
    yield from _whole(messages, marks, trace)


def axolotl(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
    """One row a trace."""
    yield from _whole(messages, [{"train": m.is_target} for m in messages], trace)


def trl(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
    """One row a teacher turn."""
    for at, message in enumerate(messages):
        if message.is_target:
            prompt = [_plain(m) for m in messages[:at]]
            yield {"prompt": prompt, "completion": [_plain(message)], "trace": trace}


def llamafactory(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
    """One row a teacher turn, in the sharegpt form; it wants turns that alternate, and a user first."""
    system, rest = ("", 0) if messages[0].role != "system" else (messages[0].content, 1)
    tags = {"user": "human", "tool": "observation", "assistant": "gpt"}
    for at, message in enumerate(messages[rest:]):
        expected = "an assistant" if at % 2 else "a user or tool"
        if (message.role == "assistant") != bool(at % 2) or message.role == "system":
            raise DataError(
                f"{trace}: message {at + rest} is by {message.role!r} where llamafactory expects {expected} "
                f"message: it would drop the trace; export it as tokens"
            )
    for at in range(rest, len(messages)):
        if messages[at].is_target:
            said = [{"from": tags[m.role], "value": m.content} for m in messages[rest : at + 1]]
            yield {"system": system, "conversations": said, "trace": trace}


def tokens(codec: Any) -> Exporter:
    """Rows of ids and labels under a tokenizer and its template."""
    from agentloop.render import render_trace

    def rows(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
        for row in render_trace(codec, messages, trace=trace).rows:
            ids = row.ids.tolist()
            labels = [i if target else IGNORED for i, target in zip(ids, row.targets.tolist(), strict=True)]
            yield {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels, "trace": trace}

    return rows


def by_turn(exporter: Exporter) -> Exporter:
    """The exporter with a row a target, which comes last and is the only one: for templates that rewrite
    earlier turns (strip their reasoning), and for trainers that mask by the last turn."""

    def rows(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
        for at, message in enumerate(messages):
            if message.is_target:
                before = [replace(m, train=False) for m in messages[:at]]
                yield from exporter([*before, message], trace)

    return rows


EXPORTERS: dict[str, Exporter] = {"verl": verl, "axolotl": axolotl, "trl": trl, "llamafactory": llamafactory}

CONFIG = {
    "axolotl": """datasets:
  - path: {file}
    type: chat_template
    chat_template: tokenizer_default
    field_messages: messages
    roles_to_train: []
    train_on_eos: turn
    message_field_training: train
""",
    "trl": "# SFTConfig(completion_only_loss=True, max_length=None): each row's completion is one teacher "
    "turn.\n",
    "llamafactory": """# dataset_info.json: {{"fewsteps": {{"file_name": "{file}", "formatting": "sharegpt",
#   "columns": {{"messages": "conversations", "system": "system"}}}}}}
mask_history: true
train_on_prompt: false
""",
    "verl": """data.train_files={file} data.messages_key=messages data.truncation=error
data.custom_cls.path=verl_dataset.py data.custom_cls.name=Messages
# verl 0.7 to 0.9 train on every assistant turn without this class (0.6 reads `loss_mask` itself). It renders
# each message alone: for a template that rewrites earlier turns, or whose stop token begins the next message
# (GLM 4.5), use --format tokens.
""",
    "tokens": """# input_ids, attention_mask and labels; -100 is no target. Do not truncate or mask again.
# In verl: data.train_files={file} data.custom_cls.path=verl_dataset.py data.custom_cls.name=Ids
""",
    "verifiers": "# verifiers.v1.utils.trace_store.read_episodes(FOLDER, WireTrace) reads {file}. Ids of a "
    "path of nodes\n# are a training row; `mask` is true for what is trained on.\n",
}
"""Settings under which the trainer trains on the same tokens."""


def _whole(messages: Sequence[TraceMessage], marks: Sequence[Row], trace: str) -> Iterator[Row]:
    if any(m.is_target for m in messages):
        said = [_plain(m) | mark | {"author": m.author} for m, mark in zip(messages, marks, strict=True)]
        yield {"messages": said, "trace": trace}


def _plain(message: TraceMessage) -> Row:
    return {"role": message.role, "content": message.content}
