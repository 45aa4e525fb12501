"""A report as one self-contained page: the decision first, then evidence, method and versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.compare.telling import DIFFERENCE_HEADS, RATE_HEADS, difference_row, rate_row
from analysis.page import HEADS, candidate_row, marks, pixels, png
from analysis.plan.answer import shown
from analysis.report.gather import Report, report_of
from occupancy.record.drawing import FORMATS, save
from occupancy.record.errors import own_version
from occupancy.record.pages import new_page, render, write


def report(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    budget: float | None = None,
    pool: int | None = None,
    already: Sequence[str | Path] = (),
    title: str = "Report",
) -> Report:
    """Write the report of run folders, evaluations, trainings and studies; returns what it says.

    Args:
        folders: Run folders of any kind, trainings and studies.
        out: The page, a self-contained HTML file.
        budget: Teacher tokens. With a pilot among the folders the report holds its plan; with another run,
            the pilot to buy first.
        pool: Tasks that the budget can be spread over.
        already: Runs that are paid for, as of `plan`.
        title: Of the page.

    Raises:
        InputError: A budget without exactly one pilot or run, `already` without a plan, or `out` cannot be
            written.
        DataError: A folder that cannot be read or is of no kind that is reported.
    """
    out = new_page(out)
    found = report_of(folders, budget=budget, pool=pool, already=already)
    candidates = [] if found.plan is None else shown(found.plan)
    compared = found.comparison
    rates = [rate_row(rate, rate.arm) for rate in compared.rates] if compared else []
    pairs = compared.differences if compared else ()
    page = render(
        Path(__file__).with_name("report.html"),
        title=title,
        folders=[str(folder) for folder in folders],
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        report=found,
        rate_heads=("evaluation", *RATE_HEADS[1:]),
        rates=rates,
        difference_heads=("difference", *DIFFERENCE_HEADS[1:]),
        differences=[difference_row(d, f"{d.b} minus {d.a}") for d in pairs],
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
