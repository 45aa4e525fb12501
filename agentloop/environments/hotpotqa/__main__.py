"""What belongs to HotpotQA alone: build an index, serve it, look at the golds, score a run once more.

python -m agentloop.environments.hotpotqa index --corpus wiki-18.jsonl
python -m agentloop.environments.hotpotqa serve --port 8000
python -m agentloop.environments.hotpotqa golds
python -m agentloop.environments.hotpotqa score RUN
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from occupancy.record.show import Parser, command_line
from occupancy.record.specs import Few, option

from .catalogue import open_catalogue
from .questions import find_folder
from .rescore import rescore
from .retrieval.index import open_bm25
from .retrieval.server import Port, serve
from .scoring import gold_report


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code, as those of `fewsteps`."""
    return command_line(parser(), arguments)


def parser() -> Parser:
    """The module's command line."""
    what = (__doc__ or "").partition("\n")[0]
    top = Parser(prog="python -m agentloop.environments.hotpotqa", description=what)
    commands = top.add_subparsers(dest="command", required=True)
    index = commands.add_parser("index", help="build and store the index of a corpus")
    server = commands.add_parser("serve", help="serve Search-R1's retrieval interface")
    for command in (index, server):
        several = ".parquet or .jsonl; may be repeated"
        command.add_argument("--corpus", type=Path, action="append", help=several)
        command.add_argument("--cache", type=Path, help="folder of stored indexes")
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine)")
    server.add_argument("--port", type=option(Port), default=8000)
    topk = "passages where a request names no number"
    server.add_argument("--topk", type=option(Few), default=3, help=topk)
    server.add_argument("--processes", type=option(Few), default=1, help="processes that share the port")
    golds = commands.add_parser("golds", help="report golds that string comparison is unfair to")
    scored = commands.add_parser("score", help="exact match, F1 and Search-R1's score of a run's episodes")
    scored.add_argument("run")
    for command in (index, server, golds, scored):
        command.set_defaults(handler=_run)
    return top


def _run(given: argparse.Namespace) -> None:
    if given.command == "serve":
        how = {name: getattr(given, name) for name in ("host", "port", "topk", "processes", "cache")}
        serve(_corpus(given), **how)
        return
    found: object
    match given.command:
        case "index":
            found = {"index": open_bm25(_corpus(given), cache=given.cache).name}
        case "golds":
            questions = open_catalogue(find_folder()).questions
            found = asdict(gold_report(gold for question in questions for gold in question.golds))
        case _:
            found = rescore(Path(given.run), open_catalogue(find_folder()))
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def _corpus(given: argparse.Namespace) -> list[Path]:
    return given.corpus or [find_folder() / "corpus.parquet"]


if __name__ == "__main__":
    raise SystemExit(main())
