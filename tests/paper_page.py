"""Writes docs/paper.md from docs/paper.toml: which of the paper's differences exceed their noise."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

from sft.settings import PRESETS

ROOT = Path(__file__).parents[1]
SHOWN = ("lr", "batch", "row_tokens", "epochs", "betas", "eps", "weight_decay", "precision")
POWERED = 1.96 + 0.84
"""Standard errors of a difference that is found in 80 % of repetitions at 5 %."""


def page() -> str:
    """The page as text."""
    found = tomllib.loads((ROOT / "docs" / "paper.toml").read_text("utf-8"))
    return "\n".join(_lines(found)) + "\n"


def se(percent: float, trials: int) -> float:
    """Standard error of a rate in points, as if all trials were independent: the least that it can be."""
    rate = percent / 100
    return 100 * sqrt(rate * (1 - rate) / trials)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    terminal = found["terminal"]
    trials, rates = terminal["trials"], terminal["rates"]
    yield "# The paper's numbers, and which differences exceed their noise"
    yield ""
    yield "After this page you know what the paper's published numbers can show."
    yield f"*{found['title']}*"
    yield f"({found['cite']}). `python tests/paper_page.py` makes this page from `docs/paper.toml`,"
    yield "which says where each number is. Cite the paper itself."
    yield ""
    yield f"## {terminal['place'][0].upper()}{terminal['place'][1:]}"
    yield ""
    yield f"{trials} trials over {terminal['questions']} questions. The standard error is that of independent"
    yield "trials; trials of one question are alike, so the true error is larger."
    yield ""
    rows = [(r["label"], f"{r['value']:.1f}", f"{se(r['value'], trials):.1f}") for r in rates]
    yield from _table(("arm", "success, %", "SE, points"), rows)
    yield ""
    middle = sorted(r["value"] for r in rates)[len(rates) // 2]
    least = POWERED * sqrt(2) * se(middle, trials)
    yield f"A difference between two such arms has an SE of {sqrt(2) * se(middle, trials):.1f} points,"
    yield f"unless pairing by question lowers it: below {least:.0f} points it would often be missed."
    yield ""
    yield from _table(("difference", "points", "SE", "z", "significant at 5 %"), _pairs(rates, trials))
    yield ""
    yield "With all pairs compared, Holm's method asks for more than z = 1.96 of the largest difference."
    yield "`fewsteps compare` does this from attempts, paired and clustered ([compare.md](compare.md))."
    yield ""
    yield "## Where text and tables disagree"
    yield ""
    yield from _table(
        ("", "one place", "the other"), ((d["what"], d["one"], d["other"]) for d in found["differences"])
    )
    yield ""
    yield "fewsteps follows the section and the table, and trains the final student from pi_0 again."
    yield ""
    yield "## Hyper-parameters (appendix on training)"
    yield ""
    yield "From `sft.settings`, as `fewsteps train --preset NAME` uses them; * : not in the paper."
    yield ""
    rows = []
    for name, settings in PRESETS.items():
        cells = [f"{getattr(settings, f)}{' *' if f in settings.ours else ''}" for f in SHOWN]
        rows.append((f"`{name}`", *cells))
    yield from _table(("preset", *SHOWN), rows)
    yield ""
    yield "## Protocol"
    yield ""
    yield from _table(("", "published"), found["protocol"].items())


def _pairs(rates: Sequence[dict[str, Any]], trials: int) -> Iterator[tuple[str, ...]]:
    for one, other in combinations(rates, 2):
        gap = other["value"] - one["value"]
        error = sqrt(se(one["value"], trials) ** 2 + se(other["value"], trials) ** 2)
        z = gap / error
        said = "yes" if abs(z) > 1.96 else "no"
        yield f"{other['value']:.1f} - {one['value']:.1f}", f"{gap:+.1f}", f"{error:.1f}", f"{z:+.1f}", said


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    (ROOT / "docs" / "paper.md").write_text(page(), "utf-8")
