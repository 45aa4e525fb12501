"""ALFWorld's text games: catalogue, worker processes, scripted expert, scripted student.

`agentloop.alfworld.pool.open_alfworld` opens the benchmark. Nothing heavy is imported here: textworld is
imported by worker processes only.
"""
