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
from .estimate import ClusterSums, Mean, Occupancy, cluster_sums, mean, occupancy, ratio
from .recipe import PRESETS, Recipe, SwitchLaw, preset
from .switch import Draw, Switches, draw_switch, draw_switches
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
    "Recipe",
    "RecipeError",
    "RunError",
    "SwitchLaw",
    "Switches",
    "Trajectories",
    "cluster_sums",
    "draw_switch",
    "draw_switches",
    "mean",
    "occupancy",
    "preset",
    "ratio",
]
