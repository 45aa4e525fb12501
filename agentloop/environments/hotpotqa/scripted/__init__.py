"""Policies without a model: a teacher that knows the gold passages, and a student that errs."""
