"""Two folders that hold the games: packed JSON lines, or what `alfworld-download` makes.

A source lists a split's games cheaply (ids and task types) and reads the ones that are asked for.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError

from ..task_specs import data_folder
from . import grammars

ALIASES = {"train": "train_all"}
GOAL = re.compile(r'"rhs": "Your task is to: ([^"]*)"')
HEAD = re.compile(rb'\{\s*"id":\s*"([^"]+)".{0,400}?"task_type":\s*"([^"]+)"', re.DOTALL)
TAIL_BYTES = 256


@dataclass(frozen=True, slots=True)
class Record:
    """One game as its file holds it."""

    game_id: str
    task_type: str
    goal: str
    problem: str
    """PDDL problem, 23-100 KB of text."""
    params: Mapping[str, Any]
    """`pddl_params` of the task: what the scripted expert is given."""
    own_logic: tuple[str, str] = ("", "")
    """Domain and grammar inside the game file, where it holds them."""


def find_source() -> Source:
    """The source in the folder that FEWSTEPS_DATA names, or in its subfolder `alfworld`."""

    def packed(folder: Path) -> bool:
        return (folder / "logic").is_dir() and any(folder.glob("*.jsonl.xz"))

    folder = data_folder(
        "alfworld",
        lambda folder: packed(folder) or (folder / "json_2.1.1").is_dir(),
        expected="json_2.1.1/",
    )
    return Packed(folder) if packed(folder) else Downloaded(folder / "json_2.1.1")


@dataclass(frozen=True, slots=True)
class Packed:
    """`<split>.jsonl.xz`, one game a line, and `logic/` with the 2.1.1 domain and grammar."""

    folder: Path

    def splits(self) -> list[str]:
        """Names of the splits that are there."""
        names = {path.name.removesuffix(".jsonl.xz") for path in self.folder.glob("*.jsonl.xz")}
        aliased = {alias for alias, name in ALIASES.items() if name in names}
        return sorted((names & {"train_all", "train_300", "valid_seen", "valid_unseen"}) | aliased)

    def index(self, split: str) -> dict[str, str]:
        """Task type of every game of a split; only the head of each line is looked at."""
        return dict(sorted(self._head(split, line) for line in self._lines(split)))

    def read(self, split: str, ids: Collection[str]) -> Iterator[Record]:
        """The named games; stops at the last of them."""
        missing = set(ids)
        for line in self._lines(split):
            if not missing:
                return
            game_id, kind = self._head(split, line)
            if game_id in missing:
                missing.remove(game_id)
                raw = json.loads(line)
                yield Record(game_id, kind, raw["task"], raw["pddl_problem"], raw["traj"]["pddl_params"])

    def logic(self, record: Record) -> tuple[str, str]:
        """Domain and grammar text of 2.1.1, goal included."""
        return grammars.logic(self.folder / "logic" / "alfred-2.1.1", record.goal)

    def _lines(self, split: str) -> Iterator[bytes]:
        path = self.folder / f"{ALIASES.get(split, split)}.jsonl.xz"
        try:
            with lzma.open(path, "rb") as lines:
                yield from lines
        except (lzma.LZMAError, EOFError) as error:
            raise DataError(f"{path}: not a whole xz file ({error}); copy or download it again") from error

    def _head(self, split: str, line: bytes) -> tuple[str, str]:
        found = HEAD.match(line)
        if found is None:
            raise DataError(f"{self.folder}/{split}: a line does not start with a game's id: {line[:80]!r}")
        return found[1].decode(), found[2].decode()


@dataclass(frozen=True, slots=True)
class Downloaded:
    """`json_2.1.1/<split>/<task>/<trial>/` with `game.tw-pddl` and `traj_data.json`."""

    folder: Path

    def splits(self) -> list[str]:
        """Names of the splits that are there."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())

    def index(self, split: str) -> dict[str, str]:
        """Task type of every game that alfworld itself would play: solvable, nothing movable or sliced."""
        found = {}
        for game in (self.folder / split).glob("*/*/game.tw-pddl"):
            task = game.parent.parent.name
            if "movable" not in task and "Sliced" not in task and _solvable(game):
                found[f"{split}/{task}/{game.parent.name}"] = task.split("-", 1)[0]
        return dict(sorted(found.items()))

    def read(self, split: str, ids: Collection[str]) -> Iterator[Record]:
        """The named games."""
        for game_id in ids:
            folder = self.folder / game_id
            raw = json.loads((folder / "game.tw-pddl").read_text(encoding="utf-8"))
            traj = json.loads((folder / "traj_data.json").read_text(encoding="utf-8"))
            goal, own = GOAL.search(raw["grammar"]), (raw["pddl_domain"], raw["grammar"])
            if goal is None:
                raise DataError(f"{game_id}: no 'Your task is to: ...' in its grammar; download it again")
            kind, params = traj["task_type"], traj["pddl_params"]
            yield Record(game_id, kind, goal[1], raw["pddl_problem"], params, own)

    def logic(self, record: Record) -> tuple[str, str]:
        """Domain and grammar text of 2.1.1, goal included."""
        if 'template :: "put {o} in/on {r}"' not in record.own_logic[1]:
            raise DataError(
                f"{record.game_id}: this game file has no command `put X in/on Y`, so it is no 2.1.1 file; "
                "ask for grammar 2.1.2, or download the 2.1.1 games (alfworld 0.3.x does)"
            )
        return record.own_logic


Source = Packed | Downloaded
"""A folder of games: its splits, an index of each by game id, and the games that are asked for."""


def _solvable(game: Path) -> bool:
    """Whether a game file says so; its flag is written last, so the end of the file usually suffices."""
    with game.open("rb") as file:
        file.seek(max(0, game.stat().st_size - TAIL_BYTES))
        if b'"solvable": true' in file.read():
            return True
    return json.loads(game.read_text(encoding="utf-8")).get("solvable") is True
