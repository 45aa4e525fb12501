"""Self-contained HTML pages from templates: one frame, one style sheet, every value escaped, no script.

A template extends `page.html`, beside this module, and fills its blocks `title` and `body`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def render(template: Path, **values: Any) -> str:
    """The page that a template makes of `values`; whatever is inserted is escaped, and must be given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return str(environment.get_template(template.name).render(values))


def write(file: Path, page: str) -> Path:
    """Write a page as UTF-8, lone surrogates as question marks; returns its path."""
    file.write_text(page, "utf-8", errors="replace")
    return file
