"""A run as the viewer reads it: columns of episodes and turns, every text once, and once every word."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from agentloop.ledger.store import Ledger
from analysis.plan.report import finite
from occupancy.record.errors import DataError
from occupancy.record.prices import PICO
from occupancy.record.reading import read_cell, reading
from occupancy.record.rows import KEY
from occupancy.runs import Run

EPISODE = (
    *("episode_id", "task_id", "task_kind", "kind", "prefix_policy", "policy", "teacher", "parent"),
    *("switch_turn", "K", "length", "R", "status", "error", "phi", "prompt"),
)
TURN = (
    *("t", "author", "text", "observation", "finish_reason", "parse_status"),
    *("output_tokens", "reasoning_tokens", "prompt_tokens", "cached_tokens"),
)
WORDS = ("author", "text", "observation", "finish_reason", "parse_status")
"""Columns of turns that are texts, kept as places in `texts`."""
_COSTS = """
select episode_id, t, count(*) as attempts, sum(charged_money) as money from attempts where t > 0
group by episode_id, t
"""


_PIECE = re.compile(r" ?\w+|[^\w ]+| ")
_FIRST = ord(" ")
_HALVES = range(0xD800, 0xE000)
"""Code points that are no characters."""
_MOST_WORDS = 0x110000 - _FIRST - len(_HALVES)


class Texts:
    """Texts, each once; a text is named by its place."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Where a text is, which is added if it is new."""
        at = self._places.setdefault(text, len(self.all))
        if at == len(self.all):
            self.all.append(text)
        return at

    def places(self, column: pd.Series) -> list[int]:
        """The places of a column of texts."""
        codes, found = pd.factorize(column)
        at = [self.place(str(text)) for text in found]
        return [at[code] for code in codes]


@dataclass(frozen=True)
class Viewed:
    """A run as it is looked at."""

    index: dict[str, Any]
    """Everything but the turns, as plain values for JSON."""
    turns: pd.DataFrame
    """A row a turn; those of episode e are rows first_turn[e] to first_turn[e + 1] of the index."""
    texts: Texts
    """What `index` says of texts."""

    def told(self, first: int, last: int, texts: Texts) -> dict[str, list[Any]]:
        """Columns of the turns in [first, last) as plain values; words are places in `texts`."""
        part = self.turns.iloc[first:last]
        return {str(name): _column(part[name], texts, name in WORDS) for name in part}


def view_data(run: Run, *, rendered: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the viewer shows of a run, as plain values for JSON; arguments as of `viewed`."""
    seen = viewed(run, rendered=rendered)
    turns = seen.told(0, len(seen.turns), seen.texts)
    return seen.index | {"turns": turns, "texts": seen.texts.all}


def viewed(run: Run, *, rendered: Mapping[str, Any] | None = None) -> Viewed:
    """A run for the viewer.

    Args:
        run: The run.
        rendered: Traces as they are trained on, by episode, from `fewsteps traces`.

    Raises:
        DataError: The run has no episode, or its tables contradict each other.
    """
    texts = Texts()
    episodes = run.read("episodes", columns=list(dict.fromkeys((*EPISODE, *KEY)))).to_pandas()
    if episodes.empty:
        raise DataError(f"{run.folder} holds no episode: there is nothing to look at")
    turns = run.read("turns", columns=["episode_id", *TURN]).to_pandas()
    place = {name: at for at, name in enumerate(episodes["episode_id"])}
    turns["episode"] = turns["episode_id"].map(place)
    if turns["episode"].isna().any():
        lost = turns.loc[turns["episode"].isna(), "episode_id"].iloc[0]
        raise DataError(f"{run.folder} holds turns of {lost}, no episode of it: restore the run")
    turns = turns.sort_values(["episode", "t"], kind="stable").reset_index(drop=True)
    with reading(run.folder, then="restore it, or collect anew"):
        turns["target"] = _targets(run, turns)
        turns["attempts"], turns["money"] = _costs(run, turns)
        told = {name: _column(episodes[name], texts, name == "prompt") for name in EPISODE}
        told["parent"] = [place.get(parent, -1) for parent in episodes["parent"]]
        told["phi"] = [read_cell(phi, "filters", str(run.folder)) for phi in episodes["phi"]]
        proposals = _proposals(run, episodes)
    by_episode = turns.groupby("episode")["target"].agg(["size", "sum"])
    by_episode = by_episode.reindex(range(len(episodes)), fill_value=0)
    told["targets"] = by_episode["sum"].tolist()
    index = {
        "folder": run.folder.name,
        "info": finite(
            {name: told for name, told in run.info.items() if isinstance(told, str | int | float)}
        ),
        "recipe": run.recipe.to_toml(),
        "success_at": run.recipe.success_at,
        "first_turn": [0, *by_episode["size"].cumsum().tolist()],
        "episodes": told,
        "proposals": proposals,
        "rendered": {place[name]: trace for name, trace in (rendered or {}).items()},
    }
    return Viewed(index, turns[[*TURN, "target", "attempts", "money"]], texts)


def by_words(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words, most frequent first, and texts with one character for each word; undone by `plain` in view.js.

    A compressor sees 32 kB at a time: a word is short for it then, wherever it was before. Texts of more
    words than there are characters are returned as they are, with no word.
    """
    parts = [_PIECE.findall(text) for text in texts]
    words = [word for word, _ in Counter(chain.from_iterable(parts)).most_common()]
    if len(words) > _MOST_WORDS:
        return [], list(texts)
    codes = range(_FIRST, _FIRST + len(words))
    signs = {
        word: chr(code if code < _HALVES.start else code + len(_HALVES))
        for word, code in zip(words, codes, strict=True)
    }
    return words, ["".join(map(signs.__getitem__, part)) for part in parts]


def _column(values: pd.Series, texts: Texts, words: bool) -> list[Any]:
    if words:
        return texts.places(values)
    return [None if empty else value for value, empty in zip(values.tolist(), values.isna(), strict=True)]


def _targets(run: Run, turns: pd.DataFrame) -> list[int]:
    """1 for each turn that an accepted trace trains on."""
    taught = turns[turns["author"] == "teacher"].groupby("episode_id").groups
    target = [0] * len(turns)
    for trace in run.read("traces", columns=["episode_id", "messages"]).to_pylist():
        messages = read_cell(trace["messages"], "messages", trace["episode_id"])
        said = [message for message in messages if message["author"] == "teacher"]
        # A trace ends with its last target; later turns of the teacher are not in it.
        for at, message in zip(taught.get(trace["episode_id"], ()), said, strict=False):
            target[at] = int(message.get("train", False))
    return target


def _costs(run: Run, turns: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Attempts at each turn, and their money in the currency; empty where the ledger has none."""
    file = run.folder / "ledger.sqlite"
    known = dict[tuple[str, int], tuple[int, float | None]]()
    if file.exists():
        with closing(Ledger(file, read_only=True)) as ledger:
            for row in ledger.query(_COSTS):
                money = None if row["money"] is None else row["money"] / PICO
                known[row["episode_id"], row["t"]] = row["attempts"], money
    found = [known.get(key, (None, None)) for key in zip(turns["episode_id"], turns["t"], strict=True)]
    attempts, money = zip(*found, strict=True) if found else ((), ())
    return pd.Series(attempts, dtype="Int64"), pd.Series(money, dtype="Float64")


def _proposals(run: Run, episodes: pd.DataFrame) -> dict[int, list[dict[str, Any]]]:
    """Proposals of each rollout, continuation and demonstration: what was drawn and what became of it."""
    names = [*KEY, "t_prime", "probability", "psi", "outcome"]
    by_proposal = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for row in run.read("proposals", columns=names).to_pylist():
        told = {name: row[name] for name in ("proposal", "t_prime", "probability", "outcome")}
        told["psi"] = read_cell(row["psi"], "filters", str(run.folder))
        by_proposal[row["task_id"], row["rollout"]].append(told)
    found = dict[int, list[dict[str, Any]]]()
    columns = episodes[["kind", "task_id", "rollout", "proposal"]].itertuples(index=False, name=None)
    for at, (kind, task, rollout, proposal) in enumerate(columns):
        all_ = by_proposal.get((task, rollout), ()) if kind in ("rollout", "continuation", "demo") else ()
        own: Sequence[dict[str, Any]] = [p for p in all_ if kind == "rollout" or p["proposal"] == proposal]
        if own:
            found[at] = list(own)
    return found
