"""Python blocks of the documentation run as they are printed, and its pictures exist."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.cli import main, parser

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("compare", "occupancy", "python", "report")
"""Pages whose blocks stand alone; others have tests of their own."""


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_run(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        command = [sys.executable, "-W", "error", "-c", block]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_what_the_page_of_imports_converts_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "import.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(block, {})
    (line,) = [line for line in page.splitlines() if line.startswith("    fewsteps import react.jsonl")]
    assert main(shlex.split(line)[1:]) == 0
    assert "1 rollout), 2 turns (2 student)" in " ".join(capsys.readouterr().out.split())


def test_the_tutorial_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "analysis").mkdir()
    for folder in ("pilot", "demonstrations"):
        (tmp_path / "analysis" / folder).symlink_to(DOCS.parent / "analysis" / folder)
    blocks = re.findall(r"```fewsteps\n(.*?)```", (DOCS / "tutorial.md").read_text("utf-8"), re.DOTALL)
    for line in "".join(blocks).splitlines():
        _, *arguments = shlex.split(line)
        assert main(arguments) == 0, line
    for made in ("plan.toml", "pilot.html", "report.html", "cut-3/run.json", "figures"):
        assert (tmp_path / made).exists()


@pytest.mark.parametrize(
    "page",
    [*sorted(DOCS.glob("*.md")), *sorted(DOCS.parent.glob("benchmarks/*.md"))],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_pictures_and_linked_pages_exist(page: Path) -> None:
    named = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [name for name in named if not (page.parent / name).exists()]
    assert not missing, f"{page.name} links to {missing}"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_formulas_can_be_read_without_a_renderer(page: Path) -> None:
    text = re.sub(r"```.*?```|^ {4}.*$|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert "$" not in text, "the site has no renderer of formulas: write them as text"


@pytest.mark.parametrize(
    "page",
    [*sorted(DOCS.glob("*.md")), *sorted(DOCS.parent.glob("benchmarks/**/*.md"))],
    ids=lambda page: page.stem,
)
def test_rows_are_in_a_table(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    starts = re.findall(r"(?:^|\n)(?:[^|\n][^\n]*)?\n(\|[^\n]*\n[^\n]*)", text)
    assert not [rows for rows in starts if not re.search(r"\n\|[-:| ]+\|$", rows)]


def commands(page: Path) -> list[str]:
    """Commands of a page in indented or fenced blocks, without marks of what may be left out."""
    text = re.sub(r"\\\n\s*", " ", page.read_text("utf-8"))
    fenced = "\n".join(re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL))
    lines = re.findall(r"^ {4}(fewsteps .*)$", text, flags=re.MULTILINE)
    lines += re.findall(r"^(fewsteps .*)$", fenced, flags=re.MULTILINE)
    return [re.sub(r"[][]|\|\w+|…", "", line) for line in lines]


@pytest.mark.parametrize(
    "page", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda p: p.stem
)
def test_every_command_that_is_printed_is_one(page: Path) -> None:
    for line in commands(page):
        parser().parse_args(shlex.split(line, comments=True)[1:])


def test_the_start_page_has_every_command() -> None:
    (found,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    page = (DOCS / "index.md").read_text("utf-8")
    assert not [name for name in found.choices if f"`fewsteps {name}" not in page]
