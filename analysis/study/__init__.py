"""Studies: a prediction is written down, then the money is spent, then both are compared."""
