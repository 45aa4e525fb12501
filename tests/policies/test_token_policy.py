"""Models in this process: prompts keep sampled ids, and training sees the contexts that were sampled from."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from families import FAMILIES, codec
from toy_runs import rows, run_of
from toy_world import expert

from agentloop.policies.token_policy import (
    Sampled,
    TokenPolicy,
    TokenSpec,
    parse_tokens,
    read_sampled,
    stop_ids,
)
from agentloop.render import Codec, read_messages, render_trace
from agentloop.render.codec import decode, encode, encode_turn
from agentloop.types import Ask, ContextOverflow, Message
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset


class Fake:
    """An engine that writes the corridor's turns, in ids that an encoder would not choose."""

    def __init__(self, codec: Codec, *, window: int = 10_000) -> None:
        self.codec, self.window = codec, window
        self.prompts: list[list[int]] = []

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        self.prompts.append(prompt)
        last = decode(self.codec, prompt).rpartition("You are")[2]
        right = "climb" if "ditch" in last else "forward"
        text = right if random.Random(seed).random() < 0.7 else "stumble"
        return Sampled((*odd_ids(self.codec, text), self.codec.closing_ids[-1]), -1.5)

    async def close(self) -> None:
        self.window = 0


def odd_ids(codec: Codec, text: str) -> list[int]:
    """One id a character: spells the text, and is not how it would be encoded."""
    return [i for character in text for i in encode_turn(codec, character)]


def policy(family: str, **spec: Any) -> tuple[TokenPolicy, Fake]:
    engine = Fake(codec(family))

    async def opening(given: TokenSpec, _: Codec) -> Fake:
        return engine

    return TokenPolicy(TokenSpec(family, **spec), codec(family), opening), engine


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_training_rows_are_the_sampled_prompts_and_ids(tmp_path: Path, family: str) -> None:
    student, engine = policy(family)
    recipe = preset("op-short", K=2, n=1, T_max=12)
    run = run_of(tmp_path / "run", recipe, student=student, teacher=expert, tasks="5")
    sampled_in = {tuple(prompt) for prompt in engine.prompts}
    student_turns = 0
    for trace in rows(run, "traces"):
        messages = read_messages(trace["messages"])
        assert all((m.token_ids is not None) == (m.author == "student") for m in messages)
        for row in render_trace(codec(family), messages).rows:
            starts = {s.message: s for s in reversed(row.spans) if s.author == "student"}
            for i, span in starts.items():
                assert tuple(row.ids[: span.start].tolist()) in sampled_in
                assert row.ids[span.start : span.stop].tolist() == odd_ids(codec(family), messages[i].content)
            student_turns += len(starts)
    # A template that rewrites history starts a row at every teacher turn, where no student turn need be kept.
    assert student_turns or family == "thinking"


def test_what_does_not_fit_is_refused_before_it_is_sampled() -> None:
    tight, engine = policy("chatml", max_tokens=64)
    engine.window = 80
    env: Any = None
    ask = Ask((Message("user", "word " * 40, "task"),), 1, 0, env)
    with pytest.raises(ContextOverflow, match="64 of a turn do not fit 80"):
        asyncio.run(tight(ask))
    assert not engine.prompts
    engine.window = 10_000
    asyncio.run(tight(ask))
    fits = len(engine.prompts.pop()) + 64
    for engine.window, sampled in ((fits - 1, 0), (fits, 1)):
        with contextlib.suppress(ContextOverflow):
            asyncio.run(tight(ask))
        assert len(engine.prompts) == sampled, "the turn's own tokens are part of the check"


def test_a_turn_without_a_closing_token_was_cut() -> None:
    own = codec("chatml")
    ids = tuple(encode_turn(own, "go to"))
    cut = read_sampled(Sampled(ids, None), own, prompt=3, counter="m")
    assert (cut.finish_reason, cut.text, cut.usage.output) == ("length", "go to", len(ids))
    closed = read_sampled(Sampled((*ids, own.closing_ids[-1]), -2.0), own, prompt=3, counter="m")
    assert (closed.finish_reason, closed.text, closed.usage.output) == ("stop", "go to", len(ids) + 1)
    assert own.closing_ids[-1] in stop_ids(own)
    assert encode(own, "go to", "\ufdd0").ids == list(ids)


@pytest.mark.parametrize(
    "text", ["m,speed=1", "m,max_tokens=0", "m,top_p=0", "m,temperature=x", "m,window=1,window=2"]
)
def test_a_spec_that_cannot_be_used_says_why(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        parse_tokens(text)


def test_who_gives_up_waiting_for_the_model_gives_up_alone() -> None:
    loaded: list[Fake] = []

    async def opening(given: TokenSpec, of: Codec) -> Fake:
        await asyncio.sleep(0.05)
        loaded.append(Fake(of))
        return loaded[0]

    async def main() -> None:
        student = TokenPolicy(TokenSpec("chatml"), codec("chatml"), opening)

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await student.load()

        _, engine = await asyncio.gather(impatient(), student.load())
        assert engine is await student.load()
        await student.close()

    asyncio.run(main())
    assert [engine.window for engine in loaded] == [0]
