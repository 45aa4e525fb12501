"""Rendered traces as one HTML page: tokens in their author's colour, targets marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy.record.pages import render

_AUTHORS = ("task", "environment", "student", "teacher", "template")


def trace_page(traces: Sequence[Mapping[str, Any]], counts: Mapping[str, Any], *, title: str) -> str:
    """The page of traces in the form of `commands.traces.as_json`, under the counts of the whole run."""
    template = Path(__file__).with_name("traces.html")
    return render(template, traces=traces, counts=counts, title=title, authors=_AUTHORS)
