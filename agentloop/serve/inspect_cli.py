"""inspect_ai's own command line with `fewsteps serve` as a model: every sample is an episode.

    FEWSTEPS_URL=http://127.0.0.1:8333 python -m agentloop.serve.inspect_cli eval TASK.py --model fewsteps/run

It runs in inspect_ai's environment and imports nothing of ours. An episode's key is the sample's uuid, its
task the name of inspect's task and the sample's id; its reward is the sample's first score, or the one that
FEWSTEPS_SCORE names. Where the run needs no further turn, the sample ends at a limit and is scored.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from typing import Any

from inspect_ai.hooks import Hooks, SampleEnd, hooks
from inspect_ai.log._samples import sample_active
from inspect_ai.model import GenerateConfig, ModelAPI, modelapi
from inspect_ai.model._providers.openai_compatible import OpenAICompatibleAPI
from inspect_ai.scorer import value_to_float
from inspect_ai.util import LimitExceededError
from openai import APIStatusError

URL = os.environ.get("FEWSTEPS_URL", "http://127.0.0.1:8333")
KEY = os.environ.get("FEWSTEPS_KEY", "none")
"""The access key of `fewsteps serve --key-env`."""


class Served(OpenAICompatibleAPI):
    """The server as a model."""

    def __init__(self, model_name: str, base_url: str | None = None, **given: Any) -> None:
        given = {name: value for name, value in given.items() if name != "api_key"}
        super().__init__(
            model_name, base_url=f"{base_url or URL}/v1", api_key=KEY, service="fewsteps", **given
        )

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: GenerateConfig) -> Any:
        """A turn; a limit where the run needs none."""
        headers = (config.extra_headers or {}) | _episode()
        config = config.model_copy(update={"extra_headers": headers})
        try:
            return await super().generate(input, tools, tool_choice, config)
        except APIStatusError as error:
            if error.status_code != 410:
                raise
            raise LimitExceededError("custom", value=1, limit=1, message=str(error.message)) from error


def _episode() -> dict[str, str]:
    """Headers that name the episode and its task."""
    sample = sample_active()
    if sample is None:
        raise RuntimeError("fewsteps answers calls of a sample alone")
    task = "".join(c if c.isalnum() and c.isascii() else "-" for c in f"{sample.task}/{sample.sample.id}")
    return {"X-Session-ID": sample.sample_uuid, "X-Task-ID": task[:200]}


@modelapi("fewsteps")
def fewsteps() -> type[ModelAPI]:
    """The model `fewsteps/NAME`."""
    return Served


@hooks("fewsteps", "gives each sample's score to fewsteps serve")
class Scores(Hooks):
    """Every sample's score is its episode's reward."""

    async def on_sample_end(self, data: SampleEnd) -> None:
        """Give the reward, or why there is none."""
        end = end_of(data.sample)
        await asyncio.to_thread(_post, f"{URL}/episodes/{data.sample.uuid}/reward", end)


def end_of(sample: Any) -> dict[str, Any]:
    """The body of POST /episodes/KEY/reward for a sample."""
    scores = sample.scores or {}
    name = os.environ.get("FEWSTEPS_SCORE") or next(iter(scores), "")
    if sample.error is not None or name not in scores:
        return {"error": sample.error.message if sample.error is not None else f"no score {name!r}"}
    return {"reward": float(value_to_float()(scores[name].value))}


def _post(url: str, body: dict[str, Any]) -> None:
    sent = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(sent, timeout=60) as response:
        response.read()


if __name__ == "__main__":
    from inspect_ai._cli.main import main

    main()
