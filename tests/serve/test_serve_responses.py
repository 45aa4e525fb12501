"""The Responses interface, called by OpenAI's own client: the same turns, in its own form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
openai = pytest.importorskip("openai")

from corridor_harness import ENDED, FIRST, RECIPE, Client, Reader, during, setup_of
from toy_runs import attempts, rows

from agentloop.types import Ask
from occupancy.record.calls import turn_text
from occupancy.runs import open_run

WALK = {"type": "function", "name": "walk", "parameters": {"type": "object"}, "strict": None}
CALLS = [("walk", '{"b":1, "a": "é"}'), ("walk", '{"b":2}')]


class Caller(Reader):
    """Says something and calls a tool twice, then says that it is done."""

    contexts: list[list[tuple[str, str]]]

    async def __call__(self, ask: Ask) -> Any:
        self.contexts = [*getattr(self, "contexts", []), [(m.role, m.content) for m in ask.context]]
        answer = await super().__call__(ask)
        return type(answer)(turn_text("On we go.", CALLS) if ask.t == 1 else "Done.", answer.usage)


def calling(folder: Path, act: Callable[[Any, Client], Awaitable[Any]], student: Any) -> Any:
    """What `act` returns, given OpenAI's client for one episode."""

    async def run(harness: Client) -> Any:
        address = f"{harness.address}/episodes/e/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
            return await act(client.responses, harness)

    return during(folder, run, setup=setup_of(RECIPE, student=student))


def test_a_conversation_and_its_repetitions_are_charged_once(tmp_path: Path) -> None:
    student = Reader()

    async def act(responses: Any, harness: Client) -> Any:
        begun = {"model": "m", "instructions": FIRST[0]["content"], "input": FIRST[1]["content"]}
        first = await responses.create(**begun)
        assert (first.output_text, first.status, first.model) == ("forward", "completed", "m")
        assert (first.usage.input_tokens, first.usage.output_tokens) == (5, 7)
        grown = [*FIRST, *[item.model_dump() for item in first.output], ENDED]
        second = {"model": "m", "input": grown, "include": ["reasoning.encrypted_content"], "store": False}
        repeated = await asyncio.gather(*(responses.create(**second) for _ in range(3)))
        assert {r.id for r in repeated} == {repeated[0].id} != {first.id}
        assert (await responses.create(**begun)).id == first.id
        # One conversation, whichever interface continues it.
        assert (
            await harness.chat("e", [*FIRST, {"role": "assistant", "content": "forward"}, ENDED]) == "forward"
        )
        await harness.reward("e", 1.0)

    calling(tmp_path, act, student)
    assert student.calls == 2
    assert len(attempts(open_run(tmp_path))) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_go_there_and_back(tmp_path: Path, stream: bool) -> None:
    student = Caller()
    seen: list[Any] = []

    async def turn(responses: Any, given: list[Any]) -> Any:
        body = {"model": "m", "input": given, "tools": [WALK]}
        if not stream:
            return await responses.create(**body)
        async with responses.stream(**body) as events:
            seen.extend([event async for event in events])
            return await events.get_final_response()

    async def act(responses: Any, harness: Client) -> None:
        first = await turn(responses, FIRST)
        said, *called = first.output
        assert said.content[0].text == "On we go."
        assert [(call.name, json.loads(call.arguments)) for call in called] == [
            (name, json.loads(arguments)) for name, arguments in CALLS
        ]
        replies = [
            {"type": "function_call_output", "call_id": call.call_id, "output": output}
            for call, output in zip(
                reversed(called), ("second", [{"type": "input_text", "text": "first"}]), strict=True
            )
        ]
        again = [item.model_dump(exclude={"parsed_arguments"}) for item in first.output]
        assert (await turn(responses, [*FIRST, *again, *replies])).output_text == "Done."

    calling(tmp_path, act, student)
    assert '"name": "walk"' in student.contexts[0][0][1]
    assert student.contexts[1][-1] == ("tool", "first\n</tool_response>\n<tool_response>\nsecond")
    if stream:
        kinds = [event.type for event in seen]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds.count("response.output_item.done") == 4
        assert kinds.count("response.completed") == 2
        text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
        assert text == "On we go.Done."
        numbers = [event.sequence_number for event in seen]
        end = kinds.index("response.completed")
        assert numbers[: end + 1] == list(range(end + 1))


def test_what_needs_a_memory_or_a_tool_of_the_server_is_refused_by_name(tmp_path: Path) -> None:
    student = Reader()
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}
    called = {"type": "custom_tool_call", "name": "x", "call_id": "c", "input": "y"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "'web_search'"),
        ({"tools": [WALK, {"type": "custom", "name": "apply_patch"}]}, "'custom'"),
        ({"tools": ["walk"]}, "a tool of type None"),
        ({"tools": "walk"}, "tools"),
        ({"tools": [WALK], "tool_choice": {"type": "function", "name": "walk"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "response_format"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input item 1 of type 'item_reference'"),
        ({"input": [*FIRST, called]}, "input item 3 of type 'custom_tool_call'"),
        ({"input": [image]}, "input_image"),
        ({"input": [*FIRST, {**image, "role": "assistant"}]}, "item 3"),
        ({"input": [*FIRST, {"type": "function_call_output", "output": {}}]}, "expected a text"),
        ({"input": ["x"]}, "role 'None'"),
        ({"input": []}, "last message"),
        ({"input": None}, "input is a text or a list"),
    ]

    async def act(responses: Any, harness: Client) -> None:
        for more, why in refused:
            body = {"model": "m", "input": FIRST, **more}
            status, got = await harness.post("/v1/responses", body, **{"X-Session-ID": "e"})
            assert status == 400, more
            assert why in got["error"]["message"], got
            assert "\n" not in got["error"]["message"]
        with pytest.raises(openai.BadRequestError, match="nothing is kept between calls"):
            await responses.create(model="m", input="x", previous_response_id="resp_1")
        with pytest.raises(openai.NotFoundError, match="expected POST"):
            await responses.retrieve("resp_1")
        assert (await harness.get("/status"))[1]["tasks"] == 0

    calling(tmp_path, act, student)
    assert student.calls == 0
    assert not rows(open_run(tmp_path), "episodes")
