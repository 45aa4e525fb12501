"""Which tasks a spec names, and where a benchmark's data are.

valid_seen        every task of a split, in id order
train:60          60 tasks of `train`, drawn with a seed, without replacement
train:60-120      the next 60 of the same draw: disjoint from train:60
train/medium:60   the same among the tasks of one level, for a benchmark that has levels
@file             one task id a line
a+b               the tasks of both (`agentloop.run.collect.tasks_of`)
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from occupancy.record.errors import InputError, install_command

HOW_TO_GET = {
    "alfworld": f"{install_command('alfworld')}, set ALFWORLD_DATA to that folder, run alfworld-download",
    "hotpotqa": "put hotpot_train_v1.1.json and hotpot_dev_fullwiki_v1.json of the HotpotQA project there",
    "terminal": "docs/terminal.md says how to get it; --env-set tasks=FOLDER names a folder of other tasks",
}
"""The data of each benchmark."""
_SPEC = re.compile(
    r"(?P<split>\w+)(?:/(?P<level>\w+))?(?::(?:(?P<start>\d{1,18})-)?(?P<stop>\d{1,18}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a split: positions [start, stop) of its seeded order, or all of it in id order."""

    split: str
    start: int = 0
    stop: int | None = None
    level: str = ""

    def __str__(self) -> str:
        level = f"/{self.level}" if self.level else ""
        part = "" if self.stop is None else f":{f'{self.start}-' if self.start else ''}{self.stop}"
        return f"{self.split}{level}{part}"


def parse_spec(spec: str, *, splits: Sequence[str], levels: Sequence[str] = ()) -> Slice:
    """The part of a split that a spec other than `@file` names; InputError where it names none."""
    found = _SPEC.fullmatch(spec)
    level = (found and found["level"]) or ""
    if found is None or (level and level not in levels):
        by_level = f", /{' or /'.join(levels)} behind the split for a level" if levels else ""
        raise InputError(
            f"task spec {spec!r}: expected a split ({splits[0]}), split:N (train:60), split:A-B "
            f"(train:60-120){by_level}, or @file"
        )
    if found["split"] not in splits:
        raise InputError(f"task spec {spec!r} names no split: expected one of {', '.join(splits)}")
    start, stop = int(found["start"] or 0), None if found["stop"] is None else int(found["stop"])
    if stop is not None and stop <= start:
        raise InputError(f"task spec {spec!r} names {stop - start} tasks: expected at least one")
    return Slice(found["split"], start, stop, level)


def behind(split: str, count: int, specs: Iterable[str]) -> Slice:
    """The next `count` tasks of a split (and level) after those that specs of the same draw name.

    Example:
        >>> behind("train", 60, ["train:20", "train:20-30", "dev:7"]).start
        30
    """
    parts = (_SPEC.fullmatch(part) for spec in specs for part in spec.split("+"))
    start = max((int(p["stop"] or 0) for p in parts if p and p[0].partition(":")[0] == split), default=0)
    name, _, level = split.partition("/")
    return Slice(name, start, start + count, level)


def named_ids(
    spec: str,
    pool: Callable[[Slice], Sequence[str]],
    *,
    splits: Sequence[str],
    levels: Sequence[str] = (),
    seed: int,
) -> list[str]:
    """The task ids that `spec` names: of a file, or of `pool(part)`, whose id order `seed` shuffles.

    Raises:
        InputError: a spec that is none, or more tasks than there are.
    """
    if spec.startswith("@"):
        return read_ids(Path(spec[1:]))
    part = parse_spec(spec, splits=splits, levels=levels)
    order = list(pool(part))
    if part.stop is None:
        return order
    if part.stop > len(order):
        raise InputError(f"task spec up to task {part.stop}: {part.split} has {len(order)}, expected no more")
    level = f"/{part.level or None}" if levels else ""
    random.Random(f"{part.split}{level}:{seed}").shuffle(order)
    return order[part.start : part.stop]


def read_ids(file: Path) -> list[str]:
    """Task ids of a file, one a line; InputError where it cannot be read, is empty, or names one twice."""
    try:
        ids = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        told = f"task file {file} cannot be read ({error}); expected one task id a line"
        raise InputError(told) from error
    if not ids:
        raise InputError(f"task file {file} is empty: expected one task id a line")
    if twice := [task_id for task_id, count in Counter(ids).items() if count > 1]:
        raise InputError(f"task file {file} names {twice[0]} more than once: expected each task once")
    return ids


def data_folder(name: str, holds: Callable[[Path], bool], *, expected: str) -> Path:
    """Where the data of benchmark `name` are: in FEWSTEPS_DATA's subfolder of that name, or in itself."""
    setting, get = os.environ.get("FEWSTEPS_DATA"), f"To get them: {HOW_TO_GET[name]}"
    if not setting:
        raise InputError(f"FEWSTEPS_DATA is not set: set it to the folder of the {name} data. {get}")
    for folder in (Path(setting) / name, Path(setting)):
        if holds(folder):
            return folder
    place = f"in it or in its subfolder {name}"
    raise InputError(f"FEWSTEPS_DATA={setting!r}: expected {expected} {place}. {get}")
