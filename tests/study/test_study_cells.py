"""The order in which a sweep trains its cells, and what is expected of the time that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.curves.arms import Arm
from analysis.study.accounts import Left, expected_s, likely_s, log_job
from analysis.study.cells import SweepCell, cells_of, decisive
from analysis.study.config import PURE_BC, Sweep, read_study

CHOICE, RIVAL, OTHER = Arm("op-short", 1, 1.0), Arm("op-critical", r=1.0), Arm("op-success", r=0.5)
SWEEP = Sweep((50, 100), (PURE_BC, CHOICE, RIVAL, OTHER), (RIVAL.name,), 1, 2, (0.5, 0.1, 0.2))


def test_decisive_cells_come_first_then_other_budgets_then_fractions() -> None:
    chosen = {50: OTHER, 100: CHOICE}
    assert decisive(SWEEP, chosen, 100) == [CHOICE, PURE_BC, RIVAL]
    assert decisive(SWEEP, chosen, 50) == [OTHER, PURE_BC, RIVAL]
    first, every = [CHOICE, PURE_BC, RIVAL], [PURE_BC, CHOICE, RIVAL, OTHER]
    expected = [(arm, 100, 0) for arm in [*first, OTHER]] + [(arm, 100, 1) for arm in first]
    expected += [(arm, 50, 0) for arm in (OTHER, PURE_BC, RIVAL, CHOICE)]
    expected += [(arm, 50, 1) for arm in (OTHER, PURE_BC, RIVAL)]
    # Half of the target is a budget, whose cells are there already.
    expected += [(arm, budget, 0) for budget in (20, 10) for arm in every]
    cells = cells_of(SWEEP, chosen)
    assert [(cell.arm, cell.budget, cell.seed) for cell in cells] == expected
    assert [SweepCell.from_dict(cell.to_dict()) for cell in cells] == cells
    assert len({cell.name for cell in cells}) == len(cells)


def test_time_that_is_left_is_of_the_stages_own_jobs(tmp_path: Path) -> None:
    config: Any = read_study(Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld.toml")
    assert expected_s(tmp_path, config, "sweep") == (config.seconds.sweep, "a guess of the config")
    assert likely_s(tmp_path, config, "sweep") == config.seconds.sweep
    for seconds in (1, 2, 9):
        log_job(tmp_path, "trainings", "x", seconds)
    assert expected_s(tmp_path, config, "sweep")[0] == 4, "small trainings are like cells"
    assert expected_s(tmp_path, config, "pilot")[1] == "a guess of the config"
    took = [float(7 * n % 101) for n in range(100)]
    for seconds in took:
        log_job(tmp_path, "sweep", "x", seconds)
    assert expected_s(tmp_path, config, "sweep") == (
        pytest.approx(sum(took) / 100),
        "mean of 100 finished jobs",
    )
    assert 75 <= sum(seconds <= likely_s(tmp_path, config, "sweep") for seconds in took) <= 76
    assert Left("sweep", 5, 10.0, "a guess", 2).seconds == 30
