"""docs/failures_elsewhere.md names tests that exist, for every failure a report and a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failures_elsewhere.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| (U\d+) \|(.*)\|$", PAGE, re.MULTILINE))


def test_every_failure_has_a_public_report_and_a_test() -> None:
    assert list(ROWS) == [f"U{i}" for i in range(1, 33)]
    bare = [u for u, row in ROWS.items() if "](https://github.com/" not in row or "::test_" not in row]
    assert not bare


def test_every_test_on_the_page_exists() -> None:
    named = re.findall(r"`([^`]*::[^`]*)`", PAGE)
    assert len(named) > 60
    missing = []
    for name in named:
        file, _, function = name.partition("::")
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
        if function not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(name)
    assert not missing, f"write these tests again, or take them off docs/failures_elsewhere.md: {missing}"
