"""Worlds whose best K is known, and the planner that predicts it from a pilot."""
