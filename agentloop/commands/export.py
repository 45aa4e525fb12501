"""`fewsteps export`: a run's traces for another trainer, or its episodes as ATIF or a log of inspect_ai."""

from __future__ import annotations

import argparse
from typing import Any

from occupancy.record.show import add_json, say, show

EPISODES = ("atif", "inspect")
RENDERED = ("tokens", "verifiers")
FORMATS = tuple(sorted((*EPISODES, *RENDERED, "axolotl", "llamafactory", "trl", "verl")))


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `export`."""
    export = commands.add_parser(
        "export",
        help="a run's traces in another trainer's format, or its episodes as ATIF or an inspect_ai log",
        description="Write accepted traces so that another trainer trains on the teacher's turns and nothing "
        "else. A file beside the data says what the trainer must be told.",
    )
    add = export.add_argument
    add("run", metavar="RUN", help="the run folder")
    add("--format", required=True, choices=FORMATS)
    add("--out", required=True, metavar="FOLDER", help="a new folder")
    add("--by", choices=("trace", "turn"), default="trace", help="a row of verl or axolotl (default: trace)")
    add("--model", metavar="FOLDER", help=f"tokenizer and template; for --format {' and '.join(RENDERED)}")
    add("--hub", action="store_true", help="--model may be a name on the Hugging Face hub")
    add_json(export)
    export.set_defaults(handler=_export)


def _export(given: argparse.Namespace) -> int:
    from agentloop.export.write import write_episodes, write_traces
    from agentloop.render.traces import failed_traces, said_of_failures
    from occupancy.record.drafts import new_folder
    from occupancy.record.errors import InputError
    from occupancy.runs import open_run

    out = new_folder(given.out)
    if (given.format in RENDERED) != bool(given.model):
        raise InputError(
            f"--model is for --format {' and '.join(RENDERED)} alone: leave it out"
            if given.model
            else f"--format {given.format} needs --model FOLDER, the tokenizer and template of the student"
        )
    if given.by == "turn" and given.format not in ("verl", "axolotl"):
        raise InputError("--by turn: expected --format verl or axolotl; trl and llamafactory do so anyway")
    run = open_run(given.run)
    if given.format in EPISODES:
        report = write_episodes(run, out, given.format)
    else:
        report = write_traces(run, out, given.format, model=given.model, hub=given.hub, by=given.by)
        if failures := said_of_failures([failed_traces(run)]):
            say(f"export: {failures}")
    report |= {"format": given.format, "folder": str(out)}
    show(given, report, _said(report))
    return 0


def _said(report: dict[str, Any]) -> str:
    """The file that was written, and every count that is not 0."""
    counts = {name: n for name, n in report.items() if isinstance(n, int) and n}
    told = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
    place = f"{report['folder']}/{report.get('file', '')}"
    return f"{place} ({report['format']}): {told or 'nothing to write'}"
