"""Hooks of the site: links out of docs/, and how docstrings are shown in the reference."""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, DocstringAttribute, DocstringSectionAttributes, Extension, Object


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with [words](../FILE) as `FILE`, as the site has the documentation alone."""
    return re.sub(r"\[[^\]]+\]\(\.\./([^)#]+)[^)]*\)", r"`\1`", markdown)


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
