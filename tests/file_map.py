"""The file map: python tests/file_map.py writes docs/files.md from the first line of every module."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("occupancy", "simulate", "agentloop", "sft", "analysis")
FOLDERS = {
    "tests": "one file a behaviour; naive twins of every kernel; a toy world",
    "benchmarks": "what was measured, with machine, versions and date; the scripts that measured it",
    "docs": "formats of files, and how each part works",
    "locks": "exact versions that make installs",
}


def file_map() -> str:
    """The map as Markdown: a table a package, folder by folder."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    lines = []
    for package in PACKAGES:
        modules = sorted(f for f in tracked if f.startswith(f"{package}/") and f.endswith(".py"))
        opens = first_line(ROOT / package / "__init__.py")
        lines += [f"## {package}", "", opens, "", "| file | what it is for |", "|---|---|"]
        for folder in sorted({str(Path(f).parent) for f in modules}):
            if folder != package:
                lines.append(_row(f"{folder}/", first_line(ROOT / folder / "__init__.py")))
            own = [f for f in modules if str(Path(f).parent) == folder and not f.endswith("__init__.py")]
            lines += [_row(file, first_line(ROOT / file)) for file in own]
        lines.append("")
    lines += ["## More", "", "| folder | what it holds |", "|---|---|"]
    return "\n".join([*lines, *(_row(f"{name}/", meaning) for name, meaning in FOLDERS.items())])


def _row(name: str, meaning: str) -> str:
    escaped = meaning.replace("|", "\\|")
    return f"| `{name}` | {escaped} |"


def first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return docstring.splitlines()[0] if docstring else ""


def page() -> str:
    head = "# Files\n\nWhere everything is, a line a module; `python tests/file_map.py` writes this page."
    return f"{head}\n\n{file_map()}\n"


if __name__ == "__main__":
    (ROOT / "docs" / "files.md").write_text(page(), "utf-8")
