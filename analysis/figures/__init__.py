"""Figures, one function each from a tidy frame: every function names the columns that it reads.

plan       the figure of a plan
results    pass@1: costs, learning curves, K, r, predictions and measurements
pilot      a pilot: hand-backs, occupancies, coverage
spending   what tokens were spent on, losses of trainings

Each returns a matplotlib figure; `occupancy.record.drawing.save` writes it as PDF, PNG or SVG.
"""
