"""Python blocks of the documentation run as they are printed, and its pictures exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("compare", "report")
"""Pages whose blocks stand alone; others have tests of their own."""


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_run(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        command = [sys.executable, "-W", "error", "-c", block]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pictures_and_linked_pages_exist(page: Path) -> None:
    named = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [name for name in named if not (DOCS / name).exists()]
    assert not missing, f"{page.name} links to {missing}"
