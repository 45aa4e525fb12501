"""Sweeps of many worlds, side by side on a Ray cluster: one task a world, the same bits as one after another.

    outcomes = sweep_worlds(worlds, recipes=…, budgets=…, r=…, seeds=32, engine="ray")

Recipes are given by what they change, since T_max is each world's own: [("op-short", {"K": 3})].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from occupancy import preset
from occupancy.record.errors import InputError
from occupancy.streaming.on_ray import on_ray
from simulate.pipelines.sweeping import sweep
from simulate.worlds.types import World

if TYPE_CHECKING:
    import pandas as pd

ENGINES = ("local", "ray")


def sweep_worlds(
    worlds: Sequence[World],
    *,
    recipes: Sequence[tuple[str, Mapping[str, Any]]],
    engine: str = "local",
    **settings: Any,
) -> pd.DataFrame:
    """Outcomes of all worlds in their order; `settings` are those of `simulate.sweep`."""
    import pandas as pd

    if engine not in ENGINES:
        raise InputError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}")
    if not worlds:
        raise InputError("no world is given: draw some with draw_worlds(count, seed=…)")

    def one(world: World) -> pd.DataFrame:
        named = [preset(name, T_max=world.horizon, **changes) for name, changes in recipes]
        return sweep(world, recipes=named, **settings).frame()

    # A sweep's chunks have one size, so how many run side by side changes no number.
    return pd.concat(map(one, worlds) if engine == "local" else on_ray(one, worlds), ignore_index=True)
