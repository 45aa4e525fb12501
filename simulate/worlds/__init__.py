"""Worlds: finite Markov decision processes with a teacher and a student, drawn by family."""
