"""A codec of a saved tokenizer: what its chat template writes is found by rendering a question and an answer.

A tokenizer or template that cannot be rendered exactly is refused here, before anything is collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentloop.render.codec import Codec, Reasoning, at_once, beside, limited, pieces, why
from occupancy.record.errors import InputError, imported
from occupancy.record.finish import REASONING

_PROBE, _NEXT = "ok7", "and8"
_QUESTION = {"role": "user", "content": "q"}
_ANSWER = {"role": "assistant", "content": _PROBE}


@dataclass(frozen=True, slots=True)
class _Written:
    """What a template writes around a question and an answer."""

    prompt: str
    """After the question, for the model to answer."""
    answered: str
    """Question and answer."""
    then: Mapping[str, str]
    """Question, answer and one more message, by its role; not of roles that the template refuses."""
    left_out: frozenset[str]
    """Roles whose messages the template takes and does not write."""
    beside: Reasoning | None
    """Reasoning that the template reads beside an answer's text alone."""


CHECKPOINT = (
    "a folder that save_pretrained wrote: config.json, *.safetensors, tokenizer.json, tokenizer_config.json"
)
"""What a checkpoint is, for messages."""


def load_codec(folder: str | Path, *, hub: bool = False, of: str = "tokenizer") -> Codec:
    """Codec of the tokenizer that is saved in `folder`.

    Args:
        folder: of a checkpoint, or of its tokenizer alone.
        hub: whether a name that is no folder may be looked up on the Hugging Face hub.
        of: what named the folder, for messages: --base, say.

    Raises:
        InputError: no such folder, or a tokenizer or template that cannot be rendered exactly.
    """
    if not hub and not Path(folder).is_dir():
        raise InputError(
            f"{of} {str(folder)!r} is no folder: expected {CHECKPOINT}; a name on the Hugging Face hub needs "
            f"--hub, or hub=1 in a policy"
        )
    transformers = imported("transformers", "agents")
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=not hub, trust_remote_code=False
        )
    except Exception as error:  # a broken tokenizer.json raises a bare Exception in its library
        raise InputError(
            f"{of} {str(folder)!r} has no tokenizer that can be loaded ({why(error)}): expected {CHECKPOINT}"
        ) from error
    return codec_of(loaded)


def codec_of(tokenizer: Any) -> Codec:
    """Codec of a loaded tokenizer; one that cannot be rendered exactly is refused here, not later."""
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{name} is no fast tokenizer: save it with a tokenizer.json, and load that")
    if not tokenizer.chat_template:
        raise InputError(f"{name} has no chat template: set tokenizer.chat_template to the model's own")
    added = tokenizer.added_tokens_decoder
    if not any(token.special for token in added.values()):
        raise InputError(f"{name} has no special tokens: its template cannot close a turn with one")
    written = _written(tokenizer, name)
    control = {t.content: i for i, t in added.items() if t.special or _structure(t.content, written)}
    whole, plain = (_unlimited(tokenizer.backend_tokenizer, control) for _ in range(2))
    plain.encode_special_tokens = True
    pattern = re.compile("|".join(re.escape(s) for s in sorted(control, key=len, reverse=True)))
    some = next(iter(control))
    if at_once(whole, f"{some}{_PROBE}").ids[1:] != plain.encode(_PROBE, add_special_tokens=False).ids:
        raise InputError(
            f"{name} encodes a text differently after a control token than alone (it adds a space in front): "
            f"sampled and encoded turns could not be distinguished; set its prepend_scheme to 'never'"
        )
    known = frozenset(control.values())
    never_text = known - {tokenizer.unk_token_id}
    for text in _disguised(control):
        if not pattern.search(text) and not never_text.isdisjoint(at_once(whole, text).ids):
            raise InputError(
                f"{name} reads the text {text!r} as a control token, since it normalises texts (case or wide "
                f"forms): a web page could end a turn; save the special tokens with normalized=False"
            )
    tail = written.answered[written.answered.rindex(_PROBE) + len(_PROBE) :]
    end = pattern.search(tail)
    by_role = {} if end is not None else _next_speakers(written, pattern)
    if end is None and "user" not in by_role:
        raise InputError(
            f"{name}: the template writes {tail!r} after an assistant turn, which holds no special token, "
            f"and the next message begins with none: a model could not learn to stop; use a template that "
            f"closes its turns with one"
        )
    closing = by_role["user"] if end is None else tail[: end.end()]
    opened = _opened(written.prompt)
    bare = Codec(
        tokenizer=tokenizer,
        whole=whole,
        plain=plain,
        control=control,
        pattern=pattern,
        known=known,
        never_text=never_text,
        template=tokenizer.get_chat_template(),
        variables=dict(tokenizer.special_tokens_map),
        closing=closing,
        closing_ids=(),
        pieces_agree=True,
        opened=opened,
        opening="" if opened else _opening(written),
        beside=written.beside,
        left_out=written.left_out,
    )
    return replace(
        bare,
        closing_ids=tuple(pieces(bare, closing, "").ids),
        closings={role: (said, tuple(pieces(bare, said, "").ids)) for role, said in by_role.items()},
        pieces_agree=pieces(bare, written.answered, "").ids == at_once(whole, written.answered).ids,
    )


def _written(tokenizer: Any, name: str) -> _Written:
    def render(chat: Sequence[dict[str, str]], **more: Any) -> str:
        return limited(lambda: str(tokenizer.apply_chat_template(chat, tokenize=False, **more)))

    chat = [_QUESTION, _ANSWER]
    try:
        answered = render(chat)
        prompt = render(chat[:1], add_generation_prompt=True)
    except Exception as error:  # a template is a program: it may raise anything
        raise InputError(
            f"{name}: the chat template fails on a question and an answer ({why(error)})"
        ) from error
    if _PROBE not in answered:
        raise InputError(f"{name}: the chat template leaves out what the assistant says")
    then, left_out = {}, set()
    for role in ("user", "tool", "system"):
        one = {"role": role, "content": _NEXT}
        try:
            text = render([one, *chat] if role == "system" else [*chat, one])
        except Exception:  # a template is a program, and need not know every role
            continue
        if _NEXT not in text:
            left_out.add(role)
        elif role != "system":
            then[role] = text
    thought = {"role": "assistant", "content": f"<think>\n{_NEXT}\n</think>\n\n{_PROBE}"}
    block = Reasoning("<think>", "</think>")
    try:
        doubled = render([_QUESTION, thought]).count(block.end) > 1
        apart = doubled and render([_QUESTION, beside(thought, block)]).count(block.end) == 1
    except Exception:  # a template is a program, and need not know reasoning
        apart = False
    return _Written(prompt, answered, then, frozenset(left_out), block if apart else None)


def _structure(word: str, written: _Written) -> bool:
    """Whether an added token that is not special is the template's own all the same (DeepSeek's roles,
    Qwen's </tool_response>): a tag that the template writes, and none of reasoning."""
    if not re.fullmatch(r"<\S+>|\[\S+\]", word) or re.fullmatch(REASONING, word.replace("/", "", 1)):
        return False
    return any(word in text for text in (written.prompt, *written.then.values()))


def _next_speakers(written: _Written, pattern: re.Pattern[str]) -> dict[str, str]:
    """What the template writes between an answer and the next message, by its role: up to a special token."""
    found = {}
    for role, whole in written.then.items():
        tail = whole.removeprefix(written.answered)
        end = pattern.search(tail)
        if len(tail) < len(whole) and end is not None and not tail[: end.start()].strip():
            found[role] = tail[: end.end()]
    return found


def _opened(prompt: str) -> Reasoning | None:
    found = re.search(rf"({REASONING})\s*$", prompt)
    return None if found is None else Reasoning(found[1], f"{found[1][0]}/{found[1][1:]}")


def _opening(written: _Written) -> str:
    """What the template writes between the prompt and an answer, of the last turn and of earlier ones."""
    before = written.answered[: written.answered.index(_PROBE)]
    always = written.then.get("user", "").startswith(before + _PROBE) and before.startswith(written.prompt)
    return before.removeprefix(written.prompt) if always else ""


def _disguised(control: Iterable[str]) -> Iterable[str]:
    """Texts that become control tokens under lower case, NFKC, or without accents and format characters."""
    for s in control:
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s)
        yield from (s.upper(), s.lower(), wide, f"{s[0]}\u200b{s[1:]}", f"{s[:-1]}\u0301{s[-1:]}")


def _unlimited(backend: Any, control: Mapping[str, int]) -> Any:
    """A copy that neither cuts nor pads, whatever its file says, and whose control tokens are special."""
    saved = json.loads(backend.to_str())
    for token in saved["added_tokens"]:
        token["special"] = token["content"] in control
    copy = type(backend).from_str(json.dumps(saved))
    copy.no_truncation()
    copy.no_padding()
    return copy
