"""The catalogue of ALFWorld's games: which tasks a spec names (see `task_specs`), and the text of a game.

A task id is the game's id, `<split>/<task>/<trial>`, and the game is also what errors are clustered by.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentloop.types import Task
from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading

from ..task_specs import named_ids
from .grammars import package_logic
from .sources import Source

READ_AHEAD = 200
"""Games read in one pass over a packed split; a pass over all of train costs 0.7 CPU seconds."""


@dataclass(frozen=True, slots=True)
class Game:
    """What a worker needs to play one game."""

    game_id: str
    task_type: str
    domain: str
    grammar: str
    """Text of the grammar, goal included."""
    problem: str
    params: Mapping[str, Any]
    grammar_version: str


class Catalogue:
    """The games of one folder; each split is indexed once, games are read when first opened."""

    def __init__(self, source: Source, *, grammar: str) -> None:
        self._source, self._grammar = source, grammar
        self._kinds: dict[str, dict[str, str]] = {}
        self._split_of: dict[str, str] = {}
        self._texts: dict[str, bytes] = {}

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Tasks named by `spec`; InputError for an unknown split or id, or more tasks than there are."""
        splits = self._source.splits()
        ids = named_ids(spec, lambda part: list(self._index(part.split)), splits=splits, seed=seed)
        return [self._task(game_id) for game_id in ids]

    def game(self, game_id: str) -> Game:
        """The text of one game, InputError for an unknown id."""
        if game_id not in self._texts:
            split = self._split(game_id)
            unread = (i for i, s in self._split_of.items() if s == split and i not in self._texts)
            with _whole(split):
                for record in self._source.read(split, {game_id, *islice(unread, READ_AHEAD)}):
                    self._texts[record.game_id] = zlib.compress(pickle.dumps(record), 1)
            if game_id not in self._texts:
                raise DataError(f"{game_id} was indexed and is not there now: keep the folder unchanged")
        record = pickle.loads(zlib.decompress(self._texts[game_id]))
        own = self._grammar == "2.1.1"
        domain, grammar = self._source.logic(record) if own else package_logic(record.goal)
        params = dict(record.params)
        return Game(game_id, record.task_type, domain, grammar, record.problem, params, self._grammar)

    def _task(self, game_id: str) -> Task:
        kind = self._index(self._split(game_id))[game_id]
        return Task(task_id=game_id, cluster_id=game_id, split=game_id.split("/", 1)[0], kind=kind)

    def _split(self, game_id: str) -> str:
        if game_id not in self._split_of:
            holding = (split for split, games in self._kinds.items() if game_id in games)
            split = next(holding, game_id.split("/", 1)[0])
            if split not in self._source.splits() or game_id not in self._index(split):
                raise InputError(
                    f"task id {game_id!r} is no game of the data folder: expected <split>/<task>/<trial> "
                    f"with split one of {', '.join(self._source.splits())}"
                )
            self._split_of[game_id] = split
        return self._split_of[game_id]

    def _index(self, split: str) -> dict[str, str]:
        if split not in self._kinds:
            with _whole(split):
                self._kinds[split] = self._source.index(split)
        return self._kinds[split]


@contextmanager
def _whole(split: str) -> Iterator[None]:
    """Files that are damaged, or hold something else than games, are a DataError."""
    try:
        with reading(f"a game of {split}", then="copy or download the games again"):
            yield
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"a game of {split} is none ({type(error).__name__}: {error}): copy or download the games again"
        ) from error
