from .clusters import ClusterSums, Ratio, cluster_sums, ratio
from .conventions import CONVENTIONS
from .errors import (
    BudgetStopped,
    DataError,
    FewstepsError,
    InputError,
    MissingExtra,
    RecipeError,
    RunError,
)
from .estimate import Mean, Occupancy, mean, occupancy
from .recipe import PRESETS, Recipe, SwitchLaw, preset
from .switch import Draw, Switches, draw_switch, draw_switches
from .tallies import Tally, tally
from .types import Trajectories

__all__ = [
    "CONVENTIONS",
    "PRESETS",
    "BudgetStopped",
    "ClusterSums",
    "DataError",
    "Draw",
    "FewstepsError",
    "InputError",
    "Mean",
    "MissingExtra",
    "Occupancy",
    "Ratio",
    "Recipe",
    "RecipeError",
    "RunError",
    "SwitchLaw",
    "Switches",
    "Tally",
    "Trajectories",
    "cluster_sums",
    "draw_switch",
    "draw_switches",
    "mean",
    "occupancy",
    "preset",
    "ratio",
    "tally",
]
