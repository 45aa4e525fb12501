"""Imported episodes as a new run folder: written in parts as they are read, and there whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.importers.episodes import ImportedEpisode
from occupancy.importers.parents import Parents
from occupancy.importers.rows import WORDS, Numbers, rows_of
from occupancy.importers.seen import Seen
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import InputError
from occupancy.record.recipe import Recipe, preset
from occupancy.record.rows import Rows
from occupancy.runs import Run, describe

if TYPE_CHECKING:
    import pyarrow as pa

PART_CHARACTERS = 8 << 20
"""Text of the episodes that are written together."""


@dataclass
class Imported:
    """What an import holds, counted while it is read."""

    tasks: Seen = field(default_factory=Seen)
    kinds: Counter[str] = field(default_factory=Counter)
    authors: Counter[str] = field(default_factory=Counter)
    episodes: int = 0
    traces: int = 0
    rewards: int = 0
    without_usage: int = 0
    """Turns whose tokens are counted as words."""
    longest: int = 0
    """Turns of the longest episode."""

    def add(self, rows: Rows) -> None:
        """Count more rows."""
        self.episodes += len(rows["episodes"])
        self.traces += len(rows["traces"])
        for row in rows["episodes"]:
            self.tasks.put(row["task_id"], 1)
            self.kinds[row["kind"]] += 1
            self.rewards += row["R"] is not None
            self.longest = max(self.longest, row["length"])
        for row in rows["turns"]:
            self.authors[row["author"]] += 1
            self.without_usage += row["counter"] == WORDS


def write_run(
    folder: Path,
    episodes: Iterable[ImportedEpisode],
    *,
    environment: str,
    info: Mapping[str, Any],
    T_max: int | None,
) -> tuple[Run, Imported]:
    """Write episodes as a run folder; returns the run, and what it holds.

    The folder is new or empty, and stays so if an episode is refused. A part of the episodes is in memory.
    `info` is for run.json; T_max is in turns, those of the longest episode where it is None.
    """
    counted, numbers, parents = Imported(), Numbers(), Parents()
    with whole_folder(folder) as draft:
        staged = Run(draft, preset("pure-bc"), {})
        for part in _parts(episodes, T_max):
            rows = rows_of(part, environment=environment, numbers=numbers, parents=parents)
            counted.add(rows)
            staged.commit(rows)
        if not counted.episodes:
            raise InputError("no conversation in the files: expected one at least")
        name = "pure-bc" if set(counted.kinds) == {"demo"} else "op-short"
        recipe = preset(name, T_max=max(counted.longest, 1) if T_max is None else T_max)
        _finish(draft, recipe)
        describe(draft, recipe, info)
    return Run(folder, recipe, info), counted


def _parts(episodes: Iterable[ImportedEpisode], T_max: int | None) -> Iterable[list[ImportedEpisode]]:
    part: list[ImportedEpisode] = []
    size = 0
    for episode in episodes:
        if T_max is not None and len(episode.turns) > T_max:
            raise InputError(
                f"{episode.where}: {len(episode.turns)} turns with --T-max {T_max}: raise it, or leave the "
                f"episode out"
            )
        part.append(episode)
        size += sum(len(turn.text) + len(turn.observation) for turn in episode.turns)
        size += sum(len(text) for _, text in episode.prompt) + 1024
        if size > PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _finish(draft: Path, recipe: Recipe) -> None:
    """Write what is known once all is read: the recipe's hash into traces, and K of continuations (T_max)."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in sorted(draft.glob("parts/*/traces.parquet")):
        rows = pq.read_table(file)
        named = pa.array([recipe.hash] * len(rows), rows.schema.field("recipe_hash").type)
        _replace(file, rows, "recipe_hash", named)
    for file in sorted(draft.glob("parts/*/episodes.parquet")):
        rows = pq.read_table(file)
        open_end = pc.and_(pc.equal(rows["kind"], "continuation"), pc.equal(rows["K"], 0))
        if pc.any(open_end).as_py():
            K = pc.if_else(open_end, pa.scalar(recipe.T_max, rows.schema.field("K").type), rows["K"])
            _replace(file, rows, "K", K)


def _replace(file: Path, rows: pa.Table, name: str, values: Any) -> None:
    import pyarrow.parquet as pq

    at = rows.schema.get_field_index(name)
    pq.write_table(rows.set_column(at, rows.schema.field(at), values), file, compression="zstd")
