"""Hooks of the site: links out of docs/, docstrings of the reference, and the notebook, executed."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from textwrap import dedent
from typing import Any

from griffe import Class, DocstringAttribute, DocstringSectionAttributes, Extension, Object
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.py"


def on_files(files: Files, *, config: Any) -> Files:
    """The pages, and the notebook as one."""
    files.append(File.generated(config, "notebook.md", content="\n\n".join(notebook_page())))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with [words](../FILE) as `FILE`, as the site has the documentation alone."""
    markdown = markdown.replace("](notebook.py)", "](notebook.md)")
    return re.sub(r"\[[^\]]+\]\(\.\./([^)#]+)[^)]*\)", r"`\1`", markdown)


def notebook_page() -> Iterator[str]:
    """Texts, code and outputs of the notebook's cells; marimo's own export needs a network to be read."""
    sys.path.insert(0, str(ROOT))
    outputs, _ = runpy.run_path(str(NOTEBOOK))["app"].run()
    source = NOTEBOOK.read_text("utf-8")
    cells = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    for cell, output in zip(cells, outputs, strict=True):
        *before, last = [node for node in cell.body if not isinstance(node, ast.Return)]
        if isinstance(last, ast.Expr) and ast.unparse(last).startswith("mo.md("):
            (text,) = last.value.args  # type: ignore[attr-defined]
            yield dedent(ast.literal_eval(text)).strip()
            continue
        lines = source.splitlines()[(before or [last])[0].lineno - 1 : last.end_lineno]
        yield "```python\n" + dedent("\n".join(lines)) + "\n```"
        if output is not None:
            yield _shown(output)


def _shown(output: Any) -> str:
    if hasattr(output, "savefig"):
        drawn = BytesIO()
        output.savefig(drawn, format="png", dpi=110)
        return f'<img alt="" src="data:image/png;base64,{b64encode(drawn.getvalue()).decode()}">'
    html = output.to_html(index=False) if hasattr(output, "to_html") else output._repr_html_()
    return "<div>" + re.sub(r"\n\s*", "", re.sub(r"<(table|tr)[^>]*>", r"<\1>", html)) + "</div>"


class Docstrings(Extension):
    """Sections `Example:` are code like griffe's own `Examples:`, and fields of dataclasses a section."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """List the fields."""
        fields = [
            DocstringAttribute(
                name, annotation=one.annotation, description=one.docstring.value if one.docstring else ""
            )
            for name, one in cls.attributes.items()
            if one.annotation is not None and not name.startswith("_")
        ]
        if fields and cls.docstring:
            sections = [*cls.docstring.parse("google"), DocstringSectionAttributes(fields)]
            cls.docstring.__dict__["parsed"] = sections
