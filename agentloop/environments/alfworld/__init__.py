"""ALFWorld's text games: catalogue, worker processes, scripted expert, scripted student.

`open_alfworld` in pool.py opens the benchmark. Nothing heavy is imported here: only worker processes import
textworld.
"""
