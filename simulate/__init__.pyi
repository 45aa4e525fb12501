from .families import FAMILIES, MIXED, Family, draw_worlds, family
from .fitted import fit_world, fitted_world
from .garnet import Garnet, garnet_world
from .laws import AcceptedLaw, accepted_law
from .many import sweep_worlds
from .outcome import Outcome, truth
from .playing import PilotSize, pilot_rows, play_pilot
from .recovery import Recovery, recovery_world
from .sampling import Sample, sample
from .solve import Answers, answers, hand_backs
from .students import LogLinear, Tabular
from .sweeping import Sweep, sweep
from .types import World, WorldError
from .worldfile import load_world, read_world_file

__all__ = [
    "FAMILIES",
    "MIXED",
    "AcceptedLaw",
    "Answers",
    "Family",
    "Garnet",
    "LogLinear",
    "Outcome",
    "PilotSize",
    "Recovery",
    "Sample",
    "Sweep",
    "Tabular",
    "World",
    "WorldError",
    "accepted_law",
    "answers",
    "draw_worlds",
    "family",
    "fit_world",
    "fitted_world",
    "garnet_world",
    "hand_backs",
    "load_world",
    "pilot_rows",
    "play_pilot",
    "read_world_file",
    "recovery_world",
    "sample",
    "sweep",
    "sweep_worlds",
    "truth",
]
