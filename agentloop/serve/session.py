"""One episode as the harness drives it: its calls are observations, the turns of a policy are the answers.

A conversation only grows. The same call again gets the same turn; a call that leaves the conversation is
refused and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentloop.serve.calls import Failed, HarnessCall, Refused, Said, same_message
from agentloop.types import EnvironmentFailed, Reply, Usage

_SHOWN = 60


class GivenTurn(NamedTuple):
    """A turn as it is given to the harness."""

    t: int
    text: str
    usage: Usage | None
    """None where a turn of a recording is repeated."""


class Session:
    """An episode of the harness, from its first call to its end."""

    def __init__(
        self, key: str, task_id: str, first: HarnessCall, *, replies: Iterable[Reply | Failed] = ()
    ) -> None:
        self.key, self.task_id, self.first = key, task_id, first
        self.also: list[str] = []
        """Keys of later episodes that go on with it."""
        self.over: Refused | None = None
        """What a call gets once the episode has ended."""
        self.seated = False
        """Whether it has a part to play."""
        self.callers: list[Callable[[], bool]] = []
        """Whether the client has gone, of each request that waits for a turn."""
        self.caught_up = asyncio.Event()
        """Everything that was recorded of it has been played again."""
        self._messages = list(first.messages)
        self._turns: dict[int, GivenTurn] = {}
        """By the number of messages before it."""
        self._recorded = deque(replies)
        self._heard: asyncio.Future[Reply | Failed] | None = None
        self._asked: asyncio.Future[GivenTurn | Refused] | None = asyncio.get_running_loop().create_future()
        self._end: Reply | Failed | None = None
        if not self._recorded:
            self.caught_up.set()

    @property
    def in_play(self) -> bool:
        """Whether a policy is at its next turn."""
        return self.seated and self._asked is not None

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for its first turn."""
        return any(not gone() for gone in self.callers)

    def give(self, text: str, usage: Usage | None) -> None:
        """Answer the open call with a turn."""
        turn = GivenTurn(len(self._turns) + 1, text, usage)
        self._turns[len(self._messages)] = turn
        self._messages.append(Said("assistant", text))
        self._answer(turn)

    async def heard(self, *, idle_s: float) -> Reply:
        """The harness's next observation, or its reward; EnvironmentFailed where it falls silent."""
        if self._recorded:
            reply = self._recorded.popleft()
            self._take(reply)
            if not self._recorded:
                self.caught_up.set()
            return _whole(reply)
        if self._end is not None:
            return _whole(self._end)
        self._heard = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(idle_s):
                return _whole(await self._heard)
        except TimeoutError:
            why = f"the harness neither made a call nor gave a reward for {idle_s:g} s"
            raise EnvironmentFailed(why) from None
        finally:
            self._heard = None

    def find(self, call: HarnessCall) -> GivenTurn | asyncio.Future[GivenTurn | Refused] | Reply:
        """What a call is: one that was answered, one that is being answered, or the next observation.

        Refused where it leaves the conversation.
        """
        if self.over is not None:
            raise self.over.again()
        ours, theirs = self._messages, call.messages
        pairs = enumerate(zip(ours, theirs, strict=False))
        same = next((i for i, (a, b) in pairs if not same_message(a, b)), min(len(ours), len(theirs)))
        if same == len(theirs):
            if same == len(ours) and self._asked is not None:
                return self._asked
            if same in self._turns:
                return self._turns[same]
        if self._asked is not None and same >= len(ours) - 1:
            raise self._refused(
                "parallel_calls",
                "has another call that is not answered yet: expected one call at a time in an episode",
            )
        if same < len(ours):
            raise self._left(same, theirs)
        new = theirs[same:]
        if len(new) != 1 or new[0].role not in ("user", "tool"):
            raise self._refused(
                "foreign_turn",
                f"was continued by {', '.join(said.role for said in new)}: expected the reply to its last "
                f"turn alone, a user's message or tools' replies",
            )
        return Reply(new[0].text, role=new[0].role)

    def hear(self, reply: Reply | Failed) -> asyncio.Future[GivenTurn | Refused] | None:
        """Take an observation, and return what its turn will be; or what ends the episode."""
        if self._heard is None or self._heard.done():
            self._end = reply
            return None
        self._take(reply)
        self._heard.set_result(reply)
        return self._asked

    def end(self, over: Refused) -> None:
        """No turn follows; an open call is told so."""
        self.over = self.over or over
        self._answer(over)
        self.caught_up.set()

    def _take(self, reply: Reply | Failed) -> None:
        if isinstance(reply, Reply) and not reply.done:
            self._messages.append(Said(reply.role, reply.observation))
            self._asked = asyncio.get_running_loop().create_future()

    def _answer(self, given: GivenTurn | Refused) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(given)

    def _left(self, at: int, theirs: tuple[Said, ...]) -> Refused:
        first = next((i for i, said in enumerate(self._messages) if said.role == "assistant"), at + 1)
        if at >= len(theirs):
            return self._refused(
                "rewritten_history",
                f"came with {len(theirs)} of its {len(self._messages)} messages {_ONLY_GROWS}",
            )
        apart = f"{_cut(self._messages[at].text)!r} was said and {_cut(theirs[at].text)!r} came"
        if at < first:
            return self._refused(
                "other_conversation",
                f"began otherwise: in message {at + 1} {apart}; a sub-agent, or a second harness with the "
                f"same key, needs a key of its own",
            )
        return self._refused("rewritten_history", f"was rewritten: in message {at + 1} {apart} {_ONLY_GROWS}")

    def _refused(self, code: str, why: str) -> Refused:
        return Refused(400, code, f"episode {self.key} {why}")


def _whole(reply: Reply | Failed) -> Reply:
    if isinstance(reply, Failed):
        raise EnvironmentFailed(f"the harness says: {reply.why}")
    return reply


_ONLY_GROWS = "(compaction, and edits of what was said, are not supported: a conversation only grows)"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
