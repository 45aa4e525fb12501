"""A report as one self-contained page: the decision first, then evidence, method and versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.compare.paired import Comparison
from analysis.page import HEADS, candidate_row, marks, pixels, png
from analysis.plan.answer import shown
from analysis.report.gather import Report, report_of
from occupancy.record.drawing import FORMATS, save
from occupancy.record.errors import InputError, own_version
from occupancy.record.pages import render, write

RATE_HEADS = ("evaluation", "pass@1", "95 % interval", "SE by task", "tasks", "attempts")
DIFFERENCE_HEADS = (
    "difference",
    "points",
    "95 % interval",
    "SE",
    "p",
    "p (Holm)",
    "smallest visible",
    "tasks",
)


def report(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    budget: float | None = None,
    pool: int | None = None,
    title: str = "Report",
) -> Report:
    """Write the report of run folders, evaluations, trainings and studies; returns what it says.

    Args:
        folders: Run folders of any kind, trainings and studies.
        out: The page, a self-contained HTML file.
        budget: Teacher tokens. With a pilot among the folders the report holds its plan; with another run,
            the pilot to buy first.
        pool: Tasks that the budget can be spread over.
        title: Of the page.

    Raises:
        InputError: A budget without exactly one pilot or run, or `out` is in no folder.
        DataError: A folder that cannot be read or is of no kind that is reported.
    """
    out = Path(out)
    if not out.parent.is_dir():
        raise InputError(f"{out} cannot be written: expected {out.parent} to be a folder; make it first")
    found = report_of(folders, budget=budget, pool=pool)
    candidates = [] if found.plan is None else shown(found.plan)
    page = render(
        Path(__file__).with_name("report.html"),
        title=title,
        folders=[str(folder) for folder in folders],
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        report=found,
        rate_heads=RATE_HEADS,
        rates=_rates(found.comparison),
        difference_heads=DIFFERENCE_HEADS,
        differences=_differences(found.comparison),
        candidate_heads=HEADS,
        candidates=[candidate_row(c) for c in candidates],
        marks=marks(candidates, found.plan) if found.plan else [],
        images=[(one, png(one.figure), pixels(one.figure)) for one in found.evidence],
        studies=[block for text in found.studies for block in _blocks(text)],
        runs=[run.values() for run in found.runs],
        version=own_version(),
    )
    write(out, page)
    return found


def save_figures(found: Report, folder: str | Path) -> list[Path]:
    """Write every figure of a report as PDF, PNG and SVG into a folder; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [re.sub(r"\W+", "_", one.title.rpartition(": ")[2].lower()) for one in found.evidence]
    numbered = [f"{at:02d}_{name}" for at, name in enumerate(names, start=1)]
    return [
        save(one.figure, folder / f"{name}{suffix}")
        for name, one in zip(numbered, found.evidence, strict=True)
        for suffix in FORMATS
    ]


def _rates(compared: Comparison | None) -> list[tuple[Any, ...]]:
    rates = () if compared is None else compared.rates
    return [
        (r.arm, f"{r.rate:.3f}", _between(r.low, r.high), _number(r.se), f"{r.tasks:,}", f"{r.attempts:,}")
        for r in rates
    ]


def _differences(compared: Comparison | None) -> list[tuple[Any, ...]]:
    return [
        (
            f"{d.b} minus {d.a}",
            f"{100 * d.difference:+.1f}",
            _between(d.low, d.high, points=True),
            _number(d.se, points=True),
            *("< 0.001" if p is not None and p < 0.001 else _number(p) for p in (d.p, d.p_holm)),
            _number(d.detectable, points=True),
            f"{d.tasks:,}",
        )
        for d in (() if compared is None else compared.differences)
    ]


def _number(value: float | None, *, points: bool = False) -> str:
    return "-" if value is None else f"{100 * value:.1f}" if points else f"{value:.3f}"


def _between(low: float | None, high: float | None, *, points: bool = False) -> str:
    if low is None or high is None:
        return "-"
    return f"{100 * low:+.1f} to {100 * high:+.1f}" if points else f"{low:.3f} to {high:.3f}"


def _blocks(markdown: str) -> Iterator[dict[str, Any]]:
    """Headings, tables and paragraphs of what `analysis.study.telling.markdown` wrote."""
    heading = ""
    for block in markdown.replace("**", "").strip().split("\n\n"):
        lines = block.split("\n")
        if block.startswith("#"):
            heading = block.lstrip("# ")
        elif block.startswith("|"):
            cells = [[cell.strip() for cell in line[1:-1].split(" |")] for line in lines]
            yield {"caption": heading, "heads": cells[0], "rows": cells[2:]}
            heading = ""
        else:
            if heading:
                yield {"heading": heading}
                heading = ""
            if block.startswith("- "):
                yield {"items": [line.removeprefix("- ") for line in lines]}
            else:
                yield {"text": block}
