"""A pilot of the toy, and a plan from it, for the tests that only read them."""

from __future__ import annotations

from pathlib import Path

import pilots
import pytest

from analysis.plan.planner import plan
from analysis.plan.report import Plan


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pilots.write_pilot(tmp_path_factory.mktemp("pilot") / "A", pilots.A, tasks=30).folder


@pytest.fixture(scope="session")
def found(folder: Path) -> Plan:
    return plan(folder, budget=5e5, pool=2000)
