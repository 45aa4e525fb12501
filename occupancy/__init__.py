"""Trajectories, recipes and run folders, and the statistics of the contexts that a policy visits.

Example::

    from occupancy import Trajectories, draw_switches, mean, occupancy, preset

    batch = Trajectories(
        offsets=[0, 3, 5],         # two trajectories, of 3 and 2 turns
        states=[0, 1, 2, 0, 1],    # state of the context before each turn
        tasks=[0, 1],              # cluster of the standard errors
        features=[1, 0, 1, 1, 1],  # numbers to average
    )
    occupancy(batch, convention="pooled").probability           # array([0.4, 0.4, 0.2])
    mean(batch, convention="trajectory").standard_error         # clustered by task
    draw_switches(batch, preset("op-short").switch, seed=1).t_prime

Axis letters, the same in every module: B trajectories, T turns of one of them, N turns of all, S states,
Q tasks (clusters), D features, R bootstrap replicates, P permutations, U units (one task in one batch).
Names are imported when they are first used. A batch and its columns: `Trajectories`. Estimates:
`occupancy`, `mean`, `missing_mass`, `coverage`, `compare`. Tables larger than memory: `open_turns` and
`estimate_stream`. Run folders: the module `occupancy.runs`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
