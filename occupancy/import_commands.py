"""The command `fewsteps import`: recorded conversations of other tools as a run folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from occupancy.record.show import add_json, show
from occupancy.record.specs import Few, option

if TYPE_CHECKING:
    from pathlib import Path

    from occupancy.importers.episodes import ImportSettings

FORMATS = ("atif", "chat", "inspect", "sharegpt", "swe-agent", "trl", "verl")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `import` on the command line."""
    add = commands.add_parser(
        "import",
        help="recorded conversations of other tools as a run folder",
        description="Write recorded conversations as a run folder. Who made each turn is taken from the file "
        "or from --author and --author-of, never guessed; a file that cannot be read whole is refused, with "
        "the line and the reason.",
    )
    add.add_argument("files", nargs="+", metavar="FILE")
    add.add_argument("--format", required=True, choices=FORMATS)
    add.add_argument("--out", required=True, metavar="RUN", help="a new folder")
    add.add_argument(
        "--author", choices=("student", "teacher"), default="", help="author of turns that name none"
    )
    add.add_argument(
        "--author-of",
        action="append",
        default=[],
        metavar="MODEL=AUTHOR",
        help="author of turns that name a model (may repeat)",
    )
    add.add_argument(
        "--task",
        default="task_id",
        metavar="FIELD",
        help="field with the task's name (default: task_id); 'line' makes every record a task",
    )
    add.add_argument("--reward", default="", metavar="FIELD", help="field or Inspect scorer with R in [0, 1]")
    add.add_argument(
        "--T-max",
        type=option(Few),
        default=None,
        metavar="TURNS",
        help="horizon (default: longest episode)",
    )
    add.add_argument(
        "--environment", default="", help="what was played in, for the record (default: the format)"
    )
    add_json(add)
    add.set_defaults(handler=_import)


def _import(given: argparse.Namespace) -> int:
    from collections import Counter
    from pathlib import Path

    from occupancy.importers import read_episodes
    from occupancy.importers.episodes import rows_of
    from occupancy.record.drafts import new_folder, whole_folder
    from occupancy.record.errors import InputError
    from occupancy.record.recipe import preset
    from occupancy.runs import create_run

    out = new_folder(given.out, or_empty=True)
    settings, environment = _settings(given), given.environment or f"imported {given.format}"
    episodes = read_episodes(given.files, format=given.format, settings=settings)
    if not episodes:
        raise InputError(f"{', '.join(given.files)}: no conversation in it; expected one at least")
    longest = max(len(episode.turns) for episode in episodes)
    T_max = longest if given.T_max is None else given.T_max
    if longest > T_max:
        where = next(episode.where for episode in episodes if len(episode.turns) == longest)
        raise InputError(f"{where}: {longest} turns with --T-max {T_max}: raise it, or leave the episode out")
    rows = rows_of(episodes, environment=environment)
    kinds = Counter(str(row["kind"]) for row in rows["episodes"])
    name = "op-short" if kinds["rollout"] else "pure-bc"
    info = {
        "kind": "import",
        "format": given.format,
        "environment": environment,
        "files": {file: _digest(Path(file)) for file in given.files},
        "settings": {
            "author": settings.author,
            "models": dict(settings.models),
            "task": settings.task,
            "reward": settings.reward,
        },
    }
    with whole_folder(out) as draft:
        create_run(draft, preset(name, T_max=T_max), info).commit(rows)
    report = {
        "folder": str(out),
        "format": given.format,
        "episodes": len(episodes),
        "tasks": len({episode.task_id for episode in episodes}),
        "turns": len(rows["turns"]),
        "kinds": dict(kinds),
        "authors": dict(Counter(str(turn["author"]) for turn in rows["turns"])),
        "T_max": T_max,
    }
    show(given, report, _text(report))
    return 0


def _settings(given: argparse.Namespace) -> ImportSettings:
    from occupancy.importers.episodes import ImportSettings
    from occupancy.record.errors import InputError

    models = {}
    for item in given.author_of:
        model, equals, author = item.rpartition("=")
        if not equals or not model:
            raise InputError(f"--author-of {item!r}: expected MODEL=student or MODEL=teacher")
        models[model] = author
    return ImportSettings(given.author, models, given.task, given.reward)


def _digest(file: Path) -> str:
    """16 hex digits of the file's BLAKE2b."""
    from hashlib import blake2b

    digest = blake2b(digest_size=8)
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _text(report: dict[str, Any]) -> str:
    def named(counts: dict[str, int]) -> str:
        return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items()))

    kind = "" if "rollout" in report["kinds"] else " --kind demo"
    return (
        f"{report['episodes']:,} episodes of {report['tasks']:,} tasks ({named(report['kinds'])}), "
        f"{report['turns']:,} turns ({named(report['authors'])}), T_max {report['T_max']}: "
        f"{report['folder']}\nnext: fewsteps occupancy {report['folder']}{kind}"
    )
