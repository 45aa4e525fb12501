"""Cuts of a whole run: never above the budget, nested, and equal to what collecting would have given."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import C_i, attempts, rows, run_of, same, truncate
from toy_world import Corridors, expert

from agentloop.cuts.cut import Cell, Whole, buy, cut, supply
from agentloop.cuts.pooled import pooled
from agentloop.ledger.report import account_of
from agentloop.run.summary import summarise
from agentloop.types import Answer, Ask, ContextOverflow, Reply
from analysis.cli import main
from analysis.curves.arms import Arm
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import INF, Recipe, preset
from occupancy.runs import Run, open_run

FAILED = preset("op-short", T_max=12, K="inf", psi="without_success")
RECIPES = (
    preset("op-short", K=1, T_max=12),
    preset("op-short", K=3, T_max=12),
    preset("op-success", T_max=12),
    preset("op-critical", T_max=12),
    preset("oec", T_max=12),
    replace(FAILED, K=2),
)


async def clumsy(ask: Ask) -> Answer:
    """A teacher that fails sometimes: success filters then reject something."""
    return replace(await expert(ask), text="stumble") if ask.seed % 3 == 0 else await expert(ask)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cut") / "pilot"
    whole = preset("op-short", K="inf", n=3, T_max=12)
    return run_of(folder, whole, teacher=clumsy, pilot=True, demo_tasks=6, handback=(0,), replicates=1)


@pytest.fixture(scope="module")
def whole(pilot: Run) -> Whole:
    return Whole(pilot)


@pytest.mark.parametrize("name", ["op-success", "op-critical"])
def test_a_filtered_recipe_cut_at_its_end_equals_the_collected_one(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path / "whole", preset("op-short", K="inf", n=2, T_max=12), teacher=clumsy)
    recipe = preset(name, n=2, T_max=12)
    cell = cut(run, Cell(recipe), tmp_path / "cut")
    direct = run_of(tmp_path / "direct", recipe, teacher=clumsy)
    same(cell, direct)
    assert summarise(cell) | {"folder": ""} == summarise(direct) | {"folder": ""}
    assert "continuation_filtered" in summarise(direct)["proposals"], "the test needs rejected continuations"


def test_a_cut_at_K_with_the_whole_budget_equals_truncation(pilot: Run, tmp_path: Path) -> None:
    recipe = replace(pilot.recipe, K=2)
    tokens = supply(Whole(pilot), recipe)[1]
    cell = cut(pilot, Cell(recipe, budget=tokens), tmp_path / "cell")
    short = truncate(pilot, 2, tmp_path / "short")
    same(cell, short)


@given(
    recipe=st.sampled_from(RECIPES),
    r=st.sampled_from((0.25, 0.5, 0.75, 1.0)),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 5),
)
def test_the_budget_is_never_exceeded_and_smaller_cuts_are_parts_of_larger_ones(
    whole: Whole, recipe: Recipe, r: float, share: float, seed: int
) -> None:
    demos, continued = supply(whole, recipe, seed)
    most = min(continued / r, demos / (1 - r) if r < 1 else INF)
    large = buy(whole, Cell(recipe, r=r, budget=most, seed=seed))
    small = buy(whole, Cell(recipe, r=r, budget=share * most, seed=seed))
    assert small.demo_tokens <= (1 - r) * share * most + 1e-9
    assert small.continuation_tokens <= r * share * most + 1e-9
    assert set(_names(small)) <= set(_names(large))
    assert small.proposals == large.proposals[: len(small.proposals)]


def _names(bought: Any) -> list[str]:
    return [row["episode_id"] for row in (*bought.demos, *bought.continuations)]


def test_a_cell_has_the_ledger_of_its_own_episodes_and_traces_of_its_demonstrations(
    pilot: Run, tmp_path: Path
) -> None:
    recipe = preset("op-critical", T_max=12)
    demos, continued = supply(Whole(pilot), recipe)
    budget = 2 * min(demos, continued)
    cell = cut(pilot, Cell(recipe, r=0.5, budget=budget), tmp_path / "cell")
    made = cell.info["cut"]
    assert C_i(cell) == made["demo_tokens"] + made["continuation_tokens"] <= budget
    assert account_of(cell)["tables"]["agree"]
    kinds = {row["episode_id"].split("#")[1].split("-")[0] for row in rows(cell, "traces")}
    assert "demo" in kinds
    for trace in rows(cell, "traces"):
        messages = json.loads(trace["messages"])
        assert messages[-1]["train"], "a trace ends with a target"
        assert sum(m["train"] for m in messages) == trace["target_turns"]
    accepted = [e for e in rows(cell, "episodes") if e["kind"] == "continuation" and e["R"] == 1]
    assert len(accepted) == sum("#continuation" in row["episode_id"] for row in rows(cell, "traces"))


def test_demonstrations_and_contexts_come_from_different_tasks_while_they_can(whole: Whole) -> None:
    bought = buy(whole, Cell(preset("op-short", K=1, T_max=12), r=0.2, budget=250))
    assert {d["task_id"] for d in bought.demos}.isdisjoint(p["task_id"] for p in bought.proposals)


@pytest.mark.parametrize("budget", [200, None])
def test_pure_bc_is_demonstrations_alone(pilot: Run, tmp_path: Path, budget: int | None) -> None:
    cell = cut(pilot, Cell(preset("pure-bc", T_max=12), r=0.0, budget=budget), tmp_path / "cell")
    assert {row["kind"] for row in rows(cell, "episodes")} == {"demo"}


def test_what_a_run_cannot_supply_is_said_in_tokens(pilot: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"of op-short with K=1 and the cut needs 100,000: it lacks"):
        cut(pilot, Cell(preset("op-short", K=1, T_max=12), budget=1e5), tmp_path / "cell")
    with pytest.raises(DataError, match=r"lacks .* collect more"):
        cut(pilot, Cell(preset("pure-bc", T_max=12), r=0.0, budget=1e5), tmp_path / "cell")
    with pytest.raises(DataError, match="cannot supply leap"):
        cut(pilot, Cell(preset("leap", T_max=12)), tmp_path / "cell")
    with pytest.raises(InputError, match="r = 0 for pure-bc"):
        Cell(preset("pure-bc"), r=0.5)
    assert not (tmp_path / "cell").exists()


def test_oec_skips_switches_that_lie_beyond_the_rollout(pilot: Run, tmp_path: Path) -> None:
    cell = cut(pilot, Cell(preset("oec", psi="all", T_max=12)), tmp_path / "cell")
    found = rows(cell, "proposals")
    assert all((row["outcome"] == "invalid_switch") == (row["t_prime"] > row["T"]) for row in found)
    assert {row["probability"] for row in found} == {1 / 12}


def test_the_command(pilot: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "cell")
    given = ["cut", str(pilot.folder), "--recipe", "op-short", "--K", "2", "--budget", "150", "--out", out]
    assert main([*given, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["continuation_tokens"] == C_i(open_run(out)) <= 150
    assert main([*given[:-1], str(tmp_path / "other")]) == 0
    assert "of continuations, rejected ones included" in " ".join(capsys.readouterr().out.split())
    assert main(given) == 2
    assert "exists: name a new folder" in capsys.readouterr().err
    few = [*given[:-4], "--budget", "1", "--out", str(tmp_path / "few")]
    assert main(few) == 2
    assert "--budget 1 does not hold the first episode" in capsys.readouterr().err
    assert not (tmp_path / "few").exists()


def test_a_run_without_a_ledger_is_priced_by_its_turns(tmp_path: Path) -> None:
    import pilots

    run = pilots.write_pilot(tmp_path / "toy", pilots.A, tasks=10)
    cell = cut(run, Cell(preset("pure-bc", T_max=24), r=0.0, budget=2000), tmp_path / "cell")
    tokens = sum(turn["output_tokens"] for turn in rows(cell, "turns"))
    assert 0 < tokens == cell.info["cut"]["demo_tokens"] <= 2000


def test_traces_that_store_the_prompt_alone_are_cut_too(pilot: Run, tmp_path: Path) -> None:
    """As runs of other makers do: their trainers read the turns."""
    from occupancy.runs import create_run

    tables = {name: pilot.read(name).to_pylist() for name in ("episodes", "turns", "proposals", "traces")}
    prompt = json.dumps([{"role": "user", "content": "Go.", "author": "task"}])
    tables["traces"] = [row | {"messages": prompt} for row in tables["traces"]]
    bare = create_run(tmp_path / "bare", pilot.recipe, pilot.info)
    bare.commit(tables)
    recipe = preset("op-short", K=2, T_max=12)
    cell = cut(bare, Cell(recipe), tmp_path / "cell")
    same = cut(pilot, Cell(recipe), tmp_path / "same")
    names = ("episode_id", "target_turns", "C_tr")
    found, wanted = ([[row[name] for name in names] for row in rows(run, "traces")] for run in (cell, same))
    assert found == wanted
    assert {row["messages"] for row in rows(cell, "traces")} == {prompt}


def test_contexts_and_demonstrations_of_several_runs_are_cut_as_one(tmp_path: Path) -> None:
    whole = preset("op-short", K="inf", n=2, T_max=12)
    op = run_of(tmp_path / "op", whole, teacher=clumsy)
    bc = run_of(tmp_path / "bc", preset("pure-bc", T_max=12))
    pool = Whole(pooled([op, bc], tmp_path / "pool"))
    assert C_i(pool.run) == C_i(op) + C_i(bc)
    assert supply(pool, whole) == (C_i(bc), C_i(op))
    for recipe in RECIPES:
        both, alone = (buy(run, Cell(recipe, budget=None)) for run in (pool, Whole(op)))
        assert both.continuations == alone.continuations
    mixed = cut(pool, Cell(RECIPES[1], r=0.5, budget=float(C_i(bc))), tmp_path / "mixed")
    traced = {row["episode_id"] for row in rows(mixed, "traces")}
    kinds = {row["kind"] for row in rows(mixed, "episodes") if row["episode_id"] in traced}
    assert kinds == {"demo", "continuation"}
    with pytest.raises(DataError, match="other tasks each time"):
        pooled([op, open_run(op.folder)], tmp_path / "twice")


async def failing(ask: Ask) -> Answer:
    """A teacher whose turns fail in every way that ends an episode, each at some seed."""
    answer = await expert(ask)
    match ask.seed % 7:
        case 0:
            return replace(answer, finish_reason="unknown: x")
        case 1:
            return replace(answer, text="mumble")
        case 2:
            raise ContextOverflow("too long")
        case 3:
            return replace(answer, text="")
    return answer


class Hears(Corridors):
    """Corridors that do not understand `mumble`."""

    def change(self, corridor: Any) -> None:
        step = corridor.step

        async def heard(text: str) -> Reply:
            return replace(await step(text), parse_status="bad" if text == "mumble" else "ok")

        corridor.step = heard


@pytest.mark.parametrize("K", [1, 2, 3, "inf"])
@pytest.mark.parametrize("T_max", [3, 12])
def test_cuts_of_episodes_that_ended_in_a_failure_equal_what_is_collected(
    tmp_path: Path, K: int | str, T_max: int
) -> None:
    given: dict[str, Any] = {"teacher": failing, "end_on": ("any",), "tasks": "20"}
    run = run_of(tmp_path / "whole", preset("op-short", K="inf", T_max=T_max), worlds=Hears(), **given)
    recipe = preset("op-short", K=K, T_max=T_max)
    cell = cut(run, Cell(recipe), tmp_path / "cut")
    direct = run_of(tmp_path / "direct", recipe, worlds=Hears(), **given)
    same(cell, direct)
    ends = {row["status"] for row in rows(run, "episodes")}
    assert {"bad_parse", "context", "teacher_failed"} <= ends, "the test needs every failure"


def test_demonstrations_that_ended_in_a_bad_parse_do_not_train_on_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {"teacher": failing, "end_on": ("any",), "tasks": "20"}
    pilot = run_of(
        tmp_path / "pilot",
        preset("op-short", K="inf", T_max=12),
        worlds=Hears(),
        **given,
        pilot=True,
        demo_tasks=20,
        handback=(0,),
        replicates=1,
    )
    bc = preset("pure-bc", T_max=12)
    cell = cut(pilot, Cell(bc, r=0.0), tmp_path / "cut")
    direct = run_of(tmp_path / "direct", bc, worlds=Hears(), **given)
    assert rows(cell, "traces") == rows(direct, "traces")
    assert "bad_parse" in {row["status"] for row in rows(direct, "episodes")}


def test_a_run_of_filtered_prefixes_supplies_no_recipe_without_that_filter(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-failed", T_max=12))
    buy(Whole(run), Cell(preset("op-critical", T_max=12)))
    with pytest.raises(DataError, match=r"psi='without_success' .* only the recipe accepts"):
        buy(Whole(run), Cell(preset("op-short", T_max=12)))
    whole = run_of(tmp_path / "whole", preset("op-short", K="inf", T_max=12))
    with pytest.raises(DataError, match=r"repetition=3, and the recipe has .* repetition=2"):
        buy(Whole(whole), Cell(preset("oec", T_max=12, repetition=2)))


def test_a_share_of_the_budget_is_not_missed_by_rounding() -> None:
    recipe = preset("op-short", K=1, T_max=12)
    assert Cell(recipe, r=0.9, budget=1000).shares() == (100, 900)
    assert Cell(recipe, r=0.7, budget=1000).shares() == (300, 700)


def test_a_cut_has_the_runs_own_sense_of_repetition(tmp_path: Path) -> None:
    """Its stored verdicts are of that many equal turns."""
    run = run_of(tmp_path / "run", preset("op-short", K="inf", T_max=12, repetition=2))
    out = tmp_path / "cell"
    assert main(["cut", str(run.folder), "--recipe", "oec", "--out", str(out)]) == 0
    assert open_run(out).recipe.repetition == 2
    assert Arm("oec").recipe_of(run.recipe).repetition == 2


def test_a_pilot_is_cut_wherever_it_is(pilot: Run, tmp_path: Path) -> None:
    cell = Cell(preset("op-short", T_max=12, K=2))
    for name in ("run #1", "why?", "a%20b"):
        shutil.copytree(pilot.folder, tmp_path / name)
        made = cut(open_run(tmp_path / name), cell, tmp_path / "cut")
        assert attempts(made)
        shutil.rmtree(made.folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a%20b", "run #1", "why?"], "and nothing beside it"
