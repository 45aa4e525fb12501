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
    """The map as Markdown: every module of the packages, folder by folder."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    lines = []
    for package in PACKAGES:
        modules = sorted(f for f in tracked if f.startswith(f"{package}/") and f.endswith(".py"))
        for folder in sorted({str(Path(f).parent) for f in modules}):
            depth = "  " * folder.count("/")
            name = f"{depth}{folder.rpartition('/')[2]}/"
            lines.append(f"    {name:<34}{first_line(ROOT / folder / '__init__.py')}")
            for file in modules:
                if str(Path(file).parent) == folder and not file.endswith("__init__.py"):
                    lines.append(f"    {f'{depth}  {Path(file).name}':<34}{first_line(ROOT / file)}")
    lines += [f"    {name + '/':<34}{meaning}" for name, meaning in FOLDERS.items()]
    return "\n".join(lines)


def first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return docstring.splitlines()[0] if docstring else ""


def page() -> str:
    head = "# Files\n\nWhere everything is, a line a module; `python tests/file_map.py` writes this page."
    return f"{head}\n\n{file_map()}\n"


if __name__ == "__main__":
    (ROOT / "docs" / "files.md").write_text(page(), "utf-8")
