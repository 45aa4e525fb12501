"""The turns of a recorded run as a policy: the same run again without a model, and without its price.

An episode is found by its id, so tasks, seeds and recipe must be the recorded run's own (a smaller K or fewer
tasks ask for fewer turns). A context that differs from the recorded one is refused, never answered.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from agentloop.ledger.store import Ledger, read_answer
from agentloop.types import Answer, Ask, Policy, PolicyFailed, Traits, Usage
from occupancy.record.errors import DataError
from occupancy.runs import open_run


class Recorded:
    """Answers from a run folder; it holds the run's texts in memory."""

    def __init__(self, turns: dict[tuple[str, int], tuple[str, Answer]]) -> None:
        self._turns = turns
        most = max((answer.usage.output for _, answer in turns.values()), default=0)
        self.traits = Traits(gives=frozenset({"text", "usage", "reasoning", "logprob"}), most_output=most)

    async def __call__(self, ask: Ask) -> Answer:
        """The recorded turn; PolicyFailed where there is none, or where it was made in another context."""
        found = self._turns.get((ask.episode_id, ask.t))
        if found is None:
            raise PolicyFailed(f"the recorded run has no turn {ask.t} of {ask.episode_id}")
        context_id, answer = found
        if context_id != ask.context_id:
            raise PolicyFailed(
                f"turn {ask.t} of {ask.episode_id} was recorded in context {context_id}, now it is "
                f"{ask.context_id}: the environment, the recipe or a seed is not the recorded run's"
            )
        return answer


def open_recorded(folder: str) -> Policy:
    """The turns of the run in `folder`; answers to a teacher's switch question come from its ledger."""
    run = open_run(folder)
    turns = {
        (row["episode_id"], row["t"]): (row["context_id"], _answer(row))
        for row in run.read("turns").to_pylist()
    }
    if not turns:
        raise DataError(f"{folder} holds no turns: name a run that has collected some")
    with closing(Ledger(run.folder / "ledger.sqlite", read_only=True)) as ledger:
        for row in ledger.query("select * from attempts where t = 0 and state = 'settled' order by attempt"):
            turns[row["episode_id"], 0] = (row["context_id"], read_answer(row["answer"]))
    return Recorded(turns)


def _answer(row: dict[str, Any]) -> Answer:
    counts = ("output_tokens", "counter", "reasoning_tokens", "prompt_tokens", "cached_tokens")
    usage = Usage(*(row[name] for name in counts))
    return Answer(row["text"], usage, row["finish_reason"], logprob=row["logprob"])
