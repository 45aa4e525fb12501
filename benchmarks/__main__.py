"""Run benchmarks: python -m benchmarks NAME [ARGUMENTS], or nothing to list them.

Each is a script, or a folder with commands, that prints what it measured. benchmarks/README.md has the
results with machine, versions and date; ratios hold within one run only.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    scripts = {f.stem: f for f in HERE.glob("*.py") if not f.stem.startswith("_")}
    folders = {f.parent.name: f for f in HERE.glob("*/__main__.py")}
    if not arguments or arguments[0] not in scripts | folders:
        for name, file in sorted((scripts | folders).items()):
            meaning = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            print(f"{name:<24} {meaning.splitlines()[0]}")
        return 2 if arguments else 0
    name, *rest = arguments
    start = ["-m", f"benchmarks.{name}"] if name in folders else [str(scripts[name])]
    return subprocess.call([sys.executable, *start, *rest], cwd=HERE.parent)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
