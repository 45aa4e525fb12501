"""Pages escape whatever they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from occupancy.record.pages import render, write

HOSTILE = "</pre><script>alert('x')</script>\"<img src=x onerror='y'>&amp;\ud800"


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    template = tmp_path / "one.html"
    template.write_text(
        '{% extends "page.html" %}{% block title %}{{ name }}{% endblock %}'
        '{% block body %}<p title="{{ name }}">{{ name }}</p>{% endblock %}'
    )
    page = write(tmp_path / "page.html", render(template, name=HOSTILE)).read_text("utf-8")
    assert page.count("&lt;script&gt;") == 3
    assert not re.search("<script|<img|onerror='|</pre>", page)


def test_commands_between_backticks_are_code_and_escaped(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text(
        '{% extends "page.html" %}{% block body %}<p>{{ line | code }}</p>{% endblock %}'
    )
    page = render(tmp_path / "one.html", line="Run `plan <A>`, not `<b>`; a lone ` stays & so")
    coded = "<p>Run <code>plan &lt;A&gt;</code>, not <code>&lt;b&gt;</code>; a lone ` stays &amp; so</p>"
    assert coded in page


def test_a_value_that_is_missing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text('{% extends "page.html" %}{% block body %}{{ name }}{% endblock %}')
    assert "Ann" in render(tmp_path / "one.html", name="Ann")
    with pytest.raises(UndefinedError):
        render(tmp_path / "one.html")
