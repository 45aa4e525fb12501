"""A tokenizer with its chat template: the text of a prompt, and the ids of a text.

Text inside a message is never read as a control token, whatever it contains. Before the template sees
a message, a mark (a Unicode noncharacter that occurs nowhere in the trace) is put into every string that
would be one; what is unmarked in the rendered text is the template's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.render.bounded import TooMuch, bounded
from agentloop.render.types import TraceMessage
from occupancy.record.errors import DataError, InputError, MissingExtra

MARKS = tuple(chr(c) for c in range(0xFDD0, 0xFDF0))
TEMPLATE_S = 20.0
"""Seconds that a template has for one prompt."""
MOST_CHARACTERS = 64 << 20
"""Of a prompt: more than any context holds."""
_PROBE = "ok7"
_CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": _PROBE}]
_REASONING = re.compile(
    r"(?:<(?P<tag>think|thinking|thought|reasoning|seed:think)>|\[(?P<square>THINK)\])\s*$"
)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A block of reasoning that the template's generation prompt opens, so that a turn need only close it."""

    start: str
    """Such as <think>."""
    end: str
    """Such as </think>."""


@dataclass(frozen=True, eq=False)
class Codec:
    """A fast tokenizer and what its template does; made by `codec_of`."""

    tokenizer: Any
    """transformers' fast tokenizer, with a chat template."""
    whole: Any
    """Its `tokenizers.Tokenizer`, which reads control tokens."""
    plain: Any
    """The same, which reads none."""
    control: Mapping[str, int]
    """Strings that are special tokens, with their ids."""
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
    """What the generation prompt leaves open; None for most templates."""
    closings: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """What closes a turn, and its ids, by the role of the next message: of templates (GLM 4.5) that write
    nothing after a turn, so that a model stops with the token of the next speaker."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids of a text, each with the place of its first character."""

    ids: list[int]
    starts: list[int]


def load_codec(folder: str | Path, *, hub: bool = False) -> Codec:
    """Codec of the tokenizer that is saved in `folder`; `hub` allows a name that is downloaded.

    Raises:
        InputError: no such folder, or a tokenizer or template that cannot be rendered exactly.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtra("transformers", "agents") from error
    if not hub and not Path(folder).is_dir():
        raise InputError(
            f"tokenizer {str(folder)!r} is no folder: name the folder of a saved model (a name on the "
            f"Hugging Face hub needs --hub, or hub=1 in a policy)"
        )
    try:
        loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=not hub, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer.json raises a bare Exception in its library
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"the tokenizer in {str(folder)!r} cannot be loaded ({why}): save it again there"
        ) from error
    return codec_of(loaded)


def codec_of(tokenizer: Any) -> Codec:
    """Codec of a loaded tokenizer; one that cannot be rendered exactly is refused here, not later."""
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{name} is no fast tokenizer: save it with a tokenizer.json, and load that")
    if not tokenizer.chat_template:
        raise InputError(f"{name} has no chat template: set tokenizer.chat_template to the model's own")
    control = {t.content: i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    if not control:
        raise InputError(f"{name} has no special tokens: its template cannot close a turn with one")
    whole, plain = (_unlimited(tokenizer.backend_tokenizer) for _ in range(2))
    plain.encode_special_tokens = True
    pattern = re.compile("|".join(re.escape(s) for s in sorted(control, key=len, reverse=True)))
    some = next(iter(control))
    if _at_once(whole, f"{some}{_PROBE}").ids[1:] != plain.encode(_PROBE, add_special_tokens=False).ids:
        raise InputError(
            f"{name} encodes a text differently after a control token than alone (it adds a space in front): "
            f"sampled and encoded turns could not be distinguished; set its prepend_scheme to 'never'"
        )
    known = frozenset(control.values())
    never_text = known - {tokenizer.unk_token_id}
    for text in _disguised(control):
        if not pattern.search(text) and not never_text.isdisjoint(_at_once(whole, text).ids):
            raise InputError(
                f"{name} reads the text {text!r} as a control token, since it normalises texts (case or wide "
                f"forms): a web page could end a turn; save the special tokens with normalized=False"
            )
    text, prompt = _probed(tokenizer, name)
    template, variables = tokenizer.get_chat_template(), dict(tokenizer.special_tokens_map)
    tail = text[text.rindex(_PROBE) + len(_PROBE) :]
    end = pattern.search(tail)
    by_role = {} if end is not None else _next_speakers(tokenizer, text, pattern)
    if end is None and "user" not in by_role:
        raise InputError(
            f"{name}: the template writes {tail!r} after an assistant turn, which holds no special token, "
            f"and the next message begins with none: a model could not learn to stop; use a template that "
            f"closes its turns with one"
        )
    closing = by_role["user"] if end is None else tail[: end.end()]
    codec = Codec(
        tokenizer=tokenizer,
        whole=whole,
        plain=plain,
        control=control,
        pattern=pattern,
        known=known,
        never_text=never_text,
        template=template,
        variables=variables,
        closing=closing,
        closing_ids=(),
        pieces_agree=True,
        opened=_opened(prompt),
    )
    pieces = _pieces(codec, text, "").ids
    object.__setattr__(codec, "closing_ids", tuple(_pieces(codec, closing, "").ids))
    closings = {role: (said, tuple(_pieces(codec, said, "").ids)) for role, said in by_role.items()}
    object.__setattr__(codec, "closings", closings)
    object.__setattr__(codec, "pieces_agree", pieces == _at_once(whole, text).ids)
    return codec


def _probed(tokenizer: Any, name: str) -> tuple[str, str]:
    """What the template writes for a question and an answer, and as the prompt after the question."""
    chat = _CHAT

    def render(messages: list[dict[str, str]], **more: Any) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **more))

    try:
        text = _bounded(lambda: render(chat))
        prompt = _bounded(lambda: render(chat[:1], add_generation_prompt=True))
    except Exception as error:  # a template is a program: it may raise anything
        raise InputError(
            f"{name}: the chat template fails on a question and an answer ({_why(error)})"
        ) from error
    if _PROBE not in text:
        raise InputError(f"{name}: the chat template leaves out what the assistant says")
    return text, prompt


def _next_speakers(tokenizer: Any, text: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """What the template writes between an answer and the next message, by its role: up to a special token."""
    found = {}
    for role in ("user", "tool"):
        chat = [*_CHAT, {"role": role, "content": "next"}]

        def render(chat: list[dict[str, str]] = chat) -> str:
            return str(tokenizer.apply_chat_template(chat, tokenize=False))

        try:
            whole = _bounded(render)
        except Exception:  # a template is a program, and need not know tools
            continue
        tail = whole.removeprefix(text)
        end = pattern.search(tail)
        if len(tail) < len(whole) and end is not None and not tail[: end.start()].strip():
            found[role] = tail[: end.end()]
    return found


def closing_before(codec: Codec, role: str | None) -> tuple[str, tuple[int, ...]]:
    """What closes a turn, and its ids, before a message of this role; None: after the last turn."""
    return codec.closings.get(role or "", (codec.closing, codec.closing_ids))


def _bounded(render: Callable[[], str]) -> str:
    """What a template writes, within the limits of time, memory and size."""
    text = bounded(render, seconds=TEMPLATE_S)
    if len(text) > MOST_CHARACTERS:
        raise TooMuch(f"wrote {len(text):,} characters")
    return text


def _why(error: Exception) -> str:
    told = [str(error)] if isinstance(error, TooMuch) else f"{type(error).__name__}: {error}".splitlines()
    return "".join(told[:1])


def _opened(prompt: str) -> Reasoning | None:
    found = _REASONING.search(prompt)
    if found is None:
        return None
    if found["square"]:
        return Reasoning("[THINK]", "[/THINK]")
    return Reasoning(f"<{found['tag']}>", f"</{found['tag']}>")


def _disguised(control: Iterable[str]) -> Iterable[str]:
    """Texts that become control tokens under lower case, NFKC, or without accents and format characters."""
    for s in control:
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s)
        yield from (s.upper(), s.lower(), wide, f"{s[0]}\u200b{s[1:]}", f"{s[:-1]}\u0301{s[-1:]}")


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
    from transformers.utils.chat_template_utils import render_jinja_template

    def render() -> str:
        texts, _ = render_jinja_template(
            conversations=[chat],
            chat_template=codec.template,
            add_generation_prompt=True,
            **codec.variables,
        )
        return str(texts[0])

    try:
        return _bounded(render)
    except TooMuch as error:
        raise DataError(
            f"the chat template {error} on {len(chat)} messages: it loops; correct the template that is "
            f"saved with the tokenizer"
        ) from error
    except Exception as error:  # a template is a program: it may raise anything
        roles = [message["role"] for message in chat]
        raise DataError(
            f"the chat template refuses the roles {roles}: {_why(error)}; give the environment a prompt that "
            f"the student's template accepts"
        ) from error


def encode(codec: Codec, text: str, mark: str) -> Encoded:
    """Ids of marked text; only unmarked control tokens are read as such."""
    if mark not in text:
        encoded = _at_once(codec.whole, text)
        _no_more_control(codec, encoded.ids, text)
        return encoded
    if not codec.pieces_agree:
        raise DataError(
            "a message holds the text of a control token, and this tokenizer joins text across control "
            "tokens: the two cannot be distinguished; remove the trace, or use a tokenizer without that habit"
        )
    return _pieces(codec, text, mark)


def encode_ids(codec: Codec, text: str, mark: str) -> list[int]:
    """The ids of `encode` alone: to list where each begins takes a third as long again."""
    if mark in text:
        return encode(codec, text, mark).ids
    ids = list(codec.whole.encode(text, add_special_tokens=False).ids)
    _no_more_control(codec, ids, text)
    return ids


def encode_turn(codec: Codec, content: str) -> list[int]:
    """Ids of an assistant turn's text, as they follow a prompt."""
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


def _unlimited(backend: Any) -> Any:
    """A copy that neither cuts nor pads, whatever its file says."""
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _at_once(backend: Any, text: str) -> Encoded:
    encoding = backend.encode(text, add_special_tokens=False)
    return Encoded(list(encoding.ids), [start for start, _ in encoding.offsets])


def _pieces(codec: Codec, text: str, mark: str) -> Encoded:
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
