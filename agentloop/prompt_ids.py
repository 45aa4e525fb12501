"""Token ids of a context under the student's template, in which sampled turns keep the ids that were sampled.

An engine is given these ids, so that a later turn continues what the model really wrote, and so that the
contexts of training (agentloop.render) are the contexts of sampling. Text by others, a teacher with another
tokenizer say, is encoded.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop.render.codec import Codec, encode, encode_turn, mark_for, marked, prompt_text, sampled_ids
from agentloop.render.types import TraceMessage
from agentloop.types import Ask, Message
from occupancy.errors import DataError

KEPT = 4096
"""Episodes whose last prompt is kept; an older one is rendered anew when it goes on."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What was rendered of an episode: the ids of its first `messages` messages, and their marked text."""

    messages: int
    text: str
    ids: array[int]


class PromptIds:
    """Renders contexts, each from the one before it where the template repeats that one word for word."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._kept: OrderedDict[str, _Prompt] = OrderedDict()

    def of(self, ask: Ask) -> list[int]:
        """Ids of the prompt for a turn."""
        messages = [_message(m) for m in ask.context]
        mark = mark_for(messages)
        kept = self._kept.pop(ask.episode_id, None)
        if kept is None or kept.messages > len(messages) or mark in kept.text:
            kept = _Prompt(0, "", array("i"))
        prompt = self._grown(kept, messages, mark)
        self._kept[ask.episode_id] = prompt
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return list(prompt.ids)

    def _grown(self, prompt: _Prompt, messages: Sequence[TraceMessage], mark: str) -> _Prompt:
        codec = self._codec
        for place in range(prompt.messages, len(messages)):
            if messages[place].role != "assistant":
                continue
            if place > prompt.messages or not prompt.text:
                prompt = self._until(prompt, messages[:place], mark)
            turn = [*_turn_ids(codec, messages[place]), *codec.closing_ids]
            text = prompt.text + marked(codec, messages[place].content, mark) + codec.closing
            prompt = _Prompt(place + 1, text, prompt.ids + array("i", turn))
        return self._until(prompt, messages, mark)

    def _until(self, prompt: _Prompt, messages: Sequence[TraceMessage], mark: str) -> _Prompt:
        """The prompt after `messages`; from scratch where the template has rewritten what came before."""
        text = prompt_text(self._codec, messages, mark)
        if not text.startswith(prompt.text):
            return _Prompt(len(messages), text, array("i", encode(self._codec, text, mark).ids))
        added = encode(self._codec, text[len(prompt.text) :], mark).ids
        return _Prompt(len(messages), text, prompt.ids + array("i", added))


def _message(message: Message) -> TraceMessage:
    return TraceMessage(
        message.role, message.content, message.author, train=False, token_ids=message.token_ids
    )


def _turn_ids(codec: Codec, message: TraceMessage) -> list[int]:
    if message.token_ids is not None:
        try:
            return sampled_ids(codec, message)
        except DataError:
            # Ids of another tokenizer: they spell something else here.
            return encode_turn(codec, message.content)
    return encode_turn(codec, message.content)
