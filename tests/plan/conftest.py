"""Pilots of the toy and a plan from one, for tests that only read them; a copy for those that write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pilots
import pytest

from analysis.plan.planner import plan
from analysis.plan.report import Plan
from occupancy.runs import Run, open_run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pilots.write_pilot(tmp_path_factory.mktemp("pilot") / "A", pilots.A, tasks=30).folder


@pytest.fixture(scope="session")
def found(folder: Path) -> Plan:
    return plan(folder, budget=5e5, pool=2000)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pilots.write_pilot(tmp_path_factory.mktemp("recorded") / "pilot", pilots.A, tasks=24, seed=2)


@pytest.fixture
def run(recorded: Run, tmp_path: Path) -> Run:
    """The same for a test of its own: trainings are kept in it."""
    return open_run(shutil.copytree(recorded.folder, tmp_path / "pilot"))
