"""Which heavy packages a piece of code loads, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("numpy", "numba", "pandas", "pyarrow", "scipy", "matplotlib", "rich", "jax", "torch", "textworld")


def loaded_by(code: str) -> list[str]:
    report = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", report], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.split()
