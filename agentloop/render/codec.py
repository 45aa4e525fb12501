"""A tokenizer with its chat template: the text of a prompt, and the ids of a text.

Text inside a message is never read as a control token, whatever it contains. Before the template sees
a message, a mark (a Unicode noncharacter that occurs nowhere in the trace) is put into every string that
would be one; what is unmarked in the rendered text is the template's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop.render.bounded import TooMuch, bounded
from agentloop.render.types import TraceMessage
from occupancy.record.errors import DataError

MARKS = tuple(chr(c) for c in range(0xFDD0, 0xFDF0))
TEMPLATE_S = 20.0
"""Seconds that a template has for one prompt."""
MOST_CHARACTERS = 64 << 20
"""Of a prompt: more than any context holds."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What begins and ends a block of reasoning, such as <think> and </think>."""

    start: str
    end: str


@dataclass(frozen=True, eq=False)
class Codec:
    """A fast tokenizer and what its template does; made by `load.codec_of`."""

    tokenizer: Any
    """transformers' fast tokenizer, with a chat template."""
    whole: Any
    """Its `tokenizers.Tokenizer`, which reads control tokens."""
    plain: Any
    """The same, which reads none."""
    control: Mapping[str, int]
    """Strings that are special tokens, or that the template writes around messages, with their ids."""
    pattern: re.Pattern[str]
    """Matches any of them."""
    known: frozenset[int]
    """Their ids."""
    never_text: frozenset[int]
    """Those that no text may become: all but the id of unknown characters."""
    template: str
    """The chat template's source."""
    variables: Mapping[str, str]
    """Names of special tokens that the template may use, with their text."""
    closing: str
    """What the template writes after an assistant turn, up to the control token that ends it."""
    closing_ids: tuple[int, ...]
    """Its ids; the last one closes the turn, and need not be the tokenizer's EOS."""
    pieces_agree: bool
    """Encoding between control tokens gives the ids of encoding at once."""
    opened: Reasoning | None = None
    """What the generation prompt leaves open, so that a turn need only close it; None for most templates."""
    closings: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """What closes a turn, and its ids, by the role of the next message: of templates (GLM 4.5) that write
    nothing after a turn, so that a model stops with the token of the next speaker."""
    opening: str = ""
    """What the template writes before every answer and the model has to (GLM 4.5's empty block of reasoning,
    gpt-oss's channel)."""
    beside: Reasoning | None = None
    """Reasoning that the template (Qwen3.8's) reads beside an answer's text alone: in the text it would be
    written after an empty block."""
    left_out: frozenset[str] = frozenset()
    """Roles whose messages the template takes and does not write."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids of a text, each with the place of its first character."""

    ids: list[int]
    starts: list[int]


def closing_before(codec: Codec, role: str | None) -> tuple[str, tuple[int, ...]]:
    """What closes a turn, and its ids, before a message of this role; None: after the last turn."""
    return codec.closings.get(role or "", (codec.closing, codec.closing_ids))


def limited(render: Callable[[], str]) -> str:
    """What a template writes, within the limits of time, memory and size."""
    text = bounded(render, seconds=TEMPLATE_S)
    if len(text) > MOST_CHARACTERS:
        raise TooMuch(f"wrote {len(text):,} characters")
    return text


def why(error: Exception) -> str:
    """What a failure says, in one line."""
    told = [str(error)] if isinstance(error, TooMuch) else f"{type(error).__name__}: {error}".splitlines()
    return "".join(told[:1])


def mark_for(contents: Iterable[str]) -> str:
    """A noncharacter that occurs in none of the messages."""
    text = "".join(contents)
    for mark in MARKS:
        if mark not in text:
            return mark
    raise DataError(
        f"the trace holds all {len(MARKS)} Unicode noncharacters U+FDD0..U+FDEF: remove one of them"
    )


def marked(codec: Codec, content: str, mark: str) -> str:
    """The content with a mark inside everything that would be read as a control token."""
    return codec.pattern.sub(lambda m: m[0][0] + mark + m[0][1:], content)


def prompt_text(codec: Codec, messages: Sequence[TraceMessage], mark: str) -> str:
    """Marked text that a model is given to write the next assistant turn."""
    return rendered(codec, [{"role": m.role, "content": marked(codec, m.content, mark)} for m in messages])


def rendered(codec: Codec, chat: list[dict[str, str]]) -> str:
    """The template's prompt for messages whose contents are marked.

    What tokenizer.apply_chat_template gives, by the function that renders it there: a loop of short turns
    cannot afford the checks around it.
    """
    if codec.left_out and (lost := codec.left_out.intersection(message["role"] for message in chat)):
        raise DataError(
            f"the chat template writes nothing of messages by {sorted(lost)}: what they say would be lost; "
            f"give the environment a prompt of other roles, or use a template that writes them"
        )
    from transformers.utils.chat_template_utils import render_jinja_template

    if codec.beside is not None:
        chat = [beside(m, codec.beside) if m["role"] == "assistant" else m for m in chat]

    def render() -> str:
        texts, _ = render_jinja_template(
            conversations=[chat],
            chat_template=codec.template,
            add_generation_prompt=True,
            **codec.variables,
        )
        return str(texts[0])

    try:
        return limited(render)
    except TooMuch as error:
        raise DataError(
            f"the chat template {error} on {len(chat)} messages: it loops; correct the template that is "
            f"saved with the tokenizer"
        ) from error
    except Exception as error:  # a template is a program: it may raise anything
        roles = [message["role"] for message in chat]
        raise DataError(
            f"the chat template refuses the roles {roles}: {why(error)}; give the environment a prompt that "
            f"the student's template accepts"
        ) from error


def beside(message: dict[str, str], block: Reasoning) -> dict[str, str]:
    """The message with the reasoning that begins its text beside it; the block may begin before the text."""
    thought, closed, text = message["content"].partition(block.end)
    if not closed:
        return message
    thought = thought.strip().removeprefix(block.start).strip()
    return message | {"reasoning_content": thought, "content": text.lstrip("\n")}


def encode(codec: Codec, text: str, mark: str) -> Encoded:
    """Ids of marked text; only unmarked control tokens are read as such."""
    if mark not in text:
        encoded = at_once(codec.whole, text)
        _no_more_control(codec, encoded.ids, text)
        return encoded
    if not codec.pieces_agree:
        raise DataError(
            "a message holds the text of a control token, and this tokenizer joins text across control "
            "tokens: the two cannot be distinguished; remove the trace, or use a tokenizer without that habit"
        )
    return pieces(codec, text, mark)


def encode_ids(codec: Codec, text: str, mark: str) -> list[int]:
    """The ids of `encode` alone: to list where each begins takes a third as long again."""
    if mark in text:
        return encode(codec, text, mark).ids
    ids = list(codec.whole.encode(text, add_special_tokens=False).ids)
    _no_more_control(codec, ids, text)
    return ids


def opening_of(codec: Codec, content: str) -> str:
    """What begins an answer with this text; nothing where the text has a block of reasoning of its own."""
    closing = re.search(r"</[^<>]+>|\[/\w+\]", codec.opening)
    return "" if closing and closing[0] in content else codec.opening


def encode_turn(codec: Codec, content: str, opening: str = "") -> list[int]:
    """Ids of an assistant turn's text, as they follow a prompt; an opening's control tokens are read."""
    if opening:
        mark = mark_for([content])
        return pieces(codec, opening + marked(codec, content, mark), mark).ids
    ids = list(codec.plain.encode(content, add_special_tokens=False).ids)
    _no_control(codec, ids, content)
    return ids


def _no_more_control(codec: Codec, ids: Sequence[int], text: str) -> None:
    """DataError where the tokenizer found control tokens that the text does not spell."""
    if sum(map(codec.never_text.__contains__, ids)) > len(codec.pattern.findall(text)):
        raise DataError(
            "this tokenizer normalises a message's text into a control token: remove the trace, or save the "
            "tokenizer's special tokens with normalized=False"
        )


def _no_control(codec: Codec, ids: Sequence[int], text: str) -> None:
    if not codec.never_text.isdisjoint(ids):
        raise DataError(
            f"this tokenizer reads the text {text[:80]!r} as a control token, although it is a message's: "
            f"remove the trace, or use another tokenizer"
        )


def sampled_ids(codec: Codec, token_ids: Sequence[int], content: str) -> list[int]:
    """Sampled ids of a turn without what closed it; ids that spell another text are refused."""
    ids = list(token_ids)
    while (text := decode(codec, ids)) != content and ids and ids[-1] in codec.known:
        ids.pop()
    if text != content:
        raise DataError(
            f"sampled ids spell {text[:80]!r}, but the turn reads {content[:80]!r}: store the ids of "
            f"this very text, or none"
        )
    return ids


def decode(codec: Codec, ids: Sequence[int]) -> str:
    """Text of ids, control tokens included."""
    return str(codec.whole.decode(list(ids), skip_special_tokens=False))


def at_once(backend: Any, text: str) -> Encoded:
    """Ids of a text whose control tokens the backend reads, or does not."""
    encoding = backend.encode(text, add_special_tokens=False)
    return Encoded(list(encoding.ids), [start for start, _ in encoding.offsets])


def pieces(codec: Codec, text: str, mark: str) -> Encoded:
    """Ids of marked text, encoded between its control tokens."""
    ids: list[int] = []
    starts: list[int] = []
    place = 0
    for found in [*codec.pattern.finditer(text), None]:
        stop = len(text) if found is None else found.start()
        kept = [i for i in range(place, stop) if not mark or text[i] != mark]
        piece = "".join(text[i] for i in kept)
        encoding = codec.plain.encode(piece, add_special_tokens=False)
        _no_control(codec, encoding.ids, piece)
        ids += encoding.ids
        starts += [kept[start] for start, _ in encoding.offsets]
        if found is not None:
            ids.append(codec.control[found[0]])
            starts.append(found.start())
            place = found.end()
    return Encoded(ids, starts)
