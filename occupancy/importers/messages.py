"""Lists of messages as turns: what all formats with roles have in common.

Every assistant message is a turn; the messages until the next one are the reply to it. Text parts are joined
without a newline. Tool calls become part of the text (`occupancy.record.calls`), and so does reasoning beside
it. What cannot be kept (an image, audio) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from occupancy.importers.episodes import ImportedTurn, ImportSettings, author_of
from occupancy.importers.files import Place, first_of, json_text, lines, listed, mapping, parse
from occupancy.importers.speakers import with_roles
from occupancy.record.calls import turn_text, with_thought
from occupancy.record.finish import read_finish
from occupancy.record.usage import counts_of

_TEXT = ("text", "input_text", "output_text", "summary_text")
_IDS = {
    *("id", "name", "tool_call_id", "call_id", "type", "object", "function"),
    *("phase", "source", "index", "status"),
}
"""Fields of a message that only tie it to others."""
_MASKS = ("weight", "loss", "loss_weight", "loss_mask", "loss_scale", "train", "trainable", "train_on_turn")
"""Fields that leave a turn out of training with 0 or false."""
_KEPT = {
    *_MASKS,
    *("role", "content", "author", "model", "tool_calls", "function_call", "refusal"),
    *("reasoning_content", "reasoning", "thinking", "usage", "finish_reason", "stop_reason", "error"),
}
MEDIA = ("audio", "audios", "images", "videos", "image", "video")
"""Fields of what cannot be imported."""
_ELSEWHERE = ("text", "parts", "value", "data", "function_calls")
"""Where other formats have a message's text or calls: Vercel's, SWE-agent's, LangChain's, OLMo's."""

_REASONING = (
    *("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
    *("reasoning_output_tokens", "reasoning_tokens"),
)
_CACHED = (
    *("cached_tokens", "cached_input_tokens", "input_tokens_cache_read"),
    *("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"),
)
"""Where providers have the parts of a usage."""

Prompt = tuple[tuple[str, str], ...]


def read_messages(
    messages: Any, settings: ImportSettings, place: Place, *, model: str = "", prompt: Prompt = ()
) -> tuple[Prompt, tuple[ImportedTurn, ...]]:
    """Prompt and turns of a list of messages {role, content, ..}, or of its JSON text.

    `model` is that of turns that name none, and `prompt` what comes before the list. DataError where a
    message cannot be kept as it is.
    """
    if isinstance(messages, str) and messages.lstrip().startswith("["):
        messages = parse(messages, place)
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise place.refuse("no messages: expected a list of {role, content}")
    before, turns = list(prompt), list[ImportedTurn]()
    for message, here in with_roles(messages, place):
        tools = [message.pop(name, None) for name in ("tools", "functions") if message["role"] == "system"]
        count_left_out(message, settings, here)
        if message["role"] == "assistant":
            turns.append(_turn(message, model, settings, here))
            continue
        said = content_text(message.get("content"), settings, here)
        text = lines(said, _error(message.get("error")))
        results = any(mapping(part).get("type") == "tool_result" for part in listed(message.get("content")))
        role = "tool" if message["role"] == "user" and results else message["role"]
        if turns:
            turns[-1] = replied(turns[-1], text, role)
        else:
            before = [*before, *with_tools(((role, text),), next(filter(None, tools), None), here)]
    if not turns:
        raise place.refuse("no assistant message: an episode has a turn at least")
    return tuple(before), tuple(turns)


def said_in(record: Mapping[str, Any], name: str, role: str, place: Place) -> list[Any]:
    """The messages in a field of a record; a text is one message of the role."""
    value = record.get(name)
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        value = parse(value, place)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise place.refuse(f"{name} is a {type(value).__name__}: expected messages or text")
    return value


def replied(turn: ImportedTurn, text: str, role: str = "user") -> ImportedTurn:
    """The turn with one more message of the reply; messages of several roles are a user's."""
    if not turn.observation:
        return replace(turn, observation=text, role=role)
    said = lines(turn.observation, text)
    return replace(turn, observation=said, role=role if role == turn.role else "user")


def content_text(content: Any, settings: ImportSettings, place: Place) -> str:
    """Text of a message's content: a string, or a list of parts; an image or another medium is refused."""
    text, calls, thought = _parts(content, settings, place)
    return turn_text(with_thought(thought, text), calls)


def raw_arguments(given: Any, place: Place) -> str:
    """The arguments of a tool call as text: as they are where they are text, else as JSON."""
    if given is None or isinstance(given, str):
        return given or ""
    try:
        return json_text(given)
    except RecursionError as error:
        raise place.refuse("arguments of a tool call are nested too deeply") from error


def calls_of(calls: Any, place: Place) -> list[tuple[str, str]]:
    """(name, raw arguments) of tool calls in the form of OpenAI, Inspect or ATIF."""
    if isinstance(calls, str):
        calls = parse(calls, place)
    found = []
    for given_call in calls if isinstance(calls, Iterable) else ():
        call = parse(given_call, place) if isinstance(given_call, str) else given_call
        if not isinstance(call, Mapping):
            raise place.refuse(f"tool call {call!r}: expected an object")
        inner = call.get("function") or call.get("custom") or call
        held = call if isinstance(inner, str) else mapping(inner)
        name = inner if isinstance(inner, str) else held.get("name") or held.get("function_name")
        given = first_of(held, "arguments", "input")
        if not isinstance(name, str) or not name:
            raise place.refuse(f"a tool call has the name {name!r}: expected text")
        if call.get("custom"):
            given = json_text(given)  # the free text of a custom tool
        found.append((name, raw_arguments(given, place)))
    return found


def usage_of(usage: Any, text: str) -> dict[str, Any]:
    """Token counts of a turn's usage, in the words of any provider, as fields of an ImportedTurn.

    Empty where the usage says nothing, contradicts itself, or has no tokens for a text that is there.
    """
    given = mapping(usage)
    prompt, read = first_of(given, "prompt_tokens", "input_tokens"), given.get("cache_read_input_tokens")
    created = given.get("cache_creation_input_tokens")
    if read is not None or created is not None:  # Anthropic counts what is cached beside the input
        parts = [part for part in (prompt, read, created) if part is not None]
        prompt = sum(parts) if all(isinstance(part, int | float) for part in parts) else None
    counts = counts_of(
        first_of(given, "completion_tokens", "output_tokens"),
        prompt=prompt,
        total=given.get("total_tokens") if read is None and created is None else None,
        reasoning=first_of(given, *_REASONING),
        cached=first_of(given, *_CACHED) if read is None else read,
    )
    if counts is None or (counts.output == 0 and text):
        return {}
    return {f"{name}_tokens": count for name, count in counts._asdict().items()}


def choice_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice of a response of OpenAI's interface; empty where there is none."""
    return mapping(next(iter(listed(response.get("choices"))), None))


def finish_of(record: Mapping[str, Any]) -> str:
    """How a turn ended, in the words of runs; `stop` where its record does not say."""
    reason = record.get("finish_reason") or record.get("stop_reason")
    return "stop" if reason is None else read_finish(reason)


def with_tools(prompt: Prompt, tools: Any, place: Place) -> Prompt:
    """Prompt messages that begin with the tools, a JSON line each, at the end of the system's message."""
    if isinstance(tools, str) and tools.strip():
        tools = parse(tools, place)
    if not tools:
        return prompt
    if not isinstance(tools, Sequence):
        raise place.refuse(f"tools are a {type(tools).__name__}: expected a list")
    block = lines("<tools>", *map(json_text, tools), "</tools>")
    if prompt and prompt[0][0] == "system":
        (role, text), *rest = prompt
        return ((role, "\n\n".join(filter(None, (text, block)))), *rest)
    return (("system", block), *prompt)


def count_left_out(message: Mapping[str, Any], settings: ImportSettings, place: Place) -> None:
    """Refuse what is said elsewhere than in a message's content, and count fields without a place."""
    for name, value in message.items():
        if value is None or value == [] or name in _KEPT or name in _IDS:
            continue
        if name in MEDIA:
            raise place.refuse(f"{name}: only text can be imported")
        if name in _ELSEWHERE and not message.get("content"):
            raise place.refuse(f"what is said is in {name!r}: expected it in 'content' and 'tool_calls'")
        settings.left_out[f"message field {name!r}"] += 1


def _turn(message: Mapping[str, Any], model: str, settings: ImportSettings, place: Place) -> ImportedTurn:
    name = str(message.get("model") or model)
    text, calls, thought = _parts(message.get("content"), settings, place)
    beside = message.get("reasoning_content") or message.get("reasoning") or message.get("thinking")
    if beside and not thought and settings.thinking == "keep":
        if isinstance(beside, Mapping):
            beside = beside.get("content") or beside.get("text")
        thought = content_text(beside, settings, place)
    if message.get("refusal"):
        text = lines(text, content_text(message["refusal"], settings, place))
    calls += calls_of(message.get("tool_calls"), place)
    if message.get("function_call"):
        calls += calls_of([message["function_call"]], place)
    said = turn_text(with_thought(thought, text), calls)
    return ImportedTurn(
        author_of(message.get("author"), name, settings, place),
        said,
        "",
        model=name,
        finish_reason=finish_of(message),
        train=_trained(message, place),
        **usage_of(message.get("usage"), said),
    )


def _trained(message: Mapping[str, Any], place: Place) -> bool:
    for name in _MASKS:
        value = message.get(name)
        if value is not None:
            if value not in (0, 1):
                raise place.refuse(f"{name} is {value!r}: expected 0 or 1; other weights cannot be kept")
            return bool(value)
    return True


def _parts(content: Any, settings: ImportSettings, place: Place) -> tuple[str, list[tuple[str, str]], str]:
    """Text, tool calls and reasoning of a message's content."""
    if content is None or isinstance(content, str):
        return content or "", [], ""
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Iterable) or isinstance(content, bytes):
        raise place.refuse(f"content is a {type(content).__name__}: expected text or a list of text parts")
    texts: list[str] = []
    calls: list[tuple[str, str]] = []
    thoughts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        said = _part_text(part, kind)
        if said is not None:
            texts.append(said)
        elif kind == "tool_call":  # of LLaMA-Factory v1
            calls += calls_of([part.get("value")], place)
        elif kind == "tool_use":
            calls += calls_of([{"name": part.get("name"), "arguments": part.get("input")}], place)
        elif kind == "tool_result":
            separator = "\n" if texts else ""
            texts.append(separator + content_text(part.get("content"), settings, place))
        elif kind in ("thinking", "reasoning"):
            held = (part.get(name) for name in ("thinking", "reasoning", "text", "value"))
            thoughts.append(str(next(filter(None, held), "")))
        elif kind == "redacted_thinking":
            settings.left_out["redacted thinking"] += 1
        else:
            raise place.refuse(f"content part of type {kind!r}: only text can be imported")
    return "".join(texts), calls, lines(*thoughts) if settings.thinking == "keep" else ""


def _part_text(part: Any, kind: str | None) -> str | None:
    """The text of a part that is text, or a refusal; None for other parts."""
    if isinstance(part, str):
        return part
    names = ("text", "value") if kind in _TEXT else ("refusal",) if kind == "refusal" else ()
    return next((part[name] for name in names if isinstance(part.get(name), str)), None)


def _error(error: Any) -> str:
    """What a failed tool call told the model: the message alone, as the tool's reply holds no other text."""
    if not error:
        return ""
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)
