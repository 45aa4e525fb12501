"""The answer in words: what to do about a small pilot or a flat curve comes first."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pilots
import pytest

from agentloop.commands.collect import add_commands as add_collect
from analysis.plan.answer import TRACES, sentences, table
from analysis.plan.doubts import PILOT_SHARE
from analysis.plan.offers import Purchase
from analysis.plan.planner import plan, plan_pilot
from analysis.plan.read import pilot_of
from analysis.plan.report import Plan
from occupancy.importers.rows import WORDS
from occupancy.record.show import safe_console
from occupancy.runs import open_run


def test_a_flat_curve_says_after_the_decision_which_budget_is_worth_it(found: Plan) -> None:
    curve = replace(found.curve, enough=60_000.0, pass_at_1=(0.5, 0.6, 0.62, 0.625, 0.626, 0.627))
    flat = replace(found, curve=curve, pilot=found.pilot | {"price": 12_000.0})
    decision, meaning, less, *_ = sentences(flat)
    assert decision.startswith(("Buy", "No preference"))
    assert meaning.startswith(f"{flat.recommended.recipe}: ")
    assert less.startswith("Of this budget about the first 60,000 are worth it: the other 440,000 bring ")
    assert "less than 0.1" in less
    assert "`--budget 60000` plans the smaller one" in less
    steep = replace(found, curve=replace(curve, enough=None), pilot=found.pilot | {"price": 30_000.0})
    assert not any(line.startswith(("Of this budget", "Spend")) for line in sentences(steep))


@pytest.mark.parametrize("price", [23_001.0, 12_345.6, 33_333.3])
def test_no_budget_is_suggested_that_would_be_refused(found: Plan, price: float) -> None:
    flat = replace(found.curve, enough=23_000.0)
    (line,) = [
        line
        for line in sentences(replace(found, curve=flat, pilot=found.pilot | {"price": price}))
        if line.startswith("Of this budget")
    ]
    suggested = float(line.partition("`--budget ")[2].partition("`")[0])
    assert PILOT_SHARE * suggested >= price
    everywhere = replace(found, curve=replace(flat, enough=1.0), budget=5.5 * price)
    text = " ".join(sentences(replace(everywhere, pilot=found.pilot | {"price": price})))
    for said in re.findall(r"about ([\d,]+) would do as well", text):
        assert PILOT_SHARE * float(said.replace(",", "")) >= 0.999 * price


def test_the_students_level_today_and_what_a_forecast_extrapolates_are_said(found: Plan) -> None:
    text = " ".join(sentences(replace(found, pilot=found.pilot | {"J_student": 0.48})))
    assert ", from 0.480 now" in text
    trained = {"demo_tokens": 1000, "continuation_tokens": 500, "sunk_tokens": 0, "seconds": 60.0}
    text = " ".join(sentences(replace(found, trainings=(trained,))))
    assert "The largest training had 1,500 teacher tokens: " in text
    assert " times beyond it." in text
    near = trained | {"demo_tokens": 400_000}
    assert "extrapolated" not in " ".join(sentences(replace(found, trainings=(near,))))


def test_the_gain_over_demonstrations_is_said_unless_they_are_the_choice(found: Plan) -> None:
    best, bc = found.recommended, found.demonstrations
    assert bc is not None
    said = f"{100 * (best.pass_at_1 - bc.pass_at_1):+.1f} points against more demonstrations alone"
    assert f"{said} ({bc.pass_at_1:.3f})" in " ".join(sentences(found))
    assert "points against" not in " ".join(sentences(replace(found, recommended=bc)))


def test_a_candidate_that_differs_in_the_pilots_traces_alone_is_told_apart(found: Plan) -> None:
    twin = "all" if found.recommended.pilot_traces == "success" else "success"
    likelier = replace(found.recommended, pilot_traces=twin, p_best=0.28, pass_at_1=0.1)
    chosen = replace(found.recommended, p_best=0.13)
    two = replace(found, recommended=chosen, candidates=(chosen, likelier), not_worse=(chosen, likelier))
    assert f"{chosen.arm.name} with {TRACES[twin]} has the larger chance to be the best (28%" in " ".join(
        sentences(two)
    )


def test_why_there_are_no_demonstrations_is_said(folder: Path) -> None:
    text = " ".join(sentences(plan(folder, budget=1e7, pool=100)))
    assert "More demonstrations alone are not possible: " in text
    assert "demonstrations are needed, and the pool has 100 tasks" in text
    assert "Tasks to spread the budget over: 100 (as given)." in text


def test_beyond_what_curves_know_a_plan_says_to_spend_less_first(found: Plan) -> None:
    doubts = ("The budget is 500 times the pilot's cost, and learning curves ...", "Another doubt.")
    far = replace(
        found,
        pilot=found.pilot | {"price": 1_000.0},
        curve=replace(found.curve, enough=None),
        warnings=doubts,
    )
    assert sentences(far)[0].startswith(
        "Spend about 20,000 first rather than 500,000: learning curves are known"
    )
    warned = [line for line in sentences(far) if line.startswith("Warning: ")]
    assert warned == ["Warning: Another doubt."], "what the answer begins with is not said again"


def test_a_pilot_that_is_too_small_says_first_what_to_do(tmp_path: Path, folder: Path) -> None:
    few = plan(pilots.write_pilot(tmp_path / "few", pilots.A, tasks=6).folder, budget=5e6)
    assert few.status == "pilot_too_small"
    assert sentences(few)[0].startswith("Collect a larger pilot first: this one has 6 tasks")
    assert f"`fewsteps plan {tmp_path / 'few'} --design --budget 5000000`" in sentences(few)[0]
    price = plan(folder, budget=5e5).pilot["price"]
    costly = plan(folder, budget=2 * price)
    assert sentences(costly)[0].startswith(f"Give a budget of at least {5 * price:,.0f} (`--budget ")
    assert f"`--already {folder}`" in sentences(costly)[0]
    assert any("own cost" in warning for warning in costly.warnings)
    assert not any("own cost" in line for line in sentences(costly))
    assert plan(folder, budget=2 * price, already=[folder]).status != "pilot_too_small"


def test_near_equal_candidates_are_summed_by_what_a_user_decides(found: Plan) -> None:
    sums = found.p_best_by()
    for what in ("recipe", "r_tokens"):
        assert sum(sums[what].values()) == pytest.approx(sum(c.p_best for c in found.candidates))
    chosen = [c for c in found.candidates if c.recipe in ("op-short", "op-failed")]
    assert sum(sums["K"].values()) == pytest.approx(sum(c.p_best for c in chosen))
    assert list(sums["recipe"].values()) == sorted(sums["recipe"].values(), reverse=True)
    assert found.to_dict()["p_best_by"] == sums
    even = replace(found, recommended=replace(found.recommended, p_best=0.02))
    (line,) = [line for line in sentences(even) if line.startswith("No single candidate stands out.")]
    assert "by recipe: " in line
    sure = replace(found, recommended=replace(found.recommended, p_best=0.9))
    assert not any(line.startswith("No single") for line in sentences(sure))


def test_the_table_fits_80_columns_in_plain_words(found: Plan) -> None:
    console = safe_console(width=80, record=True, file=io.StringIO())
    console.print(table(found))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    assert " won " not in shown


def test_help_of_collect_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    monkeypatch.setenv("COLUMNS", "80")
    parser = argparse.ArgumentParser(prog="fewsteps")
    commands = parser.add_subparsers()
    add_collect(commands)
    shown = commands.choices["collect"].format_help()
    assert max(map(len, shown.splitlines())) <= 80


def test_a_plan_from_words_says_so_and_a_version_alone_is_no_environment(tmp_path: Path) -> None:
    folder = pilots.write_pilot(tmp_path / "A", pilots.A, tasks=24).folder
    run = open_run(folder)
    episodes, turns = (run.read(name).to_pandas() for name in ("episodes", "turns"))
    info = run.info | {"made_with": {"env": "shop:Shop"}}
    words = turns.assign(counter=WORDS)
    pilot = pilot_of(run.recipe, info, episodes=episodes.assign(environment="1"), turns=words)
    assert pilot.environment == "shop:Shop 1"
    assert pilot.warnings[0].startswith("Teacher tokens are words here")
    found = plan_pilot(pilot, Purchase(1e6))
    assert "target_tokens" not in " ".join(sentences(found))
