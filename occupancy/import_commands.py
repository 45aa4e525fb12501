"""The command `fewsteps import`: recorded conversations of other tools as a run folder."""

from __future__ import annotations

import argparse
import re
import shlex
from collections import Counter
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from occupancy.importers import FORMATS, formats_of, read_episodes
from occupancy.record.errors import InputError
from occupancy.record.show import Unbroken, add_json, progress, show
from occupancy.record.specs import Few, option

_DATA = re.compile(r"\.(jsonl?|parquet|arrow|eval|traj)(\.(gz|zst))?$")
"""Names of data files, in a folder."""
_ABOUT = ("dataset_info.json", "dataset_dict.json", "state.json", "result.json", "config.json", "lock.json")
"""Files in a folder that are about its data: of `datasets`, and of Harbor's trials."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `import` on the command line."""
    parser = commands.add_parser(
        "import",
        help="recorded conversations of other tools as a run folder",
        description="Write recorded conversations as a run folder. Who made each turn is taken from the file "
        "or from --author and --author-of, never guessed; a file that cannot be read whole is refused, with "
        "the line and the reason.",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="plain, .gz or .zst; a folder: its data files")
    add(
        "--format",
        default="auto",
        choices=("auto", *FORMATS),
        metavar="NAME",
        help=f"{', '.join(FORMATS)} (default: seen in each file's first record)",
    )
    add("--out", required=True, metavar="RUN", help="a new folder")
    add("--author", choices=("student", "teacher"), default="", help="author of turns that name none")
    add(
        "--author-of",
        action="append",
        default=[],
        metavar="MODEL=AUTHOR",
        help="author of turns that name a model (may repeat)",
    )
    add(
        "--task",
        default="task_id",
        metavar="FIELD",
        help="field with the task's name, A.B inside another (default: task_id); 'line': a task a record",
    )
    add(
        "--reward",
        default="",
        metavar="FIELD",
        help="field or Inspect scorer with R in [0, 1] (default: 'reward', where it is); 'none': no rewards",
    )
    add(
        "--thinking",
        choices=("keep", "drop"),
        default="keep",
        help="reasoning beside a turn's text: keep it as <think>..</think> in the turn (default), or drop it",
    )
    add(
        "--token-ids",
        action="store_true",
        help="keep the sampled ids of turns (verifiers): the student's tokenizer made them",
    )
    add("--T-max", type=option(Few), metavar="TURNS", help="horizon (default: longest episode)")
    add("--environment", default="", help="what was played in, for the record (default: the format)")
    add_json(parser)
    parser.set_defaults(handler=_import)


def _import(given: argparse.Namespace) -> int:
    from occupancy.importers.episodes import ImportSettings
    from occupancy.importers.write import write_run
    from occupancy.record.drafts import new_folder

    left_out: Counter[str] = Counter()
    out, files = new_folder(given.out, or_empty=True), _files(given.files, left_out)
    formats = formats_of(files, given.format)
    if given.token_ids and "verifiers" not in formats.values():
        raise InputError(f"--token-ids: {', '.join(sorted(set(formats.values())))} has none; leave it out")
    told: dict[str, Any] = {
        "author": given.author,
        "models": _models(given.author_of),
        "task": given.task,
        "reward": given.reward,
        "thinking": given.thinking,
        "token_ids": given.token_ids,
    }
    environment = given.environment or f"imported {', '.join(sorted(set(formats.values())))}"
    info = {
        "kind": "import",
        "formats": formats,
        "environment": environment,
        "files": {str(file): _digest(file) for file in files},
        "settings": told,
    }
    read, size = 0, sum(file.stat().st_size for file in files)
    with progress("import, MB") as advance:

        def count(more: int) -> None:
            nonlocal read
            read += more
            advance(read >> 20, size >> 20)

        settings = ImportSettings(**told, progress=count, left_out=left_out)
        episodes = read_episodes(formats, settings=settings)
        run, held = write_run(out, episodes, environment=environment, info=info, T_max=given.T_max)
    report = {
        "folder": str(out),
        "formats": formats,
        "episodes": held.episodes,
        "tasks": len(held.tasks),
        "turns": sum(held.authors.values()),
        "traces": held.traces,
        "rewards": held.rewards,
        "turns_without_usage": held.without_usage,
        "kinds": dict(held.kinds),
        "authors": dict(held.authors),
        "T_max": run.recipe.T_max,
        "left_out": dict(left_out),
    }
    show(given, report, lambda: [Unbroken(_text(report))])
    return 0


def _files(names: list[str], left_out: Counter[str]) -> list[Path]:
    """The files that are named; of a folder its data files, in order."""
    from occupancy.importers.results.harbor import trajectories_alone

    found: list[Path] = []
    for path in map(Path, names):
        data = sorted(f for f in path.rglob("*") if not f.is_dir() and _DATA.search(f.name))
        inside = [f for f in trajectories_alone(data, left_out) if f.name not in _ABOUT]
        if path.is_dir() and not inside:
            raise InputError(f"{path}: no .json, .jsonl, .parquet, .arrow, .eval or .traj file in the folder")
        found += inside or [path]
    named = Counter(file.resolve() for file in found)
    if twice := [file for file in found if named[file.resolve()] > 1]:
        raise InputError(f"{twice[-1]} is given twice: name each file once")
    return found


def _models(items: list[str]) -> dict[str, str]:
    """Author by model, of MODEL=AUTHOR texts."""
    models = {}
    for item in items:
        model, equals, author = item.rpartition("=")
        if not equals or not model:
            raise InputError(f"--author-of {item!r}: expected MODEL=student or MODEL=teacher")
        models[model] = author
    return models


def _digest(file: Path) -> str:
    """16 hex digits of the file's BLAKE2b."""
    with file.open("rb") as handle:
        return file_digest(handle, lambda: blake2b(digest_size=8)).hexdigest()


def _text(report: dict[str, Any]) -> str:
    def named(counts: dict[str, int]) -> str:
        return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items()))

    folder = report["folder"]
    lines = [
        f"{report['episodes']:,} episodes of {report['tasks']:,} tasks ({named(report['kinds'])}), "
        f"{report['turns']:,} turns ({named(report['authors'])}), {report['traces']:,} traces, "
        f"{report['rewards']:,} rewards, T_max {report['T_max']}: {folder}"
    ]
    for form in sorted(set(report["formats"].values())):
        files = [file for file, found in report["formats"].items() if found == form]
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        lines.append(f"read as {form}: {files[0]}{more}")
    if report["turns_without_usage"]:
        lines.append(
            f"{report['turns_without_usage']:,} turns have no token usage: their words are counted, and "
            f"costs are in words"
        )
    if report["left_out"]:
        lines.append(f"not kept: {', '.join(f'{name} ({n:,})' for name, n in report['left_out'].items())}")
    return "\n".join([*lines, *_next(report)])


def _next(report: dict[str, Any]) -> list[str]:
    """What can be done with the run, and what a plan would still need."""
    folder, page, kinds = shlex.quote(report["folder"]), f"{report['folder']}.html", report["kinds"]
    kind = "" if "rollout" in kinds else f" --kind {next(iter(kinds))}"
    lines = [
        f"next: fewsteps view {folder} --out {shlex.quote(page)}",
        f"next: fewsteps occupancy {folder}{kind}",
    ]
    if report["traces"]:
        lines.append(f"next: fewsteps traces show {folder}")
        lines.append(f"next: fewsteps export {folder} --format verl --out FOLDER")
    if "continuation" in kinds:
        lines.append(f"next: fewsteps plan {folder} --budget TOKENS")
        return lines
    lines.append(f"next: fewsteps plan {folder} --design --budget TOKENS")
    wanted = {
        "rollouts of the student": "rollout" in kinds,
        "turns of the teacher": "teacher" in report["authors"],
        "rewards": report["rewards"] > 0,
        "token usage": report["turns_without_usage"] == 0,
        "continuations by the teacher of the student's rollouts": False,
    }
    missing = ", ".join(name for name, there in wanted.items() if not there)
    lines.append(
        f"missing for a plan: {missing}; `fewsteps collect --pilot --env ENV --student STUDENT --teacher "
        f"TEACHER --tasks SPLIT:N --out PILOT` collects them (capitals are for you to fill in: a model is "
        f"named openai:NAME@URL, SPLIT:N is N tasks of a split such as train); an agent with a loop of its "
        f"own is collected through `fewsteps serve` (docs/own_harness.md)"
    )
    return lines
