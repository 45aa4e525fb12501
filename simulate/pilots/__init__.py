"""Pilots and small trainings played in a world and written as run folders."""
