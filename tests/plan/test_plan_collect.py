"""What the plan says a depth costs is what collecting at that depth counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import rows, run_of
from toy_world import expert

from agentloop.run.summary import summarise
from agentloop.types import Answer, Ask, PolicyFailed
from analysis.plan.costs import costs
from analysis.plan.read import read_pilot
from occupancy.record.recipe import preset
from occupancy.runs import Run

WHOLE = preset("op-short", K="inf", n=4, T_max=12)


async def shaky(ask: Ask) -> Answer:
    """An expert that now and then fails, or is cut."""
    if ask.seed % 7 == 0:
        raise PolicyFailed("gone")
    answer = await expert(ask)
    return replace(answer, finish_reason="length") if ask.seed % 5 == 0 else answer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("pilot") / "run"
    return run_of(folder, WHOLE, teacher=shaky, pilot=True, handback=(0, 1), demo_tasks=2)


@pytest.mark.parametrize("K", [1, 2, 3, "inf"])
def test_costs_are_what_collect_counts(whole: Run, tmp_path: Path, K: int | str) -> None:
    pilot = read_pilot(whole.folder)
    collected = run_of(tmp_path / "run", replace(WHOLE, K=K), teacher=shaky)
    kinds = [e for e in rows(collected, "episodes") if e["kind"] == "continuation"]
    assert {"teacher_failed", "turn_length"} <= {e["status"] for e in kinds}
    price, at = costs(pilot), (K if isinstance(K, int) else pilot.recipe.T_max) - 1
    summary = summarise(collected)
    assert len(kinds) == len(pilot.contexts)
    assert price.training[at] * len(pilot.contexts) == pytest.approx(summary["C_tr"])
    assert price.inference[at] * len(pilot.contexts) == pytest.approx(summary["C_i"])
    assert summary["C_tr"] < summary["C_i"]
