"""Scripts that measure; see benchmarks/README.md for what they measured."""
