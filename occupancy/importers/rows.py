"""Imported episodes as rows of `episodes`, `turns` and `traces`, numbered within their tasks.

A trace is every episode with a turn of the teacher that can be trained on: not one that the file excludes
(`weight` 0, `loss` false), that was cut, or that is empty. The trace ends with the last such turn; an episode
whose teacher went on after a turn that was cut has no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportedTurn, models_of
from occupancy.importers.parents import Parents
from occupancy.importers.seen import Seen
from occupancy.record.errors import DataError
from occupancy.record.finish import is_target, retained_tokens
from occupancy.record.rows import ContextHash, Key, Row, Rows, episode_row, trace_row, turn_row

WORDS = "words (imported without usage)"
_ROLES = {"developer": "system", "function": "tool"}
"""Roles of other interfaces, as traces name them."""


class Numbers:
    """Rollout numbers of the episodes of one import; an episode that is there twice is refused."""

    def __init__(self) -> None:
        self._counted = Seen()  # task -> numbers below it are taken
        self._named = Seen()  # episode_id, or task and number -> where it was

    def key(self, episode: ImportedEpisode) -> Key:
        """The key of the next episode; the kind is `demo` where the teacher made all turns."""
        task, number = episode.task_id, episode.rollout
        if episode.origin is not None:
            self._take(episode.origin.key.episode_id, episode)
            return episode.origin.key
        if number is None:
            number = self._counted.get(task, 0)
            while f"{number} {task}" in self._named:
                number += 1
            self._counted.put(task, number + 1)
        else:
            self._take(f"{number} {task}", episode, taken=number < self._counted.get(task, 0))
        if {turn.author for turn in episode.turns} == {"teacher"}:
            return Key("demo", task, continuation=number)
        return Key("rollout", task, rollout=number)

    def _take(self, name: str, episode: ImportedEpisode, *, taken: bool = False) -> None:
        if taken or name in self._named:
            earlier = self._named.get(name, "an earlier one")
            which = name if episode.origin else f"rollout {episode.rollout} of task {episode.task_id!r}"
            raise DataError(f"{episode.where} and {earlier} are both {which}: the same episode twice?")
        self._named.put(name, episode.where)


def rows_of(
    episodes: Iterable[ImportedEpisode],
    *,
    environment: str,
    numbers: Numbers | None = None,
    parents: Parents | None = None,
) -> Rows:
    """Rows of the tables `episodes`, `turns` and `traces`; `numbers` and `parents` hold what came before."""
    numbers, parents = numbers or Numbers(), parents or Parents()
    rows: Rows = {"episodes": [], "turns": [], "traces": []}
    for read in episodes:
        episode = parents.continuation(read)
        key = numbers.key(episode)
        parents.add(key, episode)
        rows["episodes"].append(_episode(key, episode, environment))
        rows["turns"] += _turns(key, episode)
        rows["traces"] += _trace(key, episode)
    return rows


def own_turns(episode: ImportedEpisode) -> Iterator[tuple[int, ImportedTurn]]:
    """(t, turn) of the turns that are not the parent's."""
    first = 1 if episode.origin is None else episode.origin.own_from
    return ((t, turn) for t, turn in enumerate(episode.turns, start=1) if t >= first)


def output_tokens(turn: ImportedTurn) -> int:
    """Tokens as the provider counted them, else words."""
    return len(turn.text.split()) if turn.output_tokens is None else turn.output_tokens


def _episode(key: Key, episode: ImportedEpisode, environment: str) -> Row:
    name = models_of(episode.turns) or "imported"
    demo = key.kind == "demo"
    cells: dict[str, Any] = {
        "policy": name,
        "teacher": name if demo else "",
        "switch_turn": 1 if demo else 0,
        "K": len(episode.turns) if demo else 0,
        "seed": -1,
        "environment": environment,
    }
    if episode.origin is not None:
        cells |= {"parent": episode.origin.parent, **episode.origin.columns}
    return episode_row(
        key,
        teacher_turns=sum(turn.author == "teacher" for _, turn in own_turns(episode)),
        length=len(episode.turns),
        R=episode.R,
        status=episode.status,
        error=episode.error,
        prompt=[{"role": role, "content": text, "author": by} for role, text, by in _prompt(episode)],
        **cells,
    )


def _turns(key: Key, episode: ImportedEpisode) -> Iterator[Row]:
    context = ContextHash(episode.prompt)
    own = dict(own_turns(episode))
    for t, turn in enumerate(episode.turns, start=1):
        if t in own:
            counter = WORDS if turn.output_tokens is None else turn.model or "provider"
            yield turn_row(
                key,
                t,
                author=turn.author,
                text=turn.text,
                observation=turn.observation,
                context_id=context.context_id,
                output_tokens=output_tokens(turn),
                reasoning_tokens=turn.reasoning_tokens,
                prompt_tokens=turn.prompt_tokens,
                cached_tokens=turn.cached_tokens,
                finish_reason=turn.finish_reason,
                **{"counter": counter, **turn.cells},
            )
        context.add(turn.text, turn.observation)


def _trace(key: Key, episode: ImportedEpisode) -> Iterator[Row]:
    """The row of `traces`, where the episode has a turn to train on; the import's end names its recipe."""
    messages = [_message(role, text, by) for role, text, by in _prompt(episode)]
    own = {t: turn for t, turn in own_turns(episode) if turn.author == "teacher"}
    whole = [t for t, turn in own.items() if is_target(turn.text, turn.finish_reason)]
    targets = {t: own[t] for t in whole if own[t].train}
    cut = [t for t, turn in own.items() if turn.finish_reason != "stop"]
    rejected = episode.origin is not None and not episode.origin.accepted
    if not targets or rejected or any(t < whole[-1] for t in cut):
        return
    for t, turn in enumerate(episode.turns[: whole[-1]], start=1):
        said = {"role": "assistant", "content": turn.text, "author": turn.author, "train": t in targets}
        messages.append(said if turn.token_ids is None else said | {"token_ids": list(turn.token_ids)})
        messages.append(_message(turn.role, turn.observation, "environment"))
    yield trace_row(
        key,
        recipe_hash="",
        messages=messages[:-1],  # the reply to the last turn is in no context
        target_turns=len(targets),
        C_tr=sum(retained_tokens(t.text, output_tokens(t), t.reasoning_tokens) for t in targets.values()),
    )


def _message(role: str, text: str, author: str) -> Row:
    """A message that is no turn; an answer in a prompt is an example, and is not trained on."""
    author = "student" if role == "assistant" else author
    return {"role": _ROLES.get(role, role), "content": text, "author": author, "train": False}


def _prompt(episode: ImportedEpisode) -> Iterator[tuple[str, str, str]]:
    """(role, text, author) of the messages before turn 1."""
    known = () if episode.origin is None else episode.origin.prompt_authors
    authors = known if len(known) == len(episode.prompt) else ["task"] * len(episode.prompt)
    return ((role, text, author) for (role, text), author in zip(episode.prompt, authors, strict=True))
