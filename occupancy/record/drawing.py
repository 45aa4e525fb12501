"""Figures: one palette that colour-blind readers can tell apart, one style, and how a figure is saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from occupancy.record.drafts import whole_file
from occupancy.record.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")
INK, FAINT = "#1f2933", "#c3ccd5"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c677d", "#000000")
"""Okabe and Ito's colours, in an order that keeps neighbours apart; markers say the same without colour."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FORMATS = (".pdf", ".png", ".svg")
DPI = 160
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,
    "svg.hashsalt": "fewsteps",
    "pdf.fonttype": 42,
}


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """The function, drawing in the style of all figures."""

    @wraps(draw)
    def in_style(*given: P.args, **named: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(STYLE), warnings.catch_warnings():
            # Names of folders and states may hold anything; the warning would print it.
            warnings.filterwarnings("ignore", r"Glyph \d+ ")
            return draw(*given, **named)

    return in_style


@styled
def panels(
    count: int = 1, *, width: float = 4.6, height: float = 3.4, **how: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels from left to right; width and height in inches, of each panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, **how)[0])


def looks() -> Iterator[dict[str, Any]]:
    """Colour and marker of one line after another."""
    pairs = cycle(zip(COLOURS, MARKERS, strict=True))
    return ({"color": colour, "marker": marker} for colour, marker in pairs)


@styled
def save(figure: Figure, file: str | Path) -> Path:
    """Write a figure as PDF, PNG or SVG, the same bytes every time, whole or not at all; returns its path."""
    file = Path(file)
    if file.suffix not in FORMATS:
        raise InputError(f"{file}: expected the name of a figure that ends in {', '.join(FORMATS)}")
    if not file.parent.is_dir():
        raise InputError(f"{file} cannot be written: expected {file.parent} to be a folder; make it first")
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with whole_file(file) as draft:
        figure.savefig(draft, format=file.suffix[1:], dpi=DPI, metadata=metadata[file.suffix])
    return file
