"""`fewsteps traces`: what would be trained on, to look at (`show`) or as a file (`render`)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from occupancy.record.errors import InputError
from occupancy.record.rows import KINDS
from occupancy.record.show import add_json, show, table
from occupancy.record.specs import Count, Size, option

if TYPE_CHECKING:
    from agentloop.render import Codec, LengthRule
    from agentloop.render.traces import RunTrace
    from occupancy.runs import Run

STYLES = {
    "task": "cyan",
    "environment": "green",
    "student": "yellow",
    "teacher": "magenta",
    "template": "dim",
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `traces` on the command line."""
    traces = subparsers.add_parser("traces", help="look at what would be trained on")
    actions = traces.add_subparsers(dest="action", required=True)
    look = actions.add_parser(
        "show",
        help="turns coloured by author, targets underlined",
        description="Show accepted traces; with --kind or --status any episodes: rollouts, evaluations, "
        "failures. With --tokenizer traces are shown as they are trained on, token by token.",
    )
    _add_rendering(look, required=False)
    look.add_argument("--kind", choices=KINDS, help="episodes of this kind instead of accepted traces")
    look.add_argument("--status", metavar="WORD", help="only episodes that ended so, e.g. environment_error")
    look.add_argument("--trace", metavar="ID", help="episode_id of one; by default the first --limit")
    look.add_argument("--limit", type=option(Size), default=3, help="most traces to show, 0 = all")
    look.set_defaults(handler=_show)
    render = actions.add_parser("render", help="write the traces with their ids and targets as one file")
    _add_rendering(render)
    render.add_argument("--out", required=True, help="Parquet file in the format of the table traces")
    render.set_defaults(handler=_render)


def _add_rendering(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    add = parser.add_argument
    add("run", help="run folder")
    add("--tokenizer", required=required, help="folder of the student's tokenizer and chat template")
    add("--hub", action="store_true", help="--tokenizer may be a name on the Hugging Face hub")
    add("--row-tokens", type=option(Count), help="most ids of a row")
    add("--turn-tokens", type=option(Count), help="most ids of a teacher turn")
    add("--overflow", default="drop", choices=["drop", "head", "tail"], help="for longer rows")
    add_json(parser)


def _rendering(given: argparse.Namespace) -> tuple[Run, Codec, LengthRule]:
    from agentloop.render import LengthRule, Overflow, load_codec
    from occupancy.runs import open_run

    rule = LengthRule(given.row_tokens, given.turn_tokens, Overflow(given.overflow))
    return open_run(given.run), load_codec(given.tokenizer, hub=given.hub, of="--tokenizer"), rule


def _render(given: argparse.Namespace) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from agentloop.render.traces import rendered_traces
    from occupancy.record.drafts import new_file, whole_file

    out = new_file(given.out, begins="par1", what="a Parquet file")
    run, codec, rule = _rendering(given)
    table = rendered_traces(run, codec, rule=rule)
    with whole_file(out) as draft:
        pq.write_table(table, draft, compression="zstd")
    report = {"out": given.out, "traces": len(table)}
    for name in ("C_tr", "target_tokens", "sequence_tokens"):
        report[name] = pc.sum(table[name]).as_py() or 0
    report["rows"] = len(pc.list_flatten(table["row_starts"]))
    show(given, report, "\n".join(f"{name:<16} {value}" for name, value in report.items()))
    return 0


def _show(given: argparse.Namespace) -> int:
    if given.tokenizer is None:
        return _show_episodes(given)
    if given.kind or given.status:
        raise InputError(
            "--kind and --status choose episodes, --tokenizer shows traces: give one or the other"
        )
    from agentloop.render.traces import count, render_run

    run, codec, rule = _rendering(given)
    traces = list(render_run(run, codec, rule=rule))
    counts = dataclasses.asdict(count(traces))
    if given.trace:
        traces = [trace for trace in traces if trace.episode_id == given.trace]
        if not traces:
            raise InputError(f"{given.run} has no accepted trace {given.trace!r}: see its table traces")
    shown = [as_json(trace, codec) for trace in traces[: given.limit or None]]
    show(given, {"counts": counts, "traces": shown}, lambda: _shown(shown, counts))
    return 0


def _show_episodes(given: argparse.Namespace) -> int:
    from agentloop.render.episodes import episodes_of
    from occupancy.runs import open_run

    chosen = {"kind": given.kind, "status": given.status, "episode_id": given.trace}
    found = episodes_of(open_run(given.run), **chosen, limit=given.limit)
    if not found:
        asked = ", ".join(f"{name} {value!r}" for name, value in chosen.items() if value)
        raise InputError(
            f"{given.run} has no episode with {asked}: see its table episodes"
            if asked
            else f"{given.run} has no accepted trace: name a --kind of {', '.join(KINDS)}"
        )
    show(given, {"episodes": found}, lambda: _as_text(found))
    return 0


def _as_text(episodes: list[dict[str, Any]]) -> Iterator[Any]:
    from rich.rule import Rule
    from rich.text import Text

    for episode in episodes:
        reward = "no reward" if episode["R"] is None else f"R {episode['R']:g}"
        yield Rule(f"{episode['episode_id']}  {episode['kind']}, {episode['status']}, {reward}")
        if episode["error"]:
            yield Text(f"error: {episode['error']}", style="red")
        text = Text()
        for message in episode["messages"]:
            mark = "*" if message["target"] else " "
            turn = "" if message["t"] is None else f"{message['t']:>3}{mark}"
            text.append(f"{turn}{message['author']}: ", style="dim")
            text.append(f"{message['text']}\n", style=_style(message))
        yield text
    yield "*: trained on, underlined; --tokenizer FOLDER shows tokens, `fewsteps view` a page"


def _style(said: Mapping[str, Any]) -> str:
    return STYLES[said["author"]] + (" underline bold" if said["target"] else "")


def as_json(trace: RunTrace, codec: Codec) -> dict[str, Any]:
    """A trace as the viewer shows it: rows of pieces {text, author, target, ids}."""
    from agentloop.render.codec import decode

    rows = []
    for row in trace.rendered.rows:
        pieces = [
            {
                "text": decode(codec, row.ids[s.start : s.stop].tolist()),
                "author": s.author,
                "target": s.target,
                "ids": s.stop - s.start,
            }
            for s in row.spans
        ]
        rows.append(
            {"pieces": pieces, "targets": int(row.targets.sum()), "ids": len(row.ids), "drift": row.drift}
        )
    return {
        "episode_id": trace.episode_id,
        "C_tr": trace.C_tr,
        "rows": rows,
        "dropped": [list(d) for d in trace.rendered.dropped],
    }


def _shown(traces: list[dict[str, Any]], counts: dict[str, Any]) -> Iterator[Any]:
    from rich.rule import Rule
    from rich.text import Text

    opens, closes = (
        ("", "") if sys.stdout.isatty() else ("«", "»")
    )  # without a terminal nothing is underlined
    for trace in traces:
        for number, row in enumerate(trace["rows"], start=1):
            yield Rule(
                f"{trace['episode_id']}  row {number} of {len(trace['rows'])}: {row['targets']} targets of "
                f"{row['ids']} ids ({row['targets'] / row['ids']:.0%})"
            )
            text = Text()
            for piece in row["pieces"]:
                around = piece["target"]
                text.append(f"{opens * around}{piece['text']}{closes * around}", style=_style(piece))
            yield text
        for message, reason in trace["dropped"]:
            yield Text(f"message {message} is no target: {reason}", style="red")
    yield Text.assemble(*[(f" {name} ", f"{style} reverse") for name, style in STYLES.items()])
    yield f"Trained on: {f'between {opens} and {closes}' if opens else 'underlined'}."
    rows = [(name, json.dumps(n) if isinstance(n, dict) else n) for name, n in counts.items()]
    yield table("what would be trained on", ("count", "value"), rows, left=("count",))
