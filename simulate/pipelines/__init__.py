"""Whole pipelines in a world: collect, train, evaluate; many recipes, budgets and seeds at once."""
