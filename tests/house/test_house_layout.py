"""Rules of the house that a linter does not know."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from file_map import first_line, page
from loading import loaded_by

ROOT = Path(__file__).parents[2]


def tracked(pattern: str = "*") -> list[Path]:
    listed = subprocess.check_output(["git", "ls-files", pattern], cwd=ROOT, text=True)
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["collect", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import contextlib, io\n"
        "from analysis.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({arguments!r})"
    )
    assert loaded_by(code) == []


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text("utf-8").splitlines()) for f in tracked("*.py")}
    long = {name: lines for name, lines in lengths.items() if lines > 400}
    assert not long, f"split these files: {long}"


def test_no_file_is_named_after_nothing() -> None:
    empty = re.compile(r"(^|/)(utils?|helpers?|common|misc|managers?)(\.py|/)")
    bad = [str(f.relative_to(ROOT)) for f in tracked() if empty.search(str(f.relative_to(ROOT)))]
    assert not bad, f"name these after what they do: {bad}"


def test_the_file_map_is_up_to_date() -> None:
    map_ = (ROOT / "docs" / "files.md").read_text("utf-8")
    assert map_ == page(), "the file map is out of date: run python tests/file_map.py"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(f) for f in tracked("*.py") if "tests" not in f.relative_to(ROOT).parts[:1] and not first_line(f)
    ]
    assert not silent, f"say in the first line what these are for: {silent}"


def test_readme_example_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert examples, "README.md has no Python example"
    for example in examples:
        command = [sys.executable, "-W", "error", "-c", example]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_no_path_of_a_machine_and_no_registry_host() -> None:
    told = re.compile(r"/(?:work|root|home/\w+)/|\bpypi\.org|files\.pythonhosted|registry\.npmjs")
    bad = {}
    for file in tracked():
        if file.suffix in (".png", ".parquet", ".npy", ".sqlite") or file == Path(__file__):
            continue
        hits = told.findall(file.read_text("utf-8", errors="replace"))
        if hits:
            bad[str(file.relative_to(ROOT))] = hits
    assert not bad
