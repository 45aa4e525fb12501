from .pilots.playing import PilotSize, pilot_rows, play_pilot
from .pipelines.outcome import Outcome, truth
from .pipelines.sweeping import Sweep, sweep
from .solving.laws import AcceptedLaw, accepted_law
from .solving.solve import Answers, answers, hand_backs
from .worlds.families import FAMILIES, MIXED, Family, draw_worlds, family
from .worlds.garnet import Garnet, garnet_world
from .worlds.recovery import Recovery, recovery_world
from .worlds.students import LogLinear, Tabular
from .worlds.types import World, WorldError
from .worlds.worldfile import load_world, read_world_file

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
    "Sweep",
    "Tabular",
    "World",
    "WorldError",
    "accepted_law",
    "answers",
    "draw_worlds",
    "family",
    "garnet_world",
    "hand_backs",
    "load_world",
    "pilot_rows",
    "play_pilot",
    "read_world_file",
    "recovery_world",
    "sweep",
    "truth",
]
