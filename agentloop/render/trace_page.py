"""Rendered traces as one HTML page: tokens in their author's colour, targets marked, no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.55 ui-monospace, monospace;
  border: 1px solid #8884; border-radius: 6px; padding: .8rem; }
summary { cursor: pointer; font-weight: 600; margin-top: 1rem; }
table { border-collapse: collapse; } td { padding: .1rem .8rem .1rem 0; font-variant-numeric: tabular-nums; }
.task { color: #0b7285; } .environment { color: #2b8a3e; } .student { color: #b35c00; }
.teacher { color: #9c36b5; } .template { color: #868e96; }
.target { background: #9c36b526; border-bottom: 2px solid #9c36b5; }
#only:checked ~ main span:not(.target) { opacity: .25; }
.dropped { color: #c92a2a; }
"""
_AUTHORS = ("task", "environment", "student", "teacher", "template")


def trace_page(traces: Sequence[Mapping[str, Any]], counts: Mapping[str, Any], *, title: str) -> str:
    """The page of traces in the form of `trace_commands.as_json`, under the counts of the whole run."""
    numbers = "".join(f"<tr><td>{escape(k)}</td><td>{escape(str(v))}</td></tr>" for k, v in counts.items())
    legend = " ".join(f"<span class='{author}'>{author}</span>" for author in _AUTHORS)
    return "\n".join(
        [
            f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>",
            f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{legend} <span class='teacher target'>target</span></p><table>{numbers}</table>",
            "<input type='checkbox' id='only'><label for='only'> fade what is no target</label><main>",
            *(part for trace in traces for part in _trace(trace)),
            "</main></html>",
        ]
    )


def _trace(trace: Mapping[str, Any]) -> Iterable[str]:
    rows = trace["rows"]
    for number, row in enumerate(rows, start=1):
        yield (
            f"<details open=''><summary>{escape(trace['episode_id'])}, row {number} of {len(rows)}: "
            f"{row['targets']} targets of {row['ids']} ids</summary><pre>"
            + "".join(_piece(piece) for piece in row["pieces"])
            + "</pre></details>"
        )
    for message, reason in trace["dropped"]:
        yield f"<p class='dropped'>message {message} is no target: {escape(reason)}</p>"


def _piece(piece: Mapping[str, Any]) -> str:
    target = " target" if piece["target"] else ""
    return (
        f"<span class='{piece['author']}{target}' title='{piece['author']}{target}, {piece['ids']} ids'>"
        f"{escape(piece['text'])}</span>"
    )
