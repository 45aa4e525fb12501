"""The script `fewsteps`: refuses a folder that hides one of its packages, then runs the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("occupancy", "simulate", "agentloop", "sft", "analysis")


def main() -> int:
    """Run one command; returns the exit code."""
    if hidden := hidden_package():
        sys.stderr.write(f"fewsteps: {hidden}\n")
        return 2
    code: int = import_module("analysis.cli").main()
    return code


def hidden_package() -> str:
    """What hides one of our packages, and what to do; empty where each is our own."""
    ours = Path(__file__).parents[1]
    for name in PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or []), spec.origin]
        found = next(filter(None, places), None)
        if found is None or Path(found).parent.resolve() != ours.resolve():
            return (
                f"{found or 'nothing'} is found where fewsteps expects its own package {name!r}: run it in "
                f"another folder, rename that one, or take its parent off PYTHONPATH"
            )
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
