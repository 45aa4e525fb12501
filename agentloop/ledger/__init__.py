"""What a run costs: before it, its budgets, every call billed once, and the account afterwards."""
