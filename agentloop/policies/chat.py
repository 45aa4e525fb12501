"""Any OpenAI-compatible server as a policy: vLLM, OpenRouter, a local one.

One request a turn; the ledger's retries are the only ones. What comes back is read here field by field, so
that a missing field, a contradiction, or an error with status 200, is recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from agentloop.http import PostFailed, open_session, post, read_json
from agentloop.policies.chat_spec import ChatSpec
from agentloop.policies.scripted import WORDS_AND_MARKS, words_and_marks
from agentloop.policies.secret import Secret
from agentloop.policies.tool_text import called, offered_tools, plain_messages, tool_messages
from agentloop.retries import retry_after
from agentloop.types import Answer, Ask, CallFailed, ContextOverflow, Traits, Usage
from occupancy.record.calls import turn_text, with_thought
from occupancy.record.finish import read_finish
from occupancy.record.usage import read_counts, whole

MOST_BYTES, ANSWER_BYTES, TOKEN_BYTES = 32 << 20, 1 << 20, 512
"""Of one answer, of one without text, and of each token that it may have, with its log probability."""
_TOO_LONG = re.compile(
    r"context[_ ](length|window|size)|maximum (context|model|input|prompt)"
    r"|(prompt|input) is too long|too many tokens|exceeds the maximum number of tokens"
    r"|`max_new_tokens` must be <=|`inputs` must have less than",
    re.IGNORECASE,
)
_STATUS = {
    408: ("timeout", "perhaps"),
    409: ("server", "no"),
    425: ("server", "no"),
    429: ("rate_limit", "no"),
}
_NOT_BILLED = (503, 529)
_POST = {
    "refused": ("connection", "no"),
    "broken": ("connection", "perhaps"),
    "timeout": ("timeout", "perhaps"),
    "redirect": ("forbidden", "no"),
    "unreadable": ("unreadable", "perhaps"),
}
"""Kind of a failed request -> kind of the failed call, and whether it may have been billed."""


class ChatPolicy:
    """A model behind a chat-completions server; its connections live in one event loop, until `close`."""

    def __init__(
        self, spec: ChatSpec, *, tools: Sequence[Mapping[str, Any]] = (), stop: Sequence[str] = ()
    ) -> None:
        self._spec, self._secret = spec, Secret(spec.key)
        self._url = f"{spec.base_url.rstrip('/')}/chat/completions"
        self._headers = {"Authorization": f"Bearer {spec.key}"}
        self._tools = [*tools] if spec.tools else []
        self._stop = [*stop] if spec.stop and not self._tools else []
        self._session: Any = None
        gives = {"text", "usage", "reasoning"}
        gives |= {"token_ids"} if spec.token_ids else set()
        gives |= {"logprob"} if spec.logprobs else set()
        self.traits = Traits(
            gives=frozenset(gives),
            most_output=spec.max_tokens,
            more_prompt=len(json.dumps(self._tools)) if self._tools else 0,
            tokenizer=(spec.tokenizer or spec.model) if spec.token_ids else "",
            paid=True,
        )

    async def __call__(self, ask: Ask) -> Answer:
        """One turn, in one request."""
        if self._session is None:
            self._session = open_session("agents")
        try:
            given = await post(
                self._session,
                self._url,
                self._request(ask),
                timeout_s=self._spec.timeout_s,
                most_bytes=min(MOST_BYTES, ANSWER_BYTES + TOKEN_BYTES * self._spec.max_tokens),
                headers=self._headers,
            )
            # The key goes first: a cut through it, or a turn that holds it, would keep most of it.
            told = given.body.decode("utf-8", "replace")
            text = self._secret.hidden(told)
            if not 200 <= given.status < 300:
                wait_s = retry_after(given.retry_after)
                raise _status_failure(given.status, text[:2000], wait_s=wait_s)
            answer = read_answer(read_json(text), self._spec)
        except PostFailed as error:
            kind, billed = _POST[error.kind]
            raise CallFailed(
                self._secret.hidden(str(error)), kind=kind, retry=kind != "forbidden", billed=billed
            ) from None
        except CallFailed as error:
            error.message = self._secret.hidden(error.message)
            error.args = (error.message,)
            raise
        # A key in several parts of a message comes together only in the turn; ids would spell it too.
        said = self._secret.hidden(answer.text)
        same = text == told and said == answer.text
        return replace(answer, text=said, token_ids=answer.token_ids if same else None)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _request(self, ask: Ask) -> dict[str, Any]:
        spec = self._spec
        tools: Sequence[Mapping[str, Any]] = self._tools
        context = ask.context
        if spec.tools and not tools:
            tools, context = offered_tools(ask.context)
        request = {
            "model": spec.model,
            "messages": tool_messages(context) if tools else plain_messages(context),
            spec.limit_name: spec.max_tokens,
            "temperature": spec.temperature,
            "top_p": spec.top_p,
            "seed": ask.seed % 2**31 if spec.seed else None,
            "tools": tools or None,
            "stop": self._stop or None,
            "include_stop_str_in_output": True if self._stop else None,
            "logprobs": True if spec.logprobs else None,
            "return_token_ids": True if spec.token_ids else None,
        }
        return {name: value for name, value in request.items() if value is not None}


def read_answer(given: Any, spec: ChatSpec) -> Answer:
    """The turn in a response; CallFailed where it holds none."""
    if not isinstance(given, dict):
        told = "the response is no JSON object"
        raise CallFailed(told, kind="malformed", retry=True, billed="perhaps")
    usage = read_usage(given.get("usage"), spec.model)
    failed = partial(CallFailed, billed="perhaps", usage=usage)
    if given.get("error"):
        told = f"the server answered with an error: {json.dumps(given['error'])[:500]}"
        raise failed(told, kind="server", retry=True)
    try:
        choice = given["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        calls = [called(call["function"]) for call in message.get("tool_calls") or ()]
        text = turn_text(_said(message, spec.thinking), calls)
        ended_by = choice.get("stop_reason")
        if spec.stop and isinstance(ended_by, str) and not text.endswith(ended_by):
            text += ended_by  # the server names what was sampled and cuts it off all the same
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        told = f"the response has no choice with a message ({type(error).__name__}: {error})"
        raise failed(told, kind="malformed", retry=True) from error
    if finish in ("content_filter", "error"):
        kind = "filtered" if finish == "content_filter" else "server"
        raise failed(f"the server ended the turn with {finish!r}", kind=kind, retry=kind == "server")
    ids = _ids(choice.get("token_ids"))
    if usage is not None and usage.output == 0 and text:
        usage = None  # a text is never free: the zeros are no count
    return Answer(
        text,
        usage or _counted(text, ids),
        read_finish(finish),
        ids,
        _logprob(choice.get("logprobs")),
        _cut_by(finish),
    )


def read_usage(given: Any, model: str) -> Usage | None:
    """Usage as a provider reports it; None where it does not, or where it contradicts itself."""
    counts = read_counts(given)
    if counts is None:
        return None
    return Usage(counts.output, model, counts.reasoning, counts.prompt, counts.cached)


def _cut_by(finish: Any) -> str:
    if finish is None or str(finish).strip() == "":
        return "the server named no finish reason"
    told = read_finish(finish) == "length" and str(finish).strip().lower() != "length"
    return f"the server named {finish}" if told else ""


def _said(message: Mapping[str, Any], thinking: str) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    if not isinstance(content, str):
        raise TypeError(f"its content is a {type(content).__name__}")
    thought = message.get("reasoning_content") or message.get("reasoning")
    return with_thought(thought, content) if thinking == "keep" else content


def _ids(given: Any) -> tuple[int, ...] | None:
    """Sampled ids; None where the server gives none, or what cannot be ids."""
    known = isinstance(given, list) and all(whole(i) is not None for i in given)
    return tuple(given) if known else None


def _counted(text: str, ids: Sequence[int] | None) -> Usage:
    """Our own count, for answers whose provider names no usage."""
    if ids is not None:
        return Usage(len(ids), "local:token_ids", reported=False)
    # The token that ended the turn was generated too, so that not even an empty turn is free.
    return Usage(len(words_and_marks(text)) + 1, f"local:{WORDS_AND_MARKS}", reported=False)


def _logprob(given: Any) -> float | None:
    tokens = given.get("content") if isinstance(given, dict) else None
    if not isinstance(tokens, list):
        return None
    found = [token.get("logprob") if isinstance(token, dict) else None for token in tokens]
    known = [float(x) for x in found if isinstance(x, int | float) and isfinite(x)]
    return sum(known) if len(known) == len(found) else None


def _status_failure(status: int, text: str, *, wait_s: float | None) -> Exception:
    told = f"status {status}: {' '.join(text.split())}"
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return ContextOverflow(told)
    if status in (401, 402, 403, 404):
        return CallFailed(
            f"{told}; check the key, the model's name and the account", kind="forbidden", retry=False
        )
    if status >= 500:
        billed = "no" if status in _NOT_BILLED else "perhaps"
        return CallFailed(told, kind="server", retry=True, billed=billed, wait_s=wait_s)
    kind, billed = _STATUS.get(status, ("refused", "no"))
    return CallFailed(told, kind=kind, retry=status in _STATUS, billed=billed, wait_s=wait_s)
