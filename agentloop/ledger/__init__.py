"""The ledger and what it guards: budgets, prices, every call billed once."""
