"""What a command prints: one JSON object under --json and nothing else, or a text for a person."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --json."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def show(given: argparse.Namespace, report: dict[str, Any], text: str | Callable[[], None]) -> None:
    """Print `report` as JSON where the command was given --json; else print `text`, or let it print."""
    if given.json:
        sys.stdout.write(f"{json.dumps(report)}\n")
    elif callable(text):
        text()
    else:
        from rich.console import Console

        Console(markup=False, highlight=False).print(text)
