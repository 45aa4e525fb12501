"""The pages of failures name tests that exist: those of others, with a public report, and our own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("failures_elsewhere", "faults")}


def rows(page: str) -> dict[str, str]:
    """Number -> the rest of its row."""
    return dict(re.findall(r"^\| ([UF]\d+) \|(.*)\|$", PAGES[page], re.MULTILINE))


def test_every_failure_has_a_public_report_and_a_test() -> None:
    found = rows("failures_elsewhere")
    assert list(found) == [f"U{i}" for i in range(1, 33)]
    bare = [u for u, row in found.items() if "](https://github.com/" not in row or "::test_" not in row]
    assert not bare


def test_every_fault_of_our_own_has_a_test() -> None:
    found = rows("faults")
    assert list(found) == [f"F{i}" for i in range(1, len(found) + 1)]
    assert len(found) >= 15
    assert len(set(found.values())) == len(found), "a fault has two rows"
    assert PAGES["faults"].count("\n| F") == len(found), "two faults have one number"
    assert not [f for f, row in found.items() if "::test_" not in row]


@pytest.mark.parametrize("page", PAGES)
def test_every_test_on_the_page_exists(page: str) -> None:
    named = re.findall(r"`([^`]*::[^`]*)`", PAGES[page])
    assert len(named) >= len(rows(page))
    missing = []
    for name in named:
        file, _, function = name.partition("::")
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
        if function not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(name)
    assert not missing, f"write these tests again, or take them off docs/{page}.md: {missing}"
