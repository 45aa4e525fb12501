"""Continuations among imported episodes: the first turns of a student's rollout, then the teacher alone.

The student's turns of such an episode, with their replies, begin a rollout of the same task that was imported
before it. Its context is then one that the student reached by itself, which is what a plan is made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from occupancy.importers.episodes import ImportedEpisode, Origin, models_of
from occupancy.importers.seen import Seen
from occupancy.record.rows import ContextHash, Key


class Parents:
    """Contexts of the student's rollouts that were read so far."""

    def __init__(self) -> None:
        self._rollouts = Seen()  # hash of task and context -> number of the rollout
        self._continued = Seen()  # key of a rollout -> continuations of it

    def add(self, key: Key, episode: ImportedEpisode) -> None:
        """Remember the contexts of a rollout that the student played alone."""
        if key.kind == "rollout" and all(turn.author == "student" for turn in episode.turns):
            self._rollouts.add((hash((episode.task_id, c)) for c in _contexts(episode)), key.rollout)

    def continuation(self, episode: ImportedEpisode) -> ImportedEpisode:
        """The episode, as a continuation where its first turns are those of a rollout."""
        authors = [turn.author for turn in episode.turns]
        switch = authors.index("teacher") if "teacher" in authors else 0
        if episode.origin is not None or not switch or "student" in authors[switch:]:
            return episode
        context = list(_contexts(episode))[switch]
        rollout = self._rollouts.get(hash((episode.task_id, context)))
        if rollout is None:
            return episode
        parent = Key("rollout", episode.task_id, rollout)
        number = self._continued.get(parent.episode_id, 0)
        self._continued.put(parent.episode_id, number + 1)
        key = replace(parent, kind="continuation", proposal=parent.rollout, continuation=number)
        teacher, student = (
            models_of(turn for turn in episode.turns if turn.author == author) or f"imported {author}"
            for author in ("teacher", "student")
        )
        named = {"policy": teacher, "teacher": teacher, "prefix_policy": student}
        columns = {**named, "switch_turn": switch + 1}
        return replace(episode, origin=Origin(key, parent.episode_id, switch + 1, columns=columns))


def _contexts(episode: ImportedEpisode) -> Iterator[str]:
    """context_id before each turn."""
    context = ContextHash(episode.prompt)
    for turn in episode.turns:
        yield context.context_id
        context.add(turn.text, turn.observation)
