"""`fewsteps view RUN --out FILE | --serve`: a page with every episode of a run, to look at in a browser."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import suppress
from typing import Any

from agentloop.serve.settings import Port
from occupancy.record.errors import InputError
from occupancy.record.show import Unbroken, add_json, show
from occupancy.record.specs import option

LARGE = 10_000_000
"""Bytes of a page above which `--serve` is named."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `view`."""
    command = subparsers.add_parser(
        "view",
        help="a page with every episode: turns, switch, targets, costs, verdicts",
        description="Write one self-contained page of a run: who wrote each turn, where the teacher took "
        "over, what is trained on, its cost, the filters' verdicts; hand-backs beside their continuation.",
    )
    add = command.add_argument
    add("run", help="run folder: collected, imported, or an evaluation")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="the page, an HTML file")
    where.add_argument("--serve", action="store_true", help="serve it on this machine: for large runs")
    add("--port", type=option(Port), metavar="N", help="of --serve (default: a free one)")
    add("--tokenizer", metavar="FOLDER", help="show traces as they are trained on, token by token")
    add("--hub", action="store_true", help="--tokenizer may be a name on the Hugging Face hub")
    add_json(command)
    command.set_defaults(handler=_view)


def _view(given: argparse.Namespace) -> int:
    from analysis.view.page import view
    from occupancy.record.pages import new_page

    if given.serve:
        return _serve(given)
    if given.port is not None:
        raise InputError("--port belongs to --serve: with --out leave it out")
    out = new_page(given.out)
    view(given.run, out, rendered=_rendered(given))
    size = out.stat().st_size
    told = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
    lines = f"{given.out}: {told}; open it in a browser"
    if size > LARGE:
        serve = f"`fewsteps view {shlex.quote(given.run)} --serve`"
        lines += f"\nIt opens slowly: {serve} loads only what is looked at"
    show(given, {"out": given.out, "bytes": size}, lambda: [Unbroken(lines)])
    return 0


def _serve(given: argparse.Namespace) -> int:
    from analysis.view.serve import viewer

    server = viewer(given.run, port=given.port or 0, rendered=_rendered(given))
    with server, suppress(KeyboardInterrupt):
        show(given, {"address": server.address}, Unbroken(f"{server.address}\nCtrl-C ends it"))
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.2)
    return 0


def _rendered(given: argparse.Namespace) -> dict[str, Any]:
    if given.tokenizer is None:
        return {}
    from agentloop.commands.traces import as_json
    from agentloop.render import load_codec
    from agentloop.render.traces import render_run
    from occupancy.runs import open_run

    codec = load_codec(given.tokenizer, hub=given.hub, of="--tokenizer")
    return {trace.episode_id: as_json(trace, codec) for trace in render_run(open_run(given.run), codec)}
