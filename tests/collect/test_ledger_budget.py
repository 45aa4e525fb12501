"""A budget that concurrent calls cannot exceed, and what a stop leaves behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from budget_machine import Bursts
from hypothesis import settings
from toy_runs import C_i, attempts, rows, run_of, same
from toy_world import Bounded, Corridors, drunk, expert, raising

from agentloop.ledger.budget import Budget, ContinuationBudget
from agentloop.ledger.matched import Proof, collect_matched
from agentloop.run import on_ray
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from agentloop.types import Answer, Ask, CallFailed, Policy, Usage, traits_of
from occupancy.record.errors import BudgetStopped, InputError, RunError
from occupancy.record.prices import read_prices
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)


def stopped(folder: Path, spending: SpendingLimits, *, teacher: Policy | None = None) -> Run:
    with pytest.raises(BudgetStopped, match="larger --budget"):
        run_of(folder, RECIPE, teacher=teacher or Bounded(expert), spending=spending)
    return open_run(folder)


class TestBursts(Bursts.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=15, stateful_step_count=6)


def test_a_stopped_run_resumes_to_what_an_unlimited_one_gives(tmp_path: Path) -> None:
    whole = run_of(tmp_path / "whole", RECIPE)
    for budget in (100, 250, 400):
        run = stopped(tmp_path / "run", SpendingLimits(budget))
        assert budget - Bounded.most < C_i(run) <= budget
    run_of(tmp_path / "run", RECIPE, teacher=Bounded(expert), spending=SpendingLimits(10**6))
    same(run, whole)


def test_the_first_units_are_finished_first(tmp_path: Path) -> None:
    run = stopped(tmp_path / "run", SpendingLimits(300))
    traced = {row["task_id"] for row in rows(run, "traces")}
    asked = {row["episode_id"].split("#")[0] for row in attempts(run)}
    assert len(traced) >= len(asked) - 2, "no more than what two workers had begun is unfinished"


def test_money_is_counted_exactly_and_never_exceeded(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('currency = "USD"\n[models."ex*"]\ninput = 1.25\ncached_input = 0.125\noutput = 10\n')
    prices = read_prices(table)
    run = stopped(tmp_path / "run", SpendingLimits(0.02, axis="money", prices=prices))
    by_hand = sum(1_250_000 * a["prompt_tokens"] + 10_000_000 * a["output_tokens"] for a in attempts(run))
    assert sum(a["charged_money"] for a in attempts(run)) == by_hand <= 0.02 * 10**12
    with pytest.raises(InputError, match="without a price table"):
        SpendingLimits(1, axis="money")


def test_C_tr_stops_within_one_continuation(tmp_path: Path) -> None:
    stopped(tmp_path / "run", SpendingLimits(200, axis="training"))
    traces = rows(open_run(tmp_path / "run"), "traces")
    total = sum(trace["C_tr"] for trace in traces)
    assert 200 <= total < 200 + max(trace["C_tr"] for trace in traces)


def test_the_teachers_that_come_with_us_know_the_limit_of_a_turn(tmp_path: Path) -> None:
    from agentloop.environments.alfworld.expert import scripted_expert
    from agentloop.environments.hotpotqa.scripted.teacher import scripted_teacher as of_questions
    from agentloop.environments.terminal.scripted.teacher import scripted_teacher as of_the_shell
    from agentloop.policies.scripted import BoundedScript

    assert [traits_of(make()).most_output for make in (scripted_expert, of_questions, of_the_shell)] == [
        64,
        512,
        512,
    ]

    async def play(ask: Ask) -> str:
        return str(await ask.env.ask("expert"))

    stopped(tmp_path / "fits", SpendingLimits(30), teacher=BoundedScript(play, most=4))
    with pytest.raises(RunError, match="a turn of 2 tokens: expected at most 1"):
        run_of(tmp_path / "long", RECIPE, teacher=BoundedScript(play, most=1))


def test_a_teacher_without_a_limit_is_refused_a_budget(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--turn-tokens"):
        run_of(tmp_path / "run", RECIPE, spending=SpendingLimits(100))
    assert not (tmp_path / "run").exists(), "the same folder takes other settings"
    stopped(tmp_path / "given", SpendingLimits(100, turn_tokens=Bounded.most), teacher=expert)


def test_a_turn_over_its_limit_stops_the_run_and_is_counted(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="in a turn that may have 12"):
        run_of(tmp_path / "run", RECIPE, spending=SpendingLimits(10**6, turn_tokens=12))
    over = [a for a in attempts(open_run(tmp_path / "run")) if (a["output_tokens"] or 0) > 12]
    assert all(a["state"] == "settled" and a["charged_tokens"] == a["output_tokens"] for a in over)
    assert over


def test_lost_and_timed_out_calls_keep_their_reservation(tmp_path: Path) -> None:
    slow = raising(expert, CallFailed("slow", kind="timeout", retry=True, billed="perhaps"), at=[3])
    run = run_of(tmp_path / "run", RECIPE, teacher=slow, spending=SpendingLimits(turn_tokens=50, backoff_s=0))
    (late,) = (a for a in attempts(run) if a["state"] == "failed")
    assert late["billed"] == "perhaps"
    assert late["charged_tokens"] == 50
    assert late["output_tokens"] is None
    again = [a for a in attempts(run) if (a["episode_id"], a["t"]) == (late["episode_id"], late["t"])]
    assert [(a["attempt"], a["state"]) for a in again] == [(0, "failed"), (1, "settled")]


def test_waiting_for_room_ends_when_a_reservation_is_given_back() -> None:
    async def main() -> list[str]:
        budget, order = Budget(100), []
        await budget.reserve(90)

        async def late(name: str, place: int) -> None:
            await budget.reserve(50, order=place)
            order.append(name)

        tasks = [asyncio.create_task(late("second", 2)), asyncio.create_task(late("first", 1))]
        await asyncio.sleep(0)
        assert not order
        budget.settle(90, 0)
        await asyncio.gather(*tasks)
        budget.settle(50, 50)
        budget.settle(50, 50)
        with pytest.raises(BudgetStopped):
            await budget.reserve(1)
        return order

    assert asyncio.run(main()) == ["first", "second"]


def test_a_cancelled_wait_leaves_no_reservation() -> None:
    async def main() -> None:
        budget = Budget(100)
        await budget.reserve(90)
        waits = asyncio.create_task(budget.reserve(50))
        await asyncio.sleep(0)
        budget.settle(90, 0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert budget.spent == 0

    asyncio.run(main())


def test_continuations_go_one_by_one_near_the_limit() -> None:
    async def main() -> None:
        budget, running, most = ContinuationBudget(100), 0, 0

        async def continuation(unit: int) -> None:
            nonlocal running, most
            await budget.enter(unit)
            running += 1
            most = max(most, running if budget.spent > 60 else 0)
            await asyncio.sleep(0)
            running -= 1
            await budget.leave(unit, 13)

        done = await asyncio.gather(*(continuation(unit) for unit in range(30)), return_exceptions=True)
        assert 100 <= budget.spent < 113
        assert most == 1
        assert sum(isinstance(result, BudgetStopped) for result in done) == 30 - budget.spent // 13

    asyncio.run(main())


def test_settings_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of inference"):
        SpendingLimits(1, axis="teacher")
    with pytest.raises(InputError, match="above 0"):
        SpendingLimits(0)
    with pytest.raises(InputError, match="must be told"):
        Settings(recipe=RECIPE, student="s", teacher="t", tasks="1", switch_prompt="when?")
    settings_ = Settings(recipe=RECIPE, student="s", teacher="t", tasks="2", n_of_task={"corridor/9": 1})
    with pytest.raises(InputError, match="corridor/9"):
        asyncio.run(collect(tmp_path, Setup(settings_, Corridors(), drunk, expert)))


def test_a_depth_of_hand_backs_is_given_once(tmp_path: Path) -> None:
    """Two hand-backs with one key would make a run that no reader takes."""
    whole = preset("op-short", K="inf", T_max=12)
    with pytest.raises(InputError, match=r"handback=\(1, 1\): expected each"):
        run_of(tmp_path / "run", whole, pilot=True, handback=(1, 1))


def test_n_of_single_tasks_wins_over_the_recipes(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", replace(RECIPE, n=2), n_of_task={"corridor/3": 5, "corridor/4": 0})
    count = [sum(p["task_id"] == f"corridor/{i}" for p in rows(run, "proposals")) for i in range(8)]
    assert count == [2, 2, 2, 5, 0, 2, 2, 2]


@pytest.mark.parametrize("axis", ["inference", "training"])
def test_recipes_can_be_matched_to_within_one_continuation(tmp_path: Path, axis: str) -> None:
    recipes = {
        "short": preset("op-short", K=1, n=9, T_max=12),
        "long": preset("op-success", n=9, T_max=12),
        "bc": preset("pure-bc", n=9, T_max=12),
    }
    settings_ = {
        name: Settings(recipe=recipe, student="drunk", teacher="expert", tasks="30")
        for name, recipe in recipes.items()
    }

    def matched(budget: int, folder: Path) -> Proof:
        async def collect_one(place: Path, wanted: Settings, spending: SpendingLimits) -> None:
            await collect(place, Setup(wanted, Corridors(workers=8), drunk, expert, spending))

        spending = SpendingLimits(budget, axis=axis)
        return asyncio.run(collect_matched(folder, settings_, spending, collect_one))

    proof = matched(1500, tmp_path / "runs")
    assert proof.matched, proof
    assert proof.spread <= max(match.largest for match in proof.matches)
    for match in proof.matches:
        spent = match.C_i if axis == "inference" else match.C_tr
        assert match.spent == spent
        assert 0 <= spent - 1500 < match.largest
    assert matched(1500, tmp_path / "runs") == proof, "a matched run that is run again buys nothing"
    assert not matched(10**6, tmp_path / "all").matched, "recipes that run out of tasks are not matched"


def test_the_question_for_a_switch_turn_is_part_of_what_passes_a_budget(tmp_path: Path) -> None:
    async def names_the_first(ask: Ask) -> Answer:
        return await expert(ask) if ask.t else Answer("1", Usage(40, "toy"))

    async def lost(ask: Ask) -> Answer:
        return replace(await drunk(ask), text="stumble")

    async def one(place: Path, wanted: Settings, limits: SpendingLimits) -> None:
        await collect(place, Setup(wanted, Corridors(), lost, names_the_first, limits))

    leap = Settings(preset("leap", n=3, T_max=12), "drunk", "expert", "8")
    for budget in (300, 330):
        proof = asyncio.run(
            collect_matched(tmp_path / str(budget), {"leap": leap}, SpendingLimits(budget=budget), one)
        )
        assert proof.matched
        assert proof.matches[0].largest == 40 + 11


def test_calls_whose_cost_is_not_known_are_named_where_they_end_a_budget(tmp_path: Path) -> None:
    teacher = raising(expert, CallFailed("500", kind="server", retry=True, billed="perhaps"), at=[1, 2])
    spending = SpendingLimits(budget=3000, backoff_s=0, turn_tokens=1024)
    told = r"2,048 tokens of it for 2 calls that failed or named no usage"
    for _ in range(2):  # a resume knows it too
        with pytest.raises(BudgetStopped, match=told):
            run_of(tmp_path / "run", preset("op-short", n=40, T_max=12), teacher=teacher, spending=spending)


def test_a_teacher_without_a_limit_is_refused_a_budget_on_many_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "imported", lambda *_: SimpleNamespace(is_initialized=lambda: True))
    settings = Settings(preset("op-short", K=3, T_max=12), "drunk", "expert", "8")
    names = on_ray.ComponentNames("toy_world:open_corridors", "drunk", "expert")
    with pytest.raises(InputError, match="no limit on the tokens of a turn"):
        asyncio.run(
            on_ray.collect_on_ray(
                tmp_path / "run",
                settings,
                names,
                machines=on_ray.Machines(1),
                spending=SpendingLimits(budget=100),
            )
        )
    assert not (tmp_path / "run").exists()


def test_what_every_machine_died_of_is_told() -> None:
    """As of an environment that is not installed there, which ends each actor at its start."""

    class Died(Exception):
        pass

    async def play(unit: object) -> None:
        raise Died("The actor died because of an error:\n  File x, line 3\nInputError: no data there")

    machine = SimpleNamespace(play=SimpleNamespace(remote=play))
    ray = SimpleNamespace(
        exceptions=SimpleNamespace(RayActorError=Died),
        remote=lambda **_: lambda _: SimpleNamespace(remote=lambda *_: machine),
    )

    async def main() -> None:
        ledger = SimpleNamespace(forget=SimpleNamespace(remote=lambda _: asyncio.sleep(0)))
        pool = on_ray._ActorPool(ray, ledger)
        pool.start(on_ray.Machines(2), (), slots=1)
        with pytest.raises(RunError, match=r"every machine has died \(InputError: no data there\)"):
            await pool.play(None)  # type: ignore[arg-type]

    asyncio.run(main())
