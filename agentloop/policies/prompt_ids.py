"""Token ids of a context under the student's template, in which sampled turns keep the ids that were sampled.

An engine is given these ids, so that a later turn continues what the model really wrote, and so that the
contexts of training (agentloop.render) are the contexts of sampling. Text by others, a teacher with another
tokenizer say, is encoded.

A prompt is made from the one before the last assistant turn: that turn's ids and what closes it, then the
ids of what the template adds. What was made for an episode's last turn is kept, so that its next turn costs
the new messages and one rendering. The whole chat is rendered every time, since only the template knows
whether it repeats itself: one that takes old reasoning out, say, does not, and then all is encoded anew.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agentloop.render.codec import (
    Codec,
    closing_before,
    encode_ids,
    encode_turn,
    mark_for,
    marked,
    opening_of,
    rendered,
    sampled_ids,
)
from agentloop.types import Ask, Message
from occupancy.record.errors import DataError

KEPT = 4096
"""Episodes whose last prompt is kept; an older one is rendered anew when it goes on."""
SEEN = 16_384
"""Texts between turns whose ids are kept: proposals and continuations of one task see much the same."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What was rendered for one turn."""

    context: tuple[Message, ...]
    mark: str
    chat: list[dict[str, str]]
    """The same messages as the template sees them, marked."""
    text: str
    ids: array[int]

    def leads_to(self, context: tuple[Message, ...]) -> bool:
        """Whether making the prompt of `context` from the start would pass through this one."""
        n = len(self.context)
        return (
            len(context) > n
            and context[n].role == "assistant"
            and context[:n] == self.context
            and not any(self.mark in message.content for message in context[n:])
        )


class PromptIds:
    """Makes prompts, each from the episode's last one where the context has grown by turns."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._kept: OrderedDict[str, _Prompt] = OrderedDict()
        self._ids_of = lru_cache(SEEN)(lambda text, mark: array("i", encode_ids(codec, text, mark)))

    def of(self, ask: Ask) -> list[int]:
        """Ids of the prompt for a turn; they depend on its context alone."""
        context = tuple(ask.context)
        prompt = self._kept.pop(ask.episode_id, None)
        if prompt is None or not prompt.leads_to(context):
            prompt = _Prompt((), mark_for(m.content for m in context), [], "", array("i"))
        for place in range(len(prompt.context) + 1, len(context)):
            if context[place].role == "assistant":
                prompt = self._grown(prompt, context[:place])
        prompt = self._grown(prompt, context)
        self._kept[ask.episode_id] = prompt
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return prompt.ids.tolist()

    def _grown(self, prompt: _Prompt, context: tuple[Message, ...]) -> _Prompt:
        """The prompt of `context`, whose first new message is the turn that `prompt` was made for."""
        codec, mark = self._codec, prompt.mark
        new = context[len(prompt.context) :]
        added = [{"role": m.role, "content": marked(codec, m.content, mark)} for m in new]
        chat = prompt.chat + added
        text = rendered(codec, chat)
        before, ids = "", prompt.ids
        if prompt.context:
            closed, closing = closing_before(codec, new[1].role if len(new) > 1 else None)
            opening, turn = _turn(codec, new[0])
            before = prompt.text + opening + added[0]["content"] + closed
            if not text.startswith(before):
                return _Prompt(context, mark, chat, text, array("i", encode_ids(codec, text, mark)))
            ids = ids + array("i", [*turn, *closing])
        return _Prompt(context, mark, chat, text, ids + self._ids_of(text[len(before) :], mark))


def _turn(codec: Codec, turn: Message) -> tuple[str, Sequence[int]]:
    """What the template writes before an answer, where the turn was not sampled here, and the turn's ids."""
    if turn.token_ids is not None:
        try:
            return "", sampled_ids(codec, turn.token_ids, turn.content)
        except DataError:
            # Ids of another tokenizer: they spell something else here.
            pass
    opening = opening_of(codec, turn.content)
    return opening, encode_turn(codec, turn.content, opening)
