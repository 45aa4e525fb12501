"""Runs that are paid for before a budget (`--already`): checked, and their teacher tokens counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agentloop.run.collect import environment_of
from agentloop.serve.settings import HARNESS
from analysis.plan.read import teacher_tokens
from occupancy.record.errors import InputError
from occupancy.runs import open_run

_ANY = ("", "imported", HARNESS)
"""Environments whose names say nothing about the tasks."""


def paid_for(pilot: str | Path, already: Sequence[str | Path]) -> dict[Path, int]:
    """C_i of each run that is paid for, by its absolute path; the pilot may be one.

    Raises:
        InputError: a run has no teacher turn, is of another environment than the pilot, or shares
            episodes with another.
    """
    own, found = open_run(pilot), {}
    owners = dict.fromkeys(own.recorded_episodes, own.folder.resolve())
    for name in already:
        if not str(name).strip():
            raise InputError("--already: expected the name of a run folder, not an empty text")
        run = open_run(os.path.realpath(name))  # resolve() raises at a loop of links
        tokens = sum(teacher_tokens(run.folder))
        if run.folder != own.folder.resolve():
            if not tokens:
                raise InputError(
                    f"--already {name}: it has no teacher turn to train a student on; leave it out"
                )
            (here, _), (there, _) = environment_of(own.info), environment_of(run.info)
            if here != there and not {here, there} & set(_ANY):
                raise InputError(
                    f"--already {name}: a run of {there!r}, and the pilot is of {here!r}: leave it out, as "
                    f"its tokens say nothing about learning {here!r}"
                )
        twice = [one for one in run.recorded_episodes if owners.setdefault(one, run.folder) != run.folder]
        if twice:
            raise InputError(
                f"--already {name}: {len(twice):,} of its {len(run.recorded_episodes):,} episodes are in "
                f"{owners[twice[0]]} too, and would count twice; name each run once, without copies or parts "
                f"of it, and the pilot as {own.folder}"
            )
        found[run.folder] = tokens
    return found
