"""The planner against the truth, in worlds whose outcome is known."""
