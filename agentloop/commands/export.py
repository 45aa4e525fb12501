"""`fewsteps export`: a run's traces for another trainer, or its episodes as ATIF."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from occupancy.runs import Run

FORMATS = ("atif", "axolotl", "llamafactory", "tokens", "trl", "verl")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `export`."""
    export = commands.add_parser(
        "export",
        help="a run's traces in another trainer's format, or its episodes as ATIF",
        description="Write accepted traces so that another trainer trains on the teacher's turns and nothing "
        "else. Beside the data stands a file that says what the trainer must be told.",
    )
    export.add_argument("run", metavar="RUN", help="the run folder")
    export.add_argument("--format", required=True, choices=FORMATS)
    export.add_argument("--out", required=True, metavar="FOLDER", help="a new folder")
    export.add_argument("--model", metavar="FOLDER", help="tokenizer and template; for --format tokens")
    export.add_argument("--json", action="store_true", help="one JSON object on standard output")
    export.set_defaults(handler=_export)


def _export(given: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from occupancy.record.errors import InputError
    from occupancy.runs import open_run

    out = Path(given.out)
    if out.exists():
        raise InputError(f"--out {out} exists: name a new folder")
    if (given.format == "tokens") != bool(given.model):
        raise InputError("--model names the tokenizer of --format tokens: give both or neither")
    run = open_run(given.run)
    report = _atif(run, out) if given.format == "atif" else _traces(run, out, given.format, given.model)
    report |= {"format": given.format, "folder": str(out)}
    if given.json:
        print(json.dumps(report))  # noqa: T201 -- standard output is what --json is for
    else:
        from rich.console import Console

        Console(markup=False).print(", ".join(f"{name} {value}" for name, value in report.items()))
    return 0


def _atif(run: Run, out: Path) -> dict[str, Any]:
    import json

    from agentloop.export.atif import documents

    out.mkdir(parents=True)
    count = 0
    for count, document in enumerate(documents(run), start=1):
        (out / f"{count:06d}.json").write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    return {"episodes": count}


def _traces(run: Run, out: Path, form: str, model: str | None) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agentloop.export.trainers import CONFIG

    rows = list(_rows(run, form, model))
    out.mkdir(parents=True)
    name = "train.parquet" if form in ("verl", "tokens") else "train.jsonl"
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), out / name)
    else:
        _write_lines(out / name, rows)
    (out / "how-to-train.txt").write_text(CONFIG[form].format(file=name), "utf-8")
    return {"rows": len(rows), "traces": len({row["trace"] for row in rows}), "file": name}


def _rows(run: Run, form: str, model: str | None) -> Iterator[dict[str, Any]]:
    from agentloop.export.trainers import EXPORTERS, tokens
    from agentloop.render.types import read_messages
    from occupancy.record.errors import DataError

    exporter = EXPORTERS.get(form)
    if exporter is None:
        from agentloop.render import load_codec

        exporter = tokens(load_codec(str(model)))
    traces = run.read("traces", columns=["episode_id", "task_id", "messages"]).to_pylist()
    if not traces:
        raise DataError(f"{run.folder} holds no accepted trace: collect some first")
    for trace in traces:
        messages = read_messages(trace["messages"], trace=trace["episode_id"])
        for row in exporter(messages, trace["episode_id"]):
            yield row | {"task_id": trace["task_id"]}


def _write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    import json

    with file.open("w", encoding="utf-8") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
