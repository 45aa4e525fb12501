"""The README's file map, made from the first line of every module: python tests/file_map.py writes it."""

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
    """The map as Markdown, one line a module; a folder inside a package is one line."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    lines = []
    for package in PACKAGES:
        lines.append(f"    {package + '/':<34}{first_line(ROOT / package / '__init__.py')}")
        inside = sorted({"/".join(f.split("/")[:2]) for f in tracked if f.startswith(f"{package}/")})
        for name in inside:
            path = ROOT / name
            if path.is_dir() and (path / "__init__.py").is_file():
                lines.append(f"      {name.split('/')[1] + '/':<32}{first_line(path / '__init__.py')}")
            elif path.is_dir():
                lines.append(f"      {name.split('/')[1] + '/':<32}data, with a README")
            elif path.suffix == ".py" and path.name != "__init__.py":
                lines.append(f"      {path.name:<32}{first_line(path)}")
    lines += [f"    {name + '/':<34}{meaning}" for name, meaning in FOLDERS.items()]
    return "\n".join(lines)


def first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return docstring.splitlines()[0] if docstring else ""


def with_map(readme: str) -> str:
    before, heading, rest = readme.partition("## File map\n")
    after = rest.partition("\n## ")[2]
    return f"{before}{heading}\n{file_map()}\n\n## {after}"


if __name__ == "__main__":
    file = ROOT / "README.md"
    file.write_text(with_map(file.read_text("utf-8")), "utf-8")
