"""Run a benchmark: python -m benchmarks NAME [ARGUMENTS], or nothing to list them.

Each prints what it measured; its options are the parameters of its `main`. benchmarks/README.md has the
results with machine, versions and date; ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    found = dict(sorted(scripts()))
    if not arguments or arguments[0] not in found:
        for name, meaning in found.items():
            print(f"{name:<24} {meaning}")
        return 2 if arguments else 0
    # Worlds and servers of the tests serve here, too.
    sys.path.append(str(HERE.parent / "tests"))
    module = importlib.import_module(f"benchmarks.{arguments[0]}")
    result = module.main(**read(module, arguments[1:]))
    return int((asyncio.run(result) if inspect.iscoroutine(result) else result) or 0)


def scripts() -> list[tuple[str, str]]:
    """Name and first line of every module with a `main`."""
    found = []
    for file in HERE.rglob("[!_]*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        if any(getattr(node, "name", "") == "main" for node in tree.body):
            name = ".".join(file.relative_to(HERE).with_suffix("").parts)
            found.append((name, (ast.get_docstring(tree) or "").partition("\n")[0]))
    return found


def read(module: ModuleType, arguments: list[str]) -> dict[str, Any]:
    """What the arguments give to the module's `main`: every parameter is an option."""
    name = f"python -m {module.__name__.replace('.', ' ', 1)}"
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(name, description=module.__doc__, formatter_class=shape)
    for name, p in inspect.signature(module.main, eval_str=True).parameters.items():
        kinds, of = get_args(p.annotation) or (p.annotation,), get_origin(p.annotation)
        how: dict[str, Any] = {"type": kinds[0], "default": p.default, "required": p.default is p.empty}
        if of is Literal:
            how |= {"type": str, "choices": kinds}
        elif of in (list, tuple):
            how["nargs"] = "+"
        elif kinds[0] is bool:
            how = {"action": "store_true"}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    return vars(parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
