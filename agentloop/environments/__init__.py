"""Environments: ALFWorld and HotpotQA."""
