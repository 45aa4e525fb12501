"""Buying in rounds: `rounds` is the procedure, `buyer` collects with the product, `commands` the command."""
