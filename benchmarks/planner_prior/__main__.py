"""How the planner's prior over learning curves was made: generate worlds, learn from them, judge.

python -m benchmarks planner_prior generate|learn|judge ...
"""

from __future__ import annotations

import importlib
import sys

COMMANDS = ("generate", "learn", "judge")


def main(arguments: list[str]) -> int:
    """Run one of COMMANDS."""
    if not arguments or arguments[0] not in COMMANDS:
        print(f"usage: python -m benchmarks planner_prior {'|'.join(COMMANDS)} [ARGUMENTS]", file=sys.stderr)
        return 2
    importlib.import_module(f"benchmarks.planner_prior.{arguments[0]}").main(arguments[1:])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
