"""The record: trajectories, recipes, tables, errors; what the other packages read and write."""
