"""Terminal tasks: a local sandbox, the text protocol of Terminus-2, tasks with executable checks.

`open_terminal` in benchmark.py opens the benchmark. The sandbox (sandbox.py) needs Linux; `fewsteps doctor`
says what a machine lacks.
"""
