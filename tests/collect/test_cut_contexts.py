"""The context filter `mixed`: what is asked, what is skipped, and cuts that equal what collecting gives."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import Corridors, expert

from agentloop.cuts.cut import Cell, Whole, buy, cut
from agentloop.ledger.forecast import Forecast, forecast
from agentloop.run.collect import Settings, SpendingLimits, tasks_of
from agentloop.run.episode import Episode
from agentloop.run.summary import summarise
from agentloop.types import Answer, Ask, Replay
from occupancy.record.errors import DataError, InputError, RecipeError, RunError
from occupancy.record.recipe import INF, Recipe, SwitchLaw, preset
from occupancy.runs import Run

MIXED = preset("op-short", K=2, n=3, T_max=12, context="mixed")


async def clumsy(ask: Ask) -> Answer:
    """A teacher that fails sometimes: success filters then reject something."""
    return replace(await expert(ask), text="stumble") if ask.seed % 3 == 0 else await expert(ask)


def whole_run(folder: Path, **settings: Any) -> Run:
    """A pilot with two replays of each context."""
    given = {"pilot": True, "demo_tasks": 0, "handback": (0, 1), "replicates": 3} | settings
    return run_of(folder, preset("op-short", K="inf", n=3, T_max=12), teacher=clumsy, **given)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return whole_run(tmp_path_factory.mktemp("contexts") / "pilot")


@pytest.mark.parametrize(
    "recipe",
    [
        MIXED,
        preset("op-success", n=3, T_max=12, context="mixed"),
        preset("op-critical", n=3, T_max=12, context="mixed"),
    ],
    ids=lambda recipe: recipe.name,
)
def test_a_cut_by_mixed_outcomes_equals_the_collected_run(pilot: Run, tmp_path: Path, recipe: Recipe) -> None:
    cell = cut(pilot, Cell(recipe), tmp_path / "cut")
    direct = run_of(tmp_path / "direct", recipe, teacher=clumsy)
    same(cell, direct)
    assert summarise(cell) | {"folder": ""} == summarise(direct) | {"folder": ""}


def naive_passing(run: Run) -> set[tuple[str, int]]:
    """(task, proposal) whose rollout and first two replays neither all succeed nor all fail."""
    outcomes = defaultdict(list)
    for row in rows(run, "episodes"):
        if row["kind"] == "rollout":
            outcomes[row["task_id"], row["rollout"]].append(row["R"] == 1)
        if row["kind"] == "handback" and row["K"] == 0 and row["replicate"] < 2:
            outcomes[row["task_id"], row["proposal"]].append(row["R"] == 1)
    return {key for key, won in outcomes.items() if any(won) and not all(won)}


def test_the_teacher_is_asked_where_a_naive_reading_of_the_pilot_says(pilot: Run) -> None:
    bought = buy(Whole(pilot), Cell(MIXED))
    passing = naive_passing(pilot)
    assert {(row["task_id"], row["proposal"]) for row in bought.continuations} == passing
    assert {row["outcome"] for row in bought.proposals} == {"accepted", "context_filtered"}
    assert 0.2 < len(passing) / len(bought.proposals) < 0.8, "the test needs both verdicts"


def test_skipped_contexts_cost_no_teacher_token(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", MIXED)
    outcome = {(row["task_id"], row["proposal"]): row["outcome"] for row in rows(run, "proposals")}
    asked = {
        (row["task_id"], row["proposal"]) for row in rows(run, "episodes") if row["kind"] == "continuation"
    }
    assert asked == {key for key, what in outcome.items() if what == "accepted"}
    assert set(outcome.values()) == {"accepted", "context_filtered"}
    paid = {row["episode_id"] for row in attempts(run) if row["role"] == "teacher"}
    assert paid
    assert all("#continuation" in name for name in paid)
    replays = [row for row in rows(run, "episodes") if row["kind"] == "handback"]
    assert {row["policy"] for row in replays} == {"drunk"}
    assert all(row["parent"].split("#")[1].startswith("rollout") for row in replays)


def test_what_passes_is_uniform_over_the_turns_that_pass(tmp_path: Path) -> None:
    """Each turn is asked about alone; a uniform draw passes where it is one of those that pass."""
    passes = set()
    for t in range(1, 13):
        at = SwitchLaw("fixed", tuple(float(t == s) for s in range(1, t + 1)))
        found = run_of(tmp_path / f"at-{t}", replace(MIXED, switch=at), tasks="3")
        passes |= {
            (row["task_id"], row["proposal"], t)
            for row in rows(found, "proposals")
            if row["outcome"] == "accepted"
        }
    drawn = rows(run_of(tmp_path / "uniform", MIXED, tasks="3"), "proposals")
    assert all(row["probability"] == 1 / row["T"] for row in drawn)
    for row in drawn:
        passed = row["outcome"] == "accepted"
        assert passed == ((row["task_id"], row["proposal"], row["t_prime"]) in passes)
    assert 0 < len(passes) < sum(row["T"] for row in drawn), "the test needs both verdicts"


@pytest.mark.parametrize("settings", [{"replicates": 1}, {"handback": (1, 2)}])
def test_a_pilot_without_two_replays_says_so(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = whole_run(tmp_path / "pilot", tasks="2", **settings)
    with pytest.raises(DataError, match=r"context='mixed' it has no 2 episodes .* --replicates 2 or more"):
        buy(Whole(run), Cell(MIXED))


def test_a_run_of_mixed_contexts_supplies_no_others(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", replace(MIXED, K=INF), tasks="4")
    short = buy(Whole(run), Cell(replace(MIXED, K=1)))
    assert short.continuations
    with pytest.raises(DataError, match="collected with context='mixed' and has no continuation of other"):
        buy(Whole(run), Cell(replace(MIXED, context="all")))


def test_what_cannot_be_filtered_is_refused(tmp_path: Path) -> None:
    class Live(Corridors):
        replay = Replay.NONE

    with pytest.raises(InputError, match=r"a pilot with .* context='mixed'"):
        Settings(replace(MIXED, K=INF), student="s", teacher="t", tasks="1", pilot=True)
    with pytest.raises(RecipeError, match="context='mixed' in toy 1, which can be neither"):
        run_of(tmp_path / "live", replace(MIXED, switch=SwitchLaw("fixed")), worlds=Live())
    with pytest.raises(RecipeError, match="with context='mixed': there is no student prefix"):
        preset("pure-bc", context="mixed")
    with pytest.raises(RecipeError, match="context='new': expected one of all, mixed, or a filter"):
        preset("op-short", context="new")


def below_two(context: Episode, recipe: Recipe) -> bool:
    """A rule of a user: the last observation is of the first two places."""
    return context.history.turns == () or any(
        f"at {n} of" in context.history.turns[-1].reply.observation for n in (0, 1)
    )


def test_a_rule_of_your_own_reads_the_context_alone(pilot: Run, tmp_path: Path) -> None:
    recipe = preset("op-short", n=2, T_max=12, context="test_cut_contexts:below_two")
    run = run_of(tmp_path / "run", replace(recipe, K=INF))
    seen = {(t["episode_id"], t["t"]): t["observation"] for t in rows(run, "turns")}
    outcomes = set()
    for p in rows(run, "proposals"):
        before = seen.get((f"{p['task_id']}#rollout-{p['rollout']}-x-x-x", p["t_prime"] - 1), "at 0 of")
        assert (p["outcome"] == "accepted") == ("at 0 of" in before or "at 1 of" in before)
        outcomes.add(p["outcome"])
    assert outcomes == {"accepted", "context_filtered"}
    cell = cut(run, Cell(replace(recipe, K=1)), tmp_path / "cell")
    direct = run_of(tmp_path / "direct", replace(recipe, K=1))
    same(cell, direct, calls=False)
    with pytest.raises(DataError, match="asked while a run is collected; collect with this recipe"):
        buy(Whole(pilot), Cell(recipe))


def forgetful(context: Episode, recipe: Recipe) -> None:
    """A rule whose author forgot its return."""


def test_a_rule_without_a_verdict_is_named(tmp_path: Path) -> None:
    """It refused every context, and the run ended as finished."""
    recipe = preset("op-short", n=1, T_max=12, context="test_cut_contexts:forgetful")
    with pytest.raises(RunError, match="test_cut_contexts:forgetful' returned None"):
        run_of(tmp_path / "run", recipe)


def test_recipes_without_the_filter_are_written_as_before() -> None:
    assert "context" not in preset("op-short").to_dict()
    assert Recipe.from_toml(MIXED.to_toml()) == MIXED
    assert MIXED.hash != replace(MIXED, context="all").hash
    assert json.loads(json.dumps(MIXED.to_dict()))["context"] == "mixed"


def test_a_dry_run_counts_the_contexts_that_pass(pilot: Run, tmp_path: Path) -> None:
    def told(recipe: Recipe, like: Run) -> Forecast:
        settings = Settings(recipe, student="drunk", teacher="expert", tasks="8", seed=3)
        return forecast(settings, tasks_of(Corridors(), "8", seed=3), SpendingLimits(), like=like)

    every, found = told(replace(MIXED, context="all"), pilot).expected, told(MIXED, pilot).expected
    assert every is not None
    assert found is not None
    passed = len(naive_passing(pilot)) / len(rows(pilot, "proposals"))
    assert 0.5 * passed < found / every < 2 * passed
    bare = run_of(tmp_path / "bare", replace(MIXED, context="all", K=INF), tasks="2")
    with pytest.raises(DataError, match="name a pilot with hand-backs at 0"):
        told(MIXED, bare)
