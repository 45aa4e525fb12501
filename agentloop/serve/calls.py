"""Chat-completions calls of a harness as messages that a run stores, and turns in its format.

Consecutive messages of one role are one message, tool calls and replies are text, and tools are described in
the system message (agentloop.policies.tool_text): what a policy reads is all that a run stores and trains on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from agentloop.policies.tool_text import NEXT_REPLY, call_entry, called, calls_in, with_tools
from agentloop.types import Usage
from occupancy.record.calls import turn_text
from occupancy.record.finish import without_reasoning
from occupancy.record.rows import storable

_FOREIGN: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "tool_choice": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "stop": (None, [], ""),
    "logprobs": (None, False),
}
"""Settings that would change what a turn is -> the values that change nothing."""
_TEXTS = {"text", "input_text", "output_text"}
OWN = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "presence_penalty",
    "top_k",
    "reasoning_effort",
)
"""Settings of sampling: those in the student's and the teacher's names apply, and not a call's."""


class Refused(Exception):
    """A call that gets no turn: the HTTP status, a code for programs and one line for people."""

    def __init__(self, status: int, code: str, why: str) -> None:
        super().__init__(why)
        self.status, self.code = status, code

    def again(self) -> Refused:
        """The same to be raised once more, without the frames of the last time."""
        return Refused(self.status, self.code, str(self))


class Failed(NamedTuple):
    """The harness says that an episode has failed and has no reward."""

    why: str


class Said(NamedTuple):
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool."""
    text: str


@dataclass(frozen=True, slots=True)
class HarnessCall:
    """What one call asks."""

    messages: tuple[Said, ...]
    has_tools: bool
    """Whether the harness offers tools: then calls are returned in their own form."""
    stream: bool = False
    with_usage: bool = True
    """A stream's last part names the tokens."""
    model: str = ""
    sampling: tuple[str, ...] = ()
    """Settings of sampling that it asks for, and that do not apply."""


def task_of(messages: Sequence[Said]) -> str:
    """The name of a task, from the messages before its first turn."""
    text = json.dumps([tuple(said) for said in messages], ensure_ascii=False)
    return f"task-{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def read_call(body: bytes) -> HarnessCall:
    """The call in a request's body; Refused where it is none, or asks what cannot be given."""
    return call_of(parsed(body, "messages", "a list of messages, as for POST /v1/chat/completions", list))


def parsed(body: bytes, name: str, expected: str, *kinds: type) -> dict[str, Any]:
    """The JSON object of a body, in which `name` is of one of the types."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is no JSON ({error})"[:200]) from None
    if not isinstance(given, dict) or not isinstance(given.get(name), kinds):
        raise _bad(f"expected a JSON object in which {name} is {expected}")
    return given


def call_of(given: Mapping[str, Any]) -> HarnessCall:
    """The call of a chat request."""
    for name, usual in _FOREIGN.items():
        if given.get(name) not in usual:
            raise Refused(
                400,
                "not_supported",
                f"{name}={json.dumps(given[name])[:60]}: a turn is what its model answers; leave it out",
            )
    tools = given.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _bad("tools: expected a list of tool descriptions")
    messages = tuple(_read_messages(given["messages"]))
    if not messages or messages[-1].role not in ("user", "tool"):
        raise _bad("the last message: expected a user's message or a tool's reply, which a turn can answer")
    if tools:
        has_system = messages[0].role == "system"
        system = with_tools(messages[0].text if has_system else "", tools)
        messages = (Said("system", storable(system)), *messages[has_system:])
    stream_options = given.get("stream_options")
    return HarnessCall(
        messages,
        bool(tools),
        stream=given.get("stream") is True,
        with_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        model=str(given.get("model") or "")[:200],
        sampling=tuple(name for name in OWN if given.get(name) is not None),
    )


def _bad(why: str) -> Refused:
    return Refused(400, "bad_request", why)


def _read_messages(given: Sequence[Any]) -> Iterator[Said]:
    """The messages; those of the system or the user in a row are one, as some providers want them."""
    open_calls: list[Any] = []
    for role, row in groupby(given, key=_role):
        if role == "tool":
            replies = [
                (_place(open_calls, message.get("tool_call_id")), _text_of(message)) for message in row
            ]
            yield Said("tool", NEXT_REPLY.join(text for _, text in sorted(replies, key=itemgetter(0))))
        elif role == "assistant":
            for message in row:
                calls = message.get("tool_calls") or ()
                try:
                    open_calls = [call.get("id") for call in calls]
                    said = turn_text(_text_of(message), [called(call["function"]) for call in calls])
                except (KeyError, TypeError, AttributeError):
                    raise _bad("tool_calls: expected objects with function: {name, arguments}") from None
                yield Said("assistant", storable(said))
        else:
            yield Said(role, "\n\n".join(map(_text_of, row)))


def _role(message: Any) -> str:
    if not isinstance(message, dict):
        raise _bad("messages: expected objects with role and content")
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise _bad(f"role {str(role)[:40]!r}: expected system, user, assistant or tool")
    return "system" if role == "developer" else str(role)


def _place(calls: Sequence[Any], id_: Any) -> int:
    """Place of the call that a reply answers; one without a call comes after the others."""
    return calls.index(id_) if id_ in calls else len(calls)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return storable(content)
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        kinds = {str(part.get("type")) for part in content}
        if kinds <= _TEXTS and all(isinstance(part.get("text"), str) for part in content):
            return storable("".join(part["text"] for part in content))
        raise Refused(
            400, "not_text", f"content of type {', '.join(sorted(kinds))[:60]}: expected text alone"
        )
    raise _bad("content: expected a text, or a list of parts of type text")


def same_message(ours: Said, theirs: Said) -> bool:
    """Whether a harness repeats a message; it may have written a call's arguments anew, or cut blanks or
    reasoning."""
    both_turns = ours.role == theirs.role == "assistant"
    return ours == theirs or (both_turns and _canonical(ours.text) == _canonical(theirs.text))


def _canonical(text: str) -> tuple[str, list[tuple[str, str]]]:
    said, calls = calls_in(text)
    return without_reasoning(said).strip(), [(name, _arguments(arguments)) for name, arguments in calls]


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def completion(text: str, usage: Usage | None, call: HarnessCall, *, name: str, t: int) -> dict[str, Any]:
    """Turn t, whose text is as a run stores it, as an answer to a call.

    usage   the turn's tokens; None where they are not known
    name    of the answer; the same for the same turn
    t       makes the ids of the turn's calls
    """
    said, calls = calls_in(text) if call.has_tools else (text, [])
    message: dict[str, Any] = {"role": "assistant", "content": said if said or not calls else None}
    if calls:
        message["tool_calls"] = [
            call_entry(f"call_{t}_{i}", tool, arguments) for i, (tool, arguments) in enumerate(calls)
        ]
    prompt, output = (usage.prompt or 0, usage.output) if usage is not None else (0, 0)
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 0,
        "model": call.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if calls else "stop",
            }
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output},
    }


def streamed(whole: Mapping[str, Any], call: HarnessCall) -> bytes:
    """The same answer as server-sent events."""
    choice = whole["choices"][0]
    message, parts = choice["message"], []
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    if message["content"]:
        deltas.append(({"content": message["content"]}, None))
    for index, call_made in enumerate(message.get("tool_calls", ())):
        deltas.append(({"tool_calls": [{"index": index, **call_made}]}, None))
    deltas.append(({}, choice["finish_reason"]))
    for delta, finish in deltas:
        parts.append(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    if call.with_usage:
        parts.append(head | {"choices": [], "usage": whole["usage"]})
    lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
