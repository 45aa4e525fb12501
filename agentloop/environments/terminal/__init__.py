"""Terminal tasks: a local sandbox, the text protocol of Terminus-2, tasks with executable checks.

`open_terminal` in benchmark.py opens the benchmark. Each part imports from those before it: sandbox/ (needs
Linux; `fewsteps doctor` says what a machine lacks), terminus/, tasks/, comparing.py, episode.py, scripted/,
benchmark.py.
"""
