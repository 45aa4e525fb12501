"""Hook of the site: links out of docs/ become names of files, as the site has the documentation alone."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with [words](../FILE) as `FILE`."""
    return re.sub(r"\[[^\]]+\]\(\.\./([^)#]+)[^)]*\)", r"`\1`", markdown)
