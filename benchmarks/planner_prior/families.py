"""Ten families of worlds that the prior over learning curves is learnt from: students generalise.

    desk, maze  of the given file of worlds
    search      a question within 5 turns; the state is which facts have been found; junk accumulates
    form        fields in order; every mistake has its own error message, and most can be repaired
    house       find, take, carry, put down; the object's place is hidden; up to 50 turns
    recovery    a table of contexts (one-hot features); a wrong turn needs two or three repairs
    mess        a long dialogue; untidy prefixes stay, and the teacher itself becomes unreliable in them
    code        silent mistakes; only a check reveals them, only a fix removes them
    garnet      random transitions, aliased states, partly one-hot features
    varied      every world draws its own structure

They differ in horizon, in where the teacher is good, in how mistakes can be repaired and in how students
generalise. desk, maze and search are no copies of the laboratory's worlds in `simulate/worlds`: students here
generalise over features of contexts and are trained by gradient steps, and a prior that was learnt must not
change its source when the laboratory does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.planner_prior.dialogues import form, mess, search
from benchmarks.planner_prior.making import Family, Made
from benchmarks.planner_prior.places import garnet, house, recovery
from benchmarks.planner_prior.programs import code, varied

OURS = {
    "search": search,
    "form": form,
    "house": house,
    "recovery": recovery,
    "mess": mess,
    "code": code,
    "garnet": garnet,
    "varied": varied,
}
NAMES = ("desk", "maze", *OURS)


def family_of(base: Any, name: str) -> Family:
    """The function that makes worlds of a family; `base` is the module of the file of worlds."""
    return partial(OURS[name], base) if name in OURS else getattr(base, name)


def draw(base: Any, family: str, number: int, seed: int) -> Any:
    """World `number` of a family, its first student scaled as `base.draw` scales it.

    Raises:
        RuntimeError: no world of this number fits (the teacher is too good, too bad, or beaten).
    """
    make, learner = family_of(base, family), {}

    def keep(*given: Any) -> Made:
        made = make(*given)
        learner.update({key: getattr(made[0], key) for key in ("lam", "rate", "epochs")})
        return made

    def hopeless(world: Any, share: float) -> Any:
        # The base makes a new world with its own learner: the family's is put back.
        made = plain(world, share)
        for key, value in learner.items():
            setattr(made, key, value)
        return made

    keep.__name__ = family
    saved, plain = base.FAMILIES, base.hopeless
    base.FAMILIES, base.hopeless = (keep,), hopeless
    try:
        return base.draw(number, seed)
    finally:
        base.FAMILIES, base.hopeless = saved, plain
