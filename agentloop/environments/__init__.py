"""Environments: ALFWorld, HotpotQA, terminal tasks, and what speaks OpenEnv or steps as Gymnasium does."""
