"""Messages to training rows: the student's turns are context, the teacher's turns are targets.

`_append_student_or_teacher_turn` is where the two part. The context of a turn is what a model is given at
that turn: the template's prompt for the messages before it. Two turns share a row as long as the later
prompt repeats the earlier turn word for word. Where a template rewrites history (strips old reasoning, trims
blanks), the row ends and the next turn starts its own, so that no target is ever in a context that was not
sampled from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from agentloop.render.codec import (
    Codec,
    closing_before,
    decode,
    encode,
    encode_turn,
    mark_for,
    marked,
    opening_of,
    prompt_text,
    sampled_ids,
)
from agentloop.render.types import LengthRule, Overflow, Rendered, Span, TraceMessage, TrainingRow
from occupancy.record.errors import DataError

_Numbered = tuple[int, TraceMessage]


@dataclass(frozen=True, slots=True)
class _End:
    """Where an assistant turn ends in a draft, its closing token included."""

    start: int
    """First id of the turn."""
    ids: int
    """Ids up to here."""
    text: int
    """Characters up to here."""
    message: int
    target: bool


@dataclass
class _Draft:
    """A row while it grows; `text` is the marked text of its ids."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    ends: list[_End] = field(default_factory=list)

    @property
    def trained(self) -> list[int]:
        return [end.message for end in self.ends if end.target]


def render_trace(
    codec: Codec, messages: Sequence[TraceMessage], *, rule: LengthRule | None = None, trace: str = "trace"
) -> Rendered:
    """The training rows of one trace under a length rule.

    Args:
        codec: the student's tokenizer and chat template.
        messages: the trace, from the task to the teacher's last turn.
        rule: limits on turns and rows; None: no limits.
        trace: its name, for errors.

    Returns:
        Rows, and which turns are trained on or not and why; no row where nothing is left to train on.

    Raises:
        DataError: no message is marked for training, or a text that the template cannot render exactly.
    """
    rule = rule or LengthRule()
    try:
        return _render(codec, messages, rule)
    except DataError as error:
        raise DataError(f"{trace}: {error}") from error


def _render(codec: Codec, messages: Sequence[TraceMessage], rule: LengthRule) -> Rendered:
    wanted = {i for i, m in enumerate(messages) if m.train}
    if not wanted:
        raise DataError("no message is marked for training: expected a teacher turn with train true")
    dropped = {i: messages[i].no_target for i in wanted if messages[i].no_target}
    if rule.turn_tokens is not None:
        for i in wanted - set(dropped):
            ids = _turn_ids(codec, messages[i], _unopened(codec, messages[i]))
            if len(ids) + len(codec.closing_ids) > rule.turn_tokens:
                dropped[i] = "turn_tokens"
    mark = mark_for(m.content for m in messages)
    queue = [(list(enumerate(messages)), frozenset(wanted - set(dropped)))]
    drafts: list[_Draft] = []
    while queue:
        numbered, targets = queue.pop()
        for draft in _drafts(codec, numbered, targets, mark):
            if rule.row_tokens is None or len(draft.ids) <= rule.row_tokens:
                drafts.append(draft)
            elif rule.overflow is Overflow.HEAD:
                cut = _until(draft, rule.row_tokens)
                drafts += [] if cut is None else [cut]
            elif rule.overflow is Overflow.TAIL:
                held = frozenset(draft.trained)
                if shorter := _without_oldest(numbered, draft, len(draft.ids) - rule.row_tokens):
                    queue.append((shorter, held & {i for i, _ in shorter}))
    drafts.sort(key=lambda d: d.trained[-1])
    kept = {i for d in drafts for i in d.trained}
    for i in wanted - kept - set(dropped):
        dropped[i] = "row_tokens"
    teacher = [i for i, m in enumerate(messages) if m.author == "teacher"]
    depth = {i: j for j, i in enumerate(teacher, start=1)}
    rows = tuple(_finish(codec, draft, depth, mark) for draft in drafts)
    return Rendered(rows, tuple(sorted(kept)), tuple(sorted(dropped.items())))


def _drafts(codec: Codec, numbered: Sequence[_Numbered], targets: frozenset[int], mark: str) -> list[_Draft]:
    done: list[_Draft] = []
    draft = _Draft()
    seen = 0
    for place, (i, message) in enumerate(numbered):
        if message.role != "assistant":
            continue
        prompt = prompt_text(codec, [m for _, m in numbered[:place]], mark)
        if not prompt.startswith(draft.text):
            done.append(draft)
            draft, seen = _Draft(), 0
        _append_prompt(codec, draft, prompt[len(draft.text) :], numbered[seen:place], mark)
        after = numbered[place + 1][1].role if place + 1 < len(numbered) else _expected(message)
        _append_student_or_teacher_turn(codec, draft, i, message, target=i in targets, mark=mark, after=after)
        seen = place + 1
    return [cut for d in [*done, draft] if (cut := _until(d)) is not None]


def _append_prompt(codec: Codec, draft: _Draft, text: str, between: Sequence[_Numbered], mark: str) -> None:
    """Append what the template wrote since the last turn; its authors are for the eye only."""
    found: list[tuple[int, int, int, str]] = []
    cursor = 0
    for i, message in between:
        content = marked(codec, message.content, mark).strip()
        start = text.find(content, cursor) if content else -1
        if start >= 0:
            cursor = start + len(content)
            found.append((start, cursor, i, message.author))

    def source(start: int) -> tuple[int, str]:
        at = bisect_right(found, start, key=itemgetter(0)) - 1
        return found[at][2:] if at >= 0 and start < found[at][1] else (-1, "template")

    encoded = encode(codec, text, mark)
    stop = len(draft.ids)
    for (index, author), run in groupby(map(source, encoded.starts)):
        start, stop = stop, stop + sum(1 for _ in run)
        draft.spans.append(Span(start, stop, author, index))
    draft.ids += encoded.ids
    draft.text += text


def _append_student_or_teacher_turn(
    codec: Codec, draft: _Draft, i: int, message: TraceMessage, *, target: bool, mark: str, after: str | None
) -> None:
    """Append message i with what closes it; `target`: its ids are trained on (a teacher's turn only).

    after  role of the next message
    """
    spoken = _spoken(codec, i, message, draft.text) if target else message.content
    opening = "" if message.token_ids is not None else opening_of(codec, spoken)
    ids = _turn_ids(codec, message, spoken)
    closed, closing = closing_before(codec, after)
    start, stop = len(draft.ids), len(draft.ids) + len(ids)
    draft.ids += [*ids, *closing]
    draft.text += opening + marked(codec, spoken, mark) + closed
    # Anything the template writes before the token that closes the turn has no author.
    close = stop + len(closing) - 1
    for a, b, author, trained in (
        (start, stop, message.author, target),
        (stop, close, "template", False),
        (close, close + 1, message.author, target),
    ):
        if b > a:
            owner = i if author != "template" else -1
            draft.spans.append(Span(a, b, author, owner, trained))
    draft.ends.append(_End(start, len(draft.ids), len(draft.text), i, target))


def _unopened(codec: Codec, message: TraceMessage) -> str:
    """The turn's text without an opening of reasoning that the prompt has already."""
    block, text = codec.opened, message.content
    if block is None or message.token_ids is not None or not text.lstrip().startswith(block.start):
        return text
    return text.lstrip().removeprefix(block.start).lstrip("\n")


def _spoken(codec: Codec, i: int, message: TraceMessage, prompt: str) -> str:
    """A teacher's text as it follows the generation prompt: with one block of reasoning, opened once.

    Where this prompt opens the block itself, an opening of the turn's own is left out; a turn that does not
    close it is refused, for a student that is trained on it would answer inside its reasoning.
    """
    block = codec.opened
    if block is None or not prompt.rstrip().endswith(block.start):
        return message.content
    text = _unopened(codec, message)
    if text.count(block.end) != 1 or block.start in text:
        raise DataError(
            f"message {i}: the template's prompt opens {block.start}, and the turn closes it "
            f"{text.count(block.end)} times and opens it {text.count(block.start)} times more: expected one "
            f"pair; collect with the teacher's reasoning (thinking=keep), or save the tokenizer with "
            f"{{% set enable_thinking = false %}} before its template"
        )
    return text


def _turn_ids(codec: Codec, message: TraceMessage, spoken: str) -> list[int]:
    if message.token_ids is not None:
        return sampled_ids(codec, message.token_ids, spoken)
    return encode_turn(codec, spoken, opening_of(codec, spoken))


def _expected(last: TraceMessage) -> str | None:
    """Who would speak after the last turn: a tool after a call, else what closes a turn by itself."""
    return "tool" if last.content.rstrip().endswith("</tool_call>") else None


def _until(draft: _Draft, limit: int | None = None) -> _Draft | None:
    """The draft up to its last target turn that ends within `limit` ids; None where there is none."""
    last = next((e for e in reversed(draft.ends) if e.target and (limit is None or e.ids <= limit)), None)
    if last is None:
        return None
    spans = [s for s in draft.spans if s.stop <= last.ids]
    ends = [e for e in draft.ends if e.ids <= last.ids]
    return _Draft(draft.text[: last.text], draft.ids[: last.ids], spans, ends)


def _without_oldest(numbered: Sequence[_Numbered], draft: _Draft, excess: int) -> list[_Numbered] | None:
    """The messages up to the last target without the oldest turns; None where no turn is left.

    As many turns go as hold `excess` ids. Where the template rewrote the history, the row does not say
    how long each was: then one goes, and the row is looked at again.
    """
    kept = [(i, message) for i, message in numbered if i <= draft.trained[-1]]
    first, *later = (place for place, (_, message) in enumerate(kept) if message.role == "assistant")
    starts = {end.message: end.start for end in draft.ends}
    oldest = starts.get(kept[first][0])
    for place in later:
        if oldest is None or starts.get(kept[place][0], 0) - oldest >= excess:
            return [*kept[:first], *kept[place:]]
    return None


def _finish(codec: Codec, draft: _Draft, depth: dict[int, int], mark: str) -> TrainingRow:
    targets = np.zeros(len(draft.ids), dtype=np.bool_)
    depths = np.zeros(len(draft.ids), dtype=np.int16)
    for span in draft.spans:
        if span.target:
            targets[span.start : span.stop] = True
            depths[span.start : span.stop] = depth[span.message]
    # Sampled ids, or a token across a turn's edge, may differ from encoding the text at once; what they
    # spell may not.
    at_once = encode(codec, draft.text, mark).ids
    drift = at_once != draft.ids
    if drift and (ours := decode(codec, draft.ids)) != (theirs := decode(codec, at_once)):
        raise DataError(
            f"the row's ids spell {ours[-80:]!r}, but the template wrote {theirs[-80:]!r}: this tokenizer "
            f"joins text across turns; use another"
        )
    bos = codec.tokenizer.bos_token_id
    if bos is not None and draft.ids[:2] == [bos, bos]:
        raise DataError(
            f"the row starts with two {codec.tokenizer.bos_token!r}: take one out of the template"
        )
    return TrainingRow(np.asarray(draft.ids, dtype=np.int32), targets, depths, tuple(draft.spans), drift)
