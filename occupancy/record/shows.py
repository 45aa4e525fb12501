"""Records that show themselves: as tables in a notebook, as text where they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

WIDTH = 80
"""Characters of a printed line."""

Shown = tuple[Sequence[str], Sequence[Any]]
"""What a record says in sentences, and its pandas frames."""


class Shows:
    """What `_shown` returns, as HTML and as text; a record's repr is for its fields."""

    def _shown(self) -> Shown:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from occupancy.record.pages import shown

        lines, frames = self._shown()
        return shown(lines, *frames)

    def __str__(self) -> str:
        lines, frames = self._shown()
        how: dict[str, Any] = {"index": False, "float_format": "{:.3f}".format, "line_width": WIDTH}
        said = [line if line[:1] == "`" else fill(line, WIDTH, break_on_hyphens=False) for line in lines]
        return "\n".join([*said, *(frame.to_string(**how) for frame in frames)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython in a terminal."""
        printer.text(str(self))
