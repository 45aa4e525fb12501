"""Buying in rounds: within the budget, each step written before the next, and resumed where it stopped."""

from __future__ import annotations

import json
import sys
import types
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pilots
import pytest
from test_plan_trainer import GOOD

from agentloop.cuts.pooled import pooled
from analysis.cli import main
from analysis.curves.arms import Arm, arms_of
from analysis.plan.read import teacher_tokens
from analysis.plan.trainer import Effort
from analysis.spend.rounds import Rounds, _with_more, spend
from occupancy.record.errors import BudgetStopped, DataError, InputError, RunError
from occupancy.record.recipe import INF, Recipe
from occupancy.runs import Run, create_run, open_run


class Market:
    """Sells episodes of the toy world; counts what was asked for, and may fail."""

    def __init__(self, *, fails: tuple[str, ...] = (), over: float = 1.0) -> None:
        self.asked: list[tuple[str, float, list[Path]]] = []
        self.fails, self.over, self.trained = set(fails), over, 0

    def buy(self, recipe: Recipe, budget: float, seed: int, out: Path, demonstrations: list[Path]) -> None:
        if (out / "run.json").exists():
            return
        self.asked.append((out.name, budget, demonstrations))
        if out.name in self.fails:
            self.fails.remove(out.name)
            raise RunError("the provider is down")
        kind = "demo" if recipe.rho == "teacher" else "continuation"
        place = out.with_name(f"{out.name}-source")
        source = pilots.write_pilot(place, pilots.A, tasks=110, seed=seed, demos=2, ks=())
        self._copy(source, out, recipe, kind, budget * self.over)
        raise BudgetStopped("as `collect` ends where its budget does")

    def _copy(self, source: Run, out: Path, recipe: Recipe, kind: str, budget: float) -> None:
        renamed = lambda name: f"{out.name}/{name}" if name else name  # noqa: E731
        episodes = {e["episode_id"]: e for e in source.read("episodes").to_pylist()}
        turns = source.read("turns").to_pylist()
        prices = Counter[str]()
        for turn in turns:
            prices[turn["episode_id"]] += turn["output_tokens"] or 0
        spent, kept = 0.0, set()
        for name, episode in episodes.items():
            price = prices[name]
            if episode["kind"] != kind:
                continue
            if spent + price > budget:
                break
            spent += price
            kept |= {name, episode["parent"]} - {""}

        def shown(row: dict[str, Any]) -> dict[str, Any]:
            names = {"episode_id": renamed(row["episode_id"])} if "episode_id" in row else {}
            parents = {"parent": renamed(row["parent"])} if "parent" in row else {}
            return row | names | parents | {"task_id": renamed(row["task_id"])}

        rows = {
            "episodes": [shown(e) for name, e in episodes.items() if name in kept],
            "turns": [shown(t) for t in turns if t["episode_id"] in kept],
            "proposals": [shown(p) for p in source.read("proposals").to_pylist()] if kind != "demo" else [],
        }
        create_run(out, recipe, source.info | {"recipe_hash": recipe.hash}).commit(rows)

    def train(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
        self.trained += 1
        return GOOD


def shop(monkeypatch: pytest.MonkeyPatch) -> Market:
    """A market whose buyer and trainer the command line can name: toy_shop:buy, toy_shop:train."""
    market = Market()
    monkeypatch.setitem(sys.modules, "toy_shop", types.SimpleNamespace(buy=market.buy, train=market.train))
    return market


def rounds_of(run: Run, folder: Path, market: Market, **changes: Any) -> Rounds:
    price = sum(teacher_tokens(run.folder))
    settings = {"budget": 4.0 * price, "effort": Effort(2)} | changes
    return Rounds(run, folder, buy=market.buy, trainer=market.train, trainer_name="toy:train", **settings)


def test_everything_is_bought_within_the_budget_and_trained_on(run: Run, tmp_path: Path) -> None:
    market = Market()
    state = spend(rounds_of(run, tmp_path / "out", market))
    price = sum(teacher_tokens(run.folder))
    bought = [name for name, _, _ in market.asked]
    paid = sum(sum(teacher_tokens(tmp_path / "out" / name)) for name in bought)
    assert paid == state["spent"] <= 3 * price
    assert paid > 0.9 * 3 * price
    assert bought[:2] == ["first-demos", "first-contexts"]
    assert list(state["steps"])[-1] == "final student"
    trained = {Path(folder).name for folder in state["steps"]["final student"]["folders"]}
    assert {f"own-{name}" for name in bought[:2]} | set(bought[2:]) <= trained
    assert len(trained) == len(bought) + 1
    assert json.loads((tmp_path / "out" / "spend.json").read_text()) == state
    assert all("said" in step for step in state["steps"].values())
    assert state["steps"]["decide"]["trainings"], "the decision's evidence is in the record"


def test_data_that_are_paid_for_are_trained_on_by_every_student(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "analysis.spend.rounds.arms_of", lambda T, **more: [a for a in arms_of(T) if a.r == 0.5]
    )
    first = pilots.write_pilot(tmp_path / "D_BC", pilots.A, tasks=10, seed=5).folder
    seen: list[list[Path]] = []

    class School(Market):
        def train(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
            seen.append(folders)
            return super().train(folders, seed)

    market, few = School(), {"beside": (first,), "effort": Effort(1)}
    state = spend(rounds_of(run, tmp_path / "out", market, **few))
    assert all(first in folders for folders in seen)
    assert str(first) in state["steps"]["final student"]["folders"]
    (shown,) = (shown for name, _, shown in market.asked if name == "contexts")
    assert first in shown, "the student of the last rollouts"
    assert state["beside_tokens"] == sum(teacher_tokens(first))
    assert rounds_of(run, tmp_path / "new", market, **few).facts.sunk == state["beside_tokens"]
    with pytest.raises(DataError, match="of another purchase \\(beside="):
        spend(rounds_of(run, tmp_path / "out", market))


def test_what_was_stopped_goes_on_and_nothing_is_bought_or_trained_twice(run: Run, tmp_path: Path) -> None:
    market = Market(fails=("first-contexts",))
    with pytest.raises(RunError, match="provider is down"):
        spend(rounds_of(run, tmp_path / "out", market))
    written = json.loads((tmp_path / "out" / "spend.json").read_text())
    assert list(written["steps"]) == ["plan"]
    before = market.trained
    state = spend(rounds_of(run, tmp_path / "out", market))
    names = [name for name, _, _ in market.asked]
    assert names.count("first-demos") == 1
    assert names.count("first-contexts") == 2
    done = market.trained
    assert before <= done
    assert spend(rounds_of(run, tmp_path / "out", market)) == state
    assert market.trained == done


def test_a_clear_order_skips_the_first_purchase(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.spend.rounds.CLEAR", 0.0)
    market = Market()
    state = spend(rounds_of(run, tmp_path / "out", market))
    assert "first purchase" not in state["steps"]
    assert not {"first-demos", "first-contexts"} & {name for name, _, _ in market.asked}


def test_the_final_student_is_not_scored_on_tasks_that_were_bought(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.spend.rounds.CLEAR", 0.0)

    class Careless(Market):
        def train(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
            bought = [folder.name for folder in folders if folder.name in ("demos", "contexts")]
            return GOOD | {f"{name}/task-000": [1.0] for name in bought}

    with pytest.raises(DataError, match="tasks that the student was trained on"):
        spend(rounds_of(run, tmp_path / "out", Careless()))


def test_a_large_budget_has_a_second_purchase_that_goes_on_where_it_stopped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.spend.rounds.UNKNOWN", 0.0)  # the toy's family may be any
    price, market = sum(teacher_tokens(run.folder)), Market(fails=("second-contexts",))
    large = {"budget": 13.0 * price, "effort": Effort(1)}
    with pytest.raises(RunError, match="provider is down"):
        spend(rounds_of(run, tmp_path / "out", market, **large))
    before = json.loads((tmp_path / "out" / "spend.json").read_text())
    assert list(before["steps"]) == ["plan", "first purchase", "decide"]
    assert before["steps"]["decide"]["more"] == 4.0 * price, "its size is written before it begins"
    state = spend(rounds_of(run, tmp_path / "out", market, **large))
    assert state["steps"]["decide"] == before["steps"]["decide"]
    assert list(state["steps"])[3:5] == ["second purchase", "decide again"]
    names = [name for name, _, _ in market.asked]
    assert names.count("second-demos") == 1
    first, again = (state["steps"][name]["trainings"] for name in ("decide", "decide again"))
    assert again[:-1] == first, "what was trained before is read"
    assert again[-1]["tokens"] > first[-1]["tokens"], "the new training is on a larger cut"
    paid = sum(sum(teacher_tokens(tmp_path / "out" / name)) for name in set(names))
    assert paid == state["spent"] <= 12 * price
    trained = {Path(folder).name for folder in state["steps"]["final student"]["folders"]}
    assert {"own-second-demos", "own-second-contexts"} <= trained
    assert spend(rounds_of(run, tmp_path / "out", market, **large)) == state


def test_a_buyer_that_raises_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    market = Market()
    rounds = rounds_of(run, tmp_path / "out", market)

    def fails(*_: Any) -> None:
        raise KeyError("sku")

    with pytest.raises(RunError, match=r"the buyer for .* raised KeyError: 'sku'"):
        spend(replace(rounds, buy=fails))


def test_rounds_choose_among_what_the_plans_pool_can_supply(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = sum(teacher_tokens(run.folder))
    few = {"pool": 24, "budget": 200.0 * price, "planned": Arm("oec", r=0.75)}
    with pytest.raises(RunError, match="provider is down"):
        spend(rounds_of(run, tmp_path / "out", Market(fails=("first-demos",)), **few))
    steps = json.loads((tmp_path / "out" / "spend.json").read_text())["steps"]
    assert steps["plan"]["arm"]["r_tokens"] == 1, "24 tasks have too few demonstrations"
    assert "(the plan recommended oec r=0.75)" in steps["plan"]["said"]
    mixed = [arm for arm in arms_of(24) if 0 < arm.r < 1]
    monkeypatch.setattr("analysis.spend.rounds.arms_of", lambda T, **more: mixed)
    with pytest.raises(InputError, match="buys nothing of any recipe"):
        spend(rounds_of(run, tmp_path / "none", Market(), **few))


def test_a_budget_that_buys_nothing_may_be_raised_by_the_same_command(run: Run, tmp_path: Path) -> None:
    pilot, out = sum(teacher_tokens(run.folder)), tmp_path / "out"
    with pytest.raises(InputError, match="buys nothing of any recipe"):
        spend(rounds_of(run, out, Market(), budget=pilot + 1.0))
    with pytest.raises(RunError, match="provider is down"):
        spend(rounds_of(run, out, Market(fails=("first-demos",)), budget=200.0 * pilot))


def test_a_buyer_that_passes_its_budget_is_stopped(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="must not exceed its budget"):
        spend(rounds_of(run, tmp_path / "out", Market(over=1.5)))


def test_other_settings_on_the_same_folder_are_refused(run: Run, tmp_path: Path) -> None:
    market = Market(fails=("first-demos",))
    with pytest.raises(RunError):
        spend(rounds_of(run, tmp_path / "out", market))
    with pytest.raises(DataError, match="another purchase"):
        spend(rounds_of(run, tmp_path / "out", market, seed=1))
    with pytest.raises(InputError, match="what the pilot has cost"):
        rounds_of(run, tmp_path / "new", market, budget=10.0)
    with pytest.raises(InputError, match="--budget inf"):
        rounds_of(run, tmp_path / "new", market, budget=INF)


def test_the_same_episode_twice_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="other tasks each time"):
        pooled([run, open_run(run.folder)], tmp_path / "pool")
    assert not (tmp_path / "pool").exists()
    assert np.isfinite(teacher_tokens(run.folder)).all()


def test_the_command_spends_a_plan(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop(monkeypatch)
    price = sum(teacher_tokens(run.folder))
    plan, out = str(tmp_path / "PLAN.toml"), str(tmp_path / "out")
    assert main(["plan", str(run.folder), "--budget", str(4 * price), "--out", plan]) == 0
    seams = ["--buyer", "toy_shop:buy", "--trainer", "toy_shop:train", "--trainings", "1"]
    assert main(["spend", plan, "--out", out, *seams]) == 0
    shown = capsys.readouterr().out
    assert "final student" in shown
    assert main(["spend", plan, "--out", out, *seams, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spent"] <= 3 * price
    assert main(["spend", plan, "--out", out, "--buyer", "toy_shop:buy"]) == 2
    assert "rounds need trainings" in capsys.readouterr().err
    new = ["spend", plan, "--out", f"{out}-new"]
    assert main([*new, "--trainer", "toy_shop:train"]) == 2
    assert "give that, or a --buyer" in capsys.readouterr().err
    assert main([*new, *seams, "--teacher", "openai:other@http://h/v1"]) == 2
    assert "another teacher needs another pilot" in capsys.readouterr().err
    assert not Path(f"{out}-new").exists(), "nothing was begun"


@pytest.mark.parametrize(("left", "more"), [(20.0, 6.0), (12.0, 4.0), (9.0, 0.0)])
def test_a_large_budget_buys_twice_where_the_prior_has_not_seen_the_family(left: float, more: float) -> None:
    rounds: Any = types.SimpleNamespace(facts=types.SimpleNamespace(pilot=1.0), left=left)
    assert _with_more(rounds, {"clear": False, "unseen": 0.6})["more"] == pytest.approx(more)
    for known in ({"clear": True, "unseen": 0.6}, {"clear": False, "unseen": 0.4}):
        assert _with_more(rounds, known)["more"] == 0
