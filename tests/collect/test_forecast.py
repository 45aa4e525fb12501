"""What a collection will cost, against what it then did cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_runs import run_of
from toy_world import Corridors, expert

from agentloop.ledger.forecast import forecast
from agentloop.run.collect import tasks_of
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.summary import summarise
from analysis.cli import main
from occupancy.record.errors import DataError
from occupancy.record.recipe import INF, Recipe, preset
from occupancy.runs import Run


@pytest.fixture(scope="module")
def like(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("like") / "run"
    return run_of(folder, preset("op-short", T_max=12, n=2, K=INF), tasks="40")


def told(recipe: Recipe, *, tasks: str = "40", spending: SpendingLimits | None = None, **more: object):  # type: ignore[no-untyped-def]
    settings = Settings(recipe, "drunk", "expert", tasks, seed=9)
    return forecast(settings, tasks_of(Corridors(), tasks, seed=9), spending or SpendingLimits(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", ["op-short", "op-critical", "oec"])
def test_the_cost_that_was_foretold_is_what_it_cost(recipe: str, like: Run, tmp_path: Path) -> None:
    wanted = preset(recipe, T_max=12, n=2, **{"K": 2} if recipe == "op-short" else {})
    found = told(wanted, like=like)
    cost = summarise(run_of(tmp_path / "run", wanted, tasks="40", seed=9))["C_i"]
    assert found.proposals == 80
    assert found.lowest < found.expected < found.highest
    assert found.lowest * 0.9 < cost < found.highest * 1.1


def test_without_evidence_there_are_bounds_alone() -> None:
    recipe = preset("op-short", T_max=12, n=2, K=3)
    bare = told(recipe)
    assert (bare.lowest, bare.expected, bare.highest) == (0, None, None)
    limited = told(recipe, turn_tokens=10)
    assert limited.highest == limited.limit == 80 * 3 * 10
    budget = SpendingLimits(budget=500, turn_tokens=10)
    assert told(recipe, spending=budget, turn_tokens=10).highest == 500


def test_the_limit_counts_the_answers_of_a_teacher_that_names_t_prime() -> None:
    assert told(preset("leap", T_max=12), turn_tokens=10).limit == 40 * (1 + 1) * 10


@pytest.mark.parametrize(
    ("teacher", "limit"),
    [("openai:m@http://h/v1", 1024), ("openai:m@http://h/v1,max_tokens=9", 9), ("vllm:m", 256)],
)
def test_a_models_own_limit_of_a_turn_is_known(
    teacher: str, limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["collect", "--env", "toy_world:Corridors", "--student", "drunk", "--tasks", "5"]
    command += ["--teacher", teacher, "--out", str(tmp_path / "never"), "--dry-run", "--json"]
    assert main([*command, "--turn-tokens", "4000"]) == 0
    assert json.loads(capsys.readouterr().out)["forecast"]["op-short"]["limit"] == 5 * 3 * limit


def test_a_budget_cuts_what_is_expected(like: Run) -> None:
    found = told(preset("op-short", T_max=12, n=2), spending=SpendingLimits(budget=50), like=like)
    assert found.expected == found.highest == found.limit == 50


def test_continuations_that_were_cut_say_nothing_of_longer_ones(tmp_path: Path) -> None:
    short = run_of(tmp_path / "short", preset("op-short", T_max=12, K=2))
    assert told(preset("op-short", T_max=12, K=1), like=short).expected
    with pytest.raises(DataError, match="whole continuations"):
        told(preset("op-short", T_max=12, K=3), like=short)


def test_demonstrations_need_a_run_with_some(like: Run) -> None:
    with pytest.raises(DataError, match="has no demo"):
        told(preset("pure-bc", T_max=12), like=like)


def test_a_dry_run_buys_nothing(like: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "never"
    command = ["collect", "--env", "toy_world:Corridors", "--student", "toy_world:drunk", "--tasks", "5"]
    command += ["--teacher", f"toy_world:{expert.__name__}", "--out", str(out), "--dry-run"]
    assert main([*command, "--like", str(like.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forecast"]["op-short"]["expected"] > 0
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "give --like RUN" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not out.exists()
