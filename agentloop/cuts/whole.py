"""A run of whole continuations, read once so that any number of cuts can be made: `agentloop.cuts.cut`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentloop.ledger.report import teacher_attempts
from agentloop.types import Status
from occupancy.record.errors import DataError
from occupancy.record.finish import is_target, retained_tokens
from occupancy.record.reading import read_cell
from occupancy.record.recipe import INF, REPLAYS, K_text
from occupancy.record.rows import KEY, Key, Row, trace_row
from occupancy.runs import Run


@dataclass(frozen=True)
class Whole:
    """A run whose continuations can be cut, read once for any number of cuts.

    Raises DataError where it is no whole one: collected below T_max, or filtered by success.
    """

    run: Run

    def __post_init__(self) -> None:
        recipe = self.run.recipe
        if recipe.rho != "teacher" and (recipe.K != INF or recipe.phi != "all"):
            if self.run.info.get("kind") == "import":
                raise DataError(
                    f"{self.run.folder} was imported: it has no continuations that are known to be whole and "
                    f"unfiltered; cut a run collected with `--pilot`, or with K=inf"
                )
            raise DataError(
                f"{self.run.folder} was collected with K={K_text(recipe.K)} and phi={recipe.phi!r}: only "
                f"whole, unfiltered continuations can be cut; collect with `--pilot`, or with K=inf"
            )

    @cached_property
    def _every(self) -> list[Row]:
        return list(self.run.read("episodes").to_pylist())

    @cached_property
    def _stored(self) -> list[Row]:
        """Traces of the run's own table."""
        return list(self.run.read("traces").to_pylist())

    @cached_property
    def episodes(self) -> dict[str, Row]:
        """By episode_id, hand-backs left out."""
        return {row["episode_id"]: row for row in self._every if row["kind"] != "handback"}

    @cached_property
    def taught_episodes(self) -> list[Row]:
        """Demonstrations and continuations."""
        return self._of("demo", "continuation")

    @cached_property
    def turns(self) -> dict[str, list[Row]]:
        """By episode_id, in order."""
        return _grouped(self.run.read("turns").to_pylist(), "episode_id")

    @cached_property
    def traces(self) -> dict[str, Row]:
        """By episode_id, those of demonstrations among them: a pilot does not store these."""
        found = {row["episode_id"]: row for row in self._stored}
        for name, episode in self.episodes.items():
            if episode["kind"] == "demo" and name not in found and self.targets(name):
                found[name] = self._trace_of_demo(episode)
        return found

    @cached_property
    def proposals(self) -> dict[str, list[Row]]:
        """By task, in order."""
        return _grouped(self.run.read("proposals").to_pylist(), "task_id")

    @cached_property
    def demos(self) -> dict[str, list[Row]]:
        """By task, in order."""
        return _grouped(self._of("demo"), "task_id")

    @cached_property
    def continuations(self) -> dict[tuple[str, int], Row]:
        """By task and proposal."""
        return {(row["task_id"], row["proposal"]): row for row in self._of("continuation")}

    @cached_property
    def rollouts(self) -> dict[tuple[str, int], Row]:
        """By task and rollout."""
        return {(row["task_id"], row["rollout"]): row for row in self._of("rollout")}

    @cached_property
    def replays(self) -> dict[tuple[str, int], list[Row]]:
        """Of the run; see `replays_of`."""
        return replays_of(self._every)

    @cached_property
    def attempts(self) -> dict[str, list[tuple[int, int]]]:
        """See `teacher_attempts`."""
        return teacher_attempts(self.run)

    def taught(self, name: str) -> list[Row]:
        """The teacher's turns of an episode."""
        return [turn for turn in self.turns[name] if turn["author"] == "teacher"]

    def targets(self, name: str) -> list[Row]:
        """The turns of an episode that can be trained on."""
        taught = self.taught(name)
        if self.episodes[name]["status"] == Status.BAD_PARSE:
            taught = taught[:-1]
        return [turn for turn in taught if is_target(turn["text"], turn["finish_reason"])]

    def cost(self, episode: Row, K: float) -> int:
        """C_i of an episode's first K teacher turns, failed attempts included."""
        end = (episode["switch_turn"] or 1) + K
        return sum(tokens for t, tokens in self.attempts[episode["episode_id"]] if t < end)

    def _of(self, *kinds: str) -> list[Row]:
        return [row for row in self.episodes.values() if row["kind"] in kinds]

    @cached_property
    def _reply_role(self) -> str:
        """Role of the environment's messages, as the run's own traces have it."""
        for row in self._stored:
            for message in read_cell(row["messages"], "messages", str(self.run.folder)):
                if message["author"] == "environment":
                    return str(message["role"])
        return "user"

    def _trace_of_demo(self, episode: Row) -> Row:
        prompt = read_cell(episode["prompt"] or "[]", "messages", episode["episode_id"])
        messages = [message | {"train": False} for message in prompt]
        taught, own = self.taught(episode["episode_id"]), self.targets(episode["episode_id"])
        for turn in taught[: taught.index(own[-1]) + 1]:
            said = {"role": "assistant", "content": turn["text"], "author": "teacher"}
            messages.append(said | {"train": turn in own})
            reply = {"role": self._reply_role, "content": turn["observation"], "author": "environment"}
            messages.append(reply | {"train": False})
        return trace_row(
            Key("demo", **{name: episode[name] for name in KEY}),
            recipe_hash=self.run.recipe.hash,
            messages=messages[:-1],
            target_turns=len(own),
            C_tr=sum(retained_tokens(t["text"], t["output_tokens"], t["reasoning_tokens"]) for t in own),
        )


def has_replays(info: Mapping[str, Any]) -> bool:
    """Whether a run was collected with enough replays of each context to say if its outcomes are mixed."""
    return 0 in info.get("handback", ()) and info.get("replicates", 0) >= REPLAYS


def replays_of(episodes: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """By task and proposal: the student's episodes from its context that `context = "mixed"` reads."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in sorted(episodes, key=lambda row: row["replicate"]):
        if row["kind"] == "handback" and row["K"] == 0 and row["replicate"] < REPLAYS:
            found[row["task_id"], row["proposal"]].append(row)
    return found


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found
