"""Scripts that measure; see benchmarks/README.md for what they measured."""

import sys

if sys.orig_argv[1:2] == ["-m"] and (name := sys.orig_argv[2]).startswith("benchmarks."):
    # Python would import the module, do nothing and end with 0.
    sys.stderr.write(f"{name} is no command: type python -m {name.replace('.', ' ', 1)}\n")
    raise SystemExit(2)
