from .record.arrays import open_arrays, save_arrays
from .record.columns import Columns
from .record.errors import (
    BudgetStopped,
    DataError,
    FewstepsError,
    InputError,
    MissingExtra,
    RecipeError,
    RunError,
)
from .record.recipe import PRESETS, Recipe, SwitchLaw, preset
from .record.types import Trajectories
from .statistics.by_turn import TurnOccupancy, occupancy_by_turn
from .statistics.clusters import ClusterSums, Ratio, cluster_sums, ratio
from .statistics.conventions import CONVENTIONS
from .statistics.convert import Conversion, convert
from .statistics.coverage import MissingMass, coverage, missing_mass
from .statistics.distance import (
    DISTANCES,
    Comparison,
    chi_square,
    compare,
    jensen_shannon,
    total_variation,
)
from .statistics.estimate import Mean, mean, occupancy
from .statistics.exact import Occupancy
from .statistics.resample import Bootstrap, bootstrap
from .statistics.switch import Draw, Switches, draw_switch, draw_switches
from .statistics.tallies import Tally, tally
from .streaming.estimate import StreamEstimate, estimate_stream
from .streaming.scan import scan_table
from .streaming.stream import TurnStream, open_turns

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
