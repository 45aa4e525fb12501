"""A run as one self-contained page: its data compressed inside, the episode in view drawn on demand."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.view.data import by_words, view_data
from occupancy.record.pages import render, write
from occupancy.runs import open_run

HERE = Path(__file__).parent


def view(run: str | Path, out: str | Path, *, rendered: dict[str, Any] | None = None) -> Path:
    """Write the page of a run folder; returns its path.

    Args:
        run: A run folder of any kind: collected, imported, an evaluation.
        out: The page, a self-contained HTML file.
        rendered: Traces as they are trained on, by episode_id (`agentloop.commands.traces.as_json`).
    """
    return write(Path(out), page_of(view_data(open_run(run), rendered=rendered)))


def page_of(data: Mapping[str, Any]) -> str:
    """The page of what `view_data` returns; without its `turns` the page asks its server for them."""
    words, texts = by_words(data["texts"])
    packed = b64encode(zlib.compress(as_json({**data, "words": words, "texts": texts}), 6)).decode()
    script = (HERE / "view.js").read_text("utf-8")
    served = "turns" not in data
    return render(HERE / "view.html", script=script, folder=data["folder"], data=packed, served=served)


def as_json(data: Any) -> bytes:
    """JSON in UTF-8, half characters as question marks; escapes would swell texts outside ASCII."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")
