"""Worlds in which every recipe's outcome is known, exactly or to a stated standard error.

    from occupancy import preset
    from simulate import load_world, truth

    world = load_world("short")
    recipe = preset("op-short", K=3, T_max=world.horizon)
    outcome = truth(world, recipe, budget=32_000, r=0.5, se=0.002)
    print(outcome.mean, outcome.se, outcome.C_i)      # pass@1, its standard error, teacher tokens

`load_world`, `draw_worlds` and `family` make worlds; `answers`, `hand_backs` and `accepted_law` compute what
is true of one (JAX); `truth` plays whole pipelines of one recipe (numba), `sweep` those of many (JAX);
`play_pilot` writes a pilot's run folder for `fewsteps plan`. Guide: docs/worlds.md.

Axes mean the same in every docstring of this package:

    S  states of the environment that are not an end; S also is the id of success, S + 1 that of failure
    X  contexts, what a policy reads; states that look the same share one
    A  actions: the turns that a policy can play
    U  successors listed for a state, padded with chance 0
    D  features of a context
    T  turns 1 .. T_max; row t - 1 of an array belongs to turn t
    K  teacher turns, 0 .. T_max
    P  pipelines that run side by side; Q of them with distinct first students
    B  episodes of one pipeline that run side by side

Tokens are the teacher's output tokens, values and pass@1 chances from 0 to 1. Names load when first used.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
