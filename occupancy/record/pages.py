"""Self-contained HTML pages from templates: one frame, one style sheet, every value escaped, no network.

A template extends `page.html`, beside this module, and fills its blocks `title` and `body`. The frame forbids
every script and every request; a page with a script of ours names its hash in the block `policy`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.record.drafts import new_file, write_whole

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup


def render(template: Path, **values: Any) -> str:
    """The page that a template makes of `values`; whatever is inserted is escaped, and must be given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(script_hash=_script_hash, trusted=Markup)
    environment.filters.update(code=_code, words=_words)
    return str(environment.get_template(template.name).render(values))


def _code(line: str) -> Markup:
    """A line with what stands between backticks as code; escaped."""
    from markupsafe import Markup, escape

    *pairs, last = re.split(r"`([^`]+)`", line)
    coded = zip(pairs[::2], pairs[1::2], strict=True)
    return Markup("").join(
        [*(escape(text) + Markup("<code>{}</code>").format(code) for text, code in coded), escape(last)]
    )


def _words(rows: Sequence[Sequence[object]]) -> list[bool]:
    """Whether each column of a table holds words, which begin at the left."""
    return [all(str(cell)[:1].isalpha() for cell in column) for column in zip(*rows, strict=False)]


def shown(lines: Sequence[str], *tables: pd.DataFrame) -> str:
    """Lines and tables as HTML for a notebook; texts are escaped."""
    said = [f"<p>{_code(line)}</p>" for line in lines]
    return "".join([*said, *(table.to_html(index=False, float_format="{:.3f}".format) for table in tables)])


def new_page(name: str | Path, *, option: str = "--out") -> Path:
    """The path of a page to write; InputError where it cannot be, or where another file is."""
    return new_file(name, begins="<!doctype html", what="an HTML file", option=option)


def write(file: Path, page: str) -> Path:
    """Write a page, whole or not at all, with half characters as question marks; returns its path."""
    new_page(file)
    if file.is_symlink() or (file.exists() and not file.is_file()):  # /dev/stdout keeps its place
        file.write_text(page, "utf-8", errors="replace")
    else:
        write_whole(file, page.encode("utf-8", "replace").decode())
    return file


def _script_hash(script: str) -> str:
    """What a Content-Security-Policy calls a script."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
