"""A run as one self-contained page: its data compressed inside, the episode in view drawn on demand."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from analysis.view.data import view_data
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
    data = view_data(open_run(run), rendered=rendered)
    # Escapes outside ASCII would be most of the text in some languages; surrogates are the exception.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()
    script = (HERE / "view.js").read_text("utf-8")
    page = render(HERE / "view.html", script=script, folder=data["folder"], data=packed)
    return write(Path(out), page)
