from .arrays import open_arrays, save_arrays
from .by_turn import TurnOccupancy, occupancy_by_turn
from .clusters import ClusterSums, Ratio, cluster_sums, ratio
from .columns import Columns
from .conventions import CONVENTIONS
from .convert import Conversion, convert
from .coverage import MissingMass, coverage, missing_mass
from .distance import (
    DISTANCES,
    Comparison,
    chi_square,
    compare,
    jensen_shannon,
    total_variation,
)
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
from .resample import Bootstrap, bootstrap
from .scan import scan_table
from .stream import TurnStream, open_turns
from .stream_estimate import StreamEstimate, estimate_stream
from .switch import Draw, Switches, draw_switch, draw_switches
from .tallies import Tally, tally
from .types import Trajectories

__all__ = [
    "CONVENTIONS",
    "DISTANCES",
    "PRESETS",
    "Bootstrap",
    "BudgetStopped",
    "ClusterSums",
    "Columns",
    "Comparison",
    "Conversion",
    "DataError",
    "Draw",
    "FewstepsError",
    "InputError",
    "Mean",
    "MissingExtra",
    "MissingMass",
    "Occupancy",
    "Ratio",
    "Recipe",
    "RecipeError",
    "RunError",
    "StreamEstimate",
    "SwitchLaw",
    "Switches",
    "Tally",
    "Trajectories",
    "TurnOccupancy",
    "TurnStream",
    "bootstrap",
    "chi_square",
    "cluster_sums",
    "compare",
    "convert",
    "coverage",
    "draw_switch",
    "draw_switches",
    "estimate_stream",
    "jensen_shannon",
    "mean",
    "missing_mass",
    "occupancy",
    "occupancy_by_turn",
    "open_arrays",
    "open_turns",
    "preset",
    "ratio",
    "save_arrays",
    "scan_table",
    "tally",
    "total_variation",
]
