"""Pages escape whatever they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from agentloop.render.trace_page import trace_page
from occupancy.record.pages import render, write

HOSTILE = "</pre><script>alert('x')</script>\"<img src=x onerror='y'>&amp;\ud800"


def test_hostile_text_is_escaped_wherever_it_comes_from(tmp_path: Path) -> None:
    piece = {"text": HOSTILE, "author": HOSTILE, "target": True, "ids": HOSTILE}
    row = {"pieces": [piece], "targets": HOSTILE, "ids": HOSTILE}
    trace = {"episode_id": HOSTILE, "rows": [row], "dropped": [[HOSTILE, HOSTILE]]}
    file = write(tmp_path / "page.html", trace_page([trace], {HOSTILE: HOSTILE}, title=HOSTILE))
    page = file.read_text("utf-8")
    assert page.count("&lt;script&gt;") == 13
    assert not re.search("<script|<img|onerror='|</pre><", page.replace("</pre></details>", ""))


def test_text_is_shown_as_it_is() -> None:
    texts = ["  first\n\n", "\n{{ second }}", "\tthird  "]
    pieces = [{"text": text, "author": "student", "target": False, "ids": 1} for text in texts]
    trace = {"episode_id": "e", "rows": [{"pieces": pieces, "targets": 0, "ids": 3}], "dropped": []}
    page = trace_page([trace], {}, title="t")
    shown = page[page.index("<pre>") + 5 : page.index("</pre>")]
    assert re.sub("<[^>]*>", "", shown) == "".join(texts)


def test_a_value_that_is_missing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text('{% extends "page.html" %}{% block body %}{{ name }}{% endblock %}')
    assert "Ann" in render(tmp_path / "one.html", name="Ann")
    with pytest.raises(UndefinedError):
        render(tmp_path / "one.html")
