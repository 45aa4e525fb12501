"""The commands of this package: collect, evaluate, ledger, traces, export."""
