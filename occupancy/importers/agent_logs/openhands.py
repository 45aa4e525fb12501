"""OpenHands: events of version 0 and 1 (a list, or `history` of output.jsonl), and logged completions.

Turns are what the model wrote: the response that an action's `tool_call_metadata` or a completion has. An
action without one is refused, since the events alone do not have the model's words, and so is a condensation,
after which contexts are others.
"""

# ruff: noqa: PLR0917 - private functions that share an event
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of
from occupancy.importers.files import Place, field_of, first_of, json_records, listed, mapping, without
from occupancy.importers.messages import choice_of, content_text
from occupancy.importers.records import episode_of

Message = dict[str, Any]
_NOT_SAID = "provider_specific_fields"
_SILENT = (
    *("agent_state_changed", "change_agent_state", "null"),
    *("recall", "think_observation", "user_rejected"),
)


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is `instance_id`, else the file's name."""
    events: list[Any] = []
    name = file.name.partition(".")[0]
    for record, place in json_records(file, settings.progress):
        if isinstance(record, Mapping) and isinstance(record.get("history"), list):
            yield _evaluated(record, settings, place)
        elif isinstance(record, Mapping) and isinstance(record.get("response"), Mapping):
            yield _completion(record, name, settings, place, file)
        else:
            events.append(record)
    if events:
        whole = Place(file)
        messages, tools = _messages(events, settings, whole)
        yield episode_of({"tools": tools}, messages, settings, whole, task_id=name, R=None)


def _evaluated(record: Mapping[str, Any], settings: ImportSettings, place: Place) -> ImportedEpisode:
    messages, tools = _messages(record["history"], settings, place)
    R = reward_of(record, settings, place, "test_result.report.resolved")
    error = " ".join(str(record.get("error") or "").split())
    model = str(first_of(record, "metadata.llm_config.model", "metadata.llm.model") or "")
    return episode_of(
        {"tools": tools, "model": model},
        messages,
        settings,
        place,
        task_id=str(record.get("instance_id")),
        R=None if error else R,
        status="environment_error" if error else "finished",
        error=error,
    )


def _completion(
    record: Mapping[str, Any], name: str, settings: ImportSettings, place: Place, file: Path
) -> ImportedEpisode:
    """The conversation up to a completion: the last one of its folder has all of it."""
    last = max(other.name for other in file.parent.glob(f"*{file.suffix}"))
    if last != file.name:
        raise place.refuse(f"a conversation has a completion for each turn: give the last alone, {last}")
    if not isinstance(record.get("messages"), list):
        raise place.refuse("no list under 'messages': expected the messages before the response")
    said = [*record["messages"], _said(record["response"])]
    messages = [without(m, _NOT_SAID) if isinstance(m, Mapping) else m for m in said]
    facts = {"tools": field_of(record, "kwargs.tools"), "model": record["response"].get("model")}
    return episode_of(facts, messages, settings, place, task_id=file.parent.name or name, R=None)


def _said(response: Mapping[str, Any]) -> Message:
    """The message of a model's response."""
    choice = choice_of(response)
    said = without(mapping(choice.get("message")), _NOT_SAID) | {"role": "assistant"}
    told = {"model": response.get("model"), "usage": response.get("usage")}
    return said | told | {"finish_reason": choice.get("finish_reason")}


def _messages(events: Sequence[Any], settings: ImportSettings, place: Place) -> tuple[list[Message], Any]:
    messages: list[Message] = []
    tools: Any = None
    responses: set[str] = set()
    # Early versions stored pairs of an action and its observation.
    flat = [e for event in events for e in (event if isinstance(event, list) else [event])]
    for number, event in enumerate(flat, start=1):
        here = place.within(f"event {number}")
        if not isinstance(event, Mapping):
            raise here.refuse(f"a {type(event).__name__}: expected an event")
        kind = str(event.get("kind") or event.get("observation") or event.get("action") or "")
        if "ondensation" in kind:
            raise here.refuse("a condensation: later turns had another context; give the completions")
        if kind == "SystemPromptEvent":
            tools = event.get("tools") or tools
            messages.append({"role": "system", "content": event.get("system_prompt")})
        elif kind == "system":
            tools = field_of(event, "args.tools") or tools
            messages.append({"role": "system", "content": field_of(event, "args.content")})
        elif event.get("kind"):
            _add_v1(messages, event, kind, responses, settings, here)
        elif kind in _SILENT or not kind:
            settings.left_out[f"event {kind or 'without a kind'!r}"] += 1
        elif "observation" in event:
            messages.append({"role": "tool", "content": event.get("content")})
        else:
            _add_v0(messages, event, kind, responses, here)
    return messages, tools


def _add_v0(
    messages: list[Message], event: Mapping[str, Any], kind: str, responses: set[str], here: Place
) -> None:
    response = field_of(event, "tool_call_metadata.model_response")
    if event.get("source") != "agent":
        messages.append({"role": "user", "content": field_of(event, "args.content")})
    elif isinstance(response, Mapping):
        if str(response.get("id")) in responses:
            return
        responses.add(str(response.get("id")))
        messages.append(_said(response))
    elif kind == "message":
        messages.append({"role": "assistant", "content": field_of(event, "args.content")})
    else:
        raise here.refuse(
            f"action {kind!r} without tool_call_metadata: what the model wrote is not in it; give the "
            f"completions"
        )


def _add_v1(
    messages: list[Message],
    event: Mapping[str, Any],
    kind: str,
    responses: set[str],
    settings: ImportSettings,
    here: Place,
) -> None:
    if kind == "MessageEvent":
        said = mapping(event.get("llm_message"))
        known = ("role", "content", "reasoning_content", "tool_calls")
        messages.append({k: said[k] for k in known if said.get(k) is not None})
    elif kind == "ActionEvent":
        call = mapping(event.get("tool_call"))
        name = str(event.get("llm_response_id"))
        if name not in responses or messages[-1].get("role") != "assistant":
            responses.add(name)
            said = {"content": event.get("thought"), "reasoning_content": event.get("reasoning_content")}
            messages.append({"role": "assistant", **said, "tool_calls": []})
        messages[-1]["tool_calls"] = [*listed(messages[-1].get("tool_calls")), call]
    elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
        held = mapping(event.get("observation")) or event
        text = first_of(held, "content", "output", "text", "error")
        messages.append({"role": "tool", "content": content_text(text, settings, here)})
    else:
        settings.left_out[f"event {kind!r}"] += 1
