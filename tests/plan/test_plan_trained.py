"""Plans that trainings have calibrated, in worlds where the student's own learning curve is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.plan import level1
from analysis.plan.calibrate import GRID, KAPPA_SPREAD
from analysis.plan.classes import find_classes
from analysis.plan.costs import costs_of_contexts, demo_cost
from analysis.plan.larger import larger_pilot, lost_share, slope, thinned
from analysis.plan.model import Model, build
from analysis.plan.pilot import Pilot
from analysis.plan.planner import plan
from analysis.plan.predict import Option, SpendingLimits, predict
from analysis.plan.read import read_pilot
from analysis.plan.report import Plan, sentences
from analysis.plan.trained import expected, learn_kappa
from analysis.plan.trainings import read_trainings
from occupancy.record.errors import InputError
from occupancy.runs import Run
from simulate.pilots.playing import PilotSize, play_pilot
from simulate.pilots.small_runs import SmallRun, train_small
from simulate.worlds.families import draw_worlds, family
from simulate.worlds.students import Tabular
from simulate.worlds.types import World


@pytest.fixture(scope="module")
def world() -> World:
    (world,) = draw_worlds(1, seed=3, families=[family("middle")])
    return world


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play_pilot(world, tmp_path_factory.mktemp("pilot") / "pilot", size=PilotSize(), seed=1)


@pytest.fixture(scope="module")
def pilot(run: Run) -> Pilot:
    return replace(read_pilot(run.folder), pool=10_000, pool_stated=True)


@pytest.fixture(scope="module")
def model(pilot: Pilot) -> Model:
    return build(
        pilot,
        find_classes(pilot),
        depths=(1, 3, pilot.recipe.T_max),
        each=costs_of_contexts(pilot, axis="inference", prices=None),
        demo_each=demo_cost(pilot, axis="inference", prices=None),
        draws=12,
        seed=0,
    )


def planned(run: Run, pilot: Pilot, **more: Any) -> Plan:
    """A plan from few draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level1, "DRAWS", 40)
        return plan(run.folder, budget=8.0 * pilot.tokens, pool=10_000, **more)


@pytest.fixture(scope="module")
def wide(run: Run, pilot: Pilot) -> Plan:
    """A plan without trainings."""
    return planned(run, pilot)


def train(world: World, run: Run, folder: Path, kappa: float) -> list[Path]:
    sizes = (SmallRun(share=0.5), SmallRun(share=0.5, K=1))
    return [
        train_small(world, run, folder / str(at), size=size, student=Tabular(kappa=kappa), seed=at).folder
        for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("truth", [0.3, 1.5, 6.0])
def test_trainings_move_kappa_to_the_truth(
    world: World, run: Run, pilot: Pilot, tmp_path: Path, truth: float
) -> None:
    trainings = read_trainings(train(world, run, tmp_path, truth), pilot, run.folder)
    found = learn_kappa(pilot, trainings)
    assert abs(np.log(found.centre / truth)) < 0.75
    assert found.spread < 0.6 * KAPPA_SPREAD


def test_more_is_expected_of_a_quick_student(pilot: Pilot, model: Model) -> None:
    G = int(pilot.steps.node.max()) + 1
    few, many = (expected(model, np.full(G, float(n)), GRID) for n in (1, 5))
    assert (np.diff(few, axis=1) <= 1e-9).all()
    assert (many >= few - 1e-9).all()
    nothing = expected(model, np.zeros(G), GRID)
    assert nothing == pytest.approx(np.repeat(model.student[:, None], len(GRID), 1), abs=1e-9)


def test_a_calibrated_plan_says_so(world: World, run: Run, pilot: Pilot, wide: Plan, tmp_path: Path) -> None:
    trainings = train(world, run, tmp_path, 0.5)
    known = planned(run, pilot, calibrate=trainings)
    assert (known.level, known.calibrated, wide.calibrated) == (1, True, False)
    said = json.loads(json.dumps(known.to_dict(), allow_nan=False))["pilot"]
    assert said["kappa"]["low"] < said["kappa"]["centre"] < said["kappa"]["high"]
    assert not any("ranking only" in line for line in sentences(known))
    assert any("calibrated by trainings" in line for line in sentences(known))
    widths = [np.mean([c.high - c.low for c in p.candidates]) for p in (known, wide)]
    assert widths[0] < widths[1]


def test_a_pilot_without_a_model_has_nothing_to_calibrate(pilot: Pilot) -> None:
    steps = replace(pilot.steps, node=np.arange(len(pilot.steps)))
    with pytest.raises(InputError, match="plan without --calibrate"):
        learn_kappa(replace(pilot, steps=steps), [])


def test_a_plan_says_what_a_larger_pilot_is_worth(wide: Plan) -> None:
    more = json.loads(json.dumps(wide.to_dict(), allow_nan=False))["pilot"]["evsi"]
    assert more["evpi"] >= max(size["value"] for size in more["curve"]) >= 0
    assert sum(line.startswith("A larger pilot: ") for line in sentences(wide)) == 1


def test_lost_is_what_the_recommendation_would_not_buy(pilot: Pilot) -> None:
    whole, short, bc = (
        lost_share(pilot, option)
        for option in (
            Option("op-short", np.inf, 0.5),
            Option("op-short", 1.0, 0.5),
            Option("pure-bc", np.inf, 0.0),
        )
    )
    assert whole == pytest.approx(0)
    contexts, demos = pilot.contexts.turns.output.sum(), pilot.demo_turns.output.sum()
    assert bc == pytest.approx(contexts / pilot.tokens)
    assert 0 < short < bc
    assert lost_share(pilot, Option("op-short", np.inf, 1.0)) == pytest.approx(demos / pilot.tokens)
    assert lost_share(pilot, Option("op-critical", np.inf, 0.5)) > 0


def test_a_further_token_teaches_less_where_many_are_spent(pilot: Pilot, model: Model) -> None:
    option = Option("op-short", 3.0, 0.5)
    poor, rich = (slope(model, option, SpendingLimits(n * pilot.tokens), seed=0) for n in (2.0, 40.0))
    assert poor > rich >= 0


def test_the_first_draws_are_the_same(pilot: Pilot, model: Model) -> None:
    options = [Option("op-short", 1.0, 0.5), Option("pure-bc", np.inf, 0.0)]
    few, all_ = (
        predict(m, options, spending=SpendingLimits(5.0 * pilot.tokens)) for m in (thinned(model, 5), model)
    )
    assert few.J.shape == (5, 2)
    # Only the stretch of draws whose ends nearly meet looks at the others.
    assert np.abs(few.J - all_.J[:5]).max() < 0.05


def test_the_pilots_price_lowers_the_number_of_tasks(pilot: Pilot, model: Model, wide: Plan) -> None:
    options = [Option("op-short", K, r) for K in (1.0, 3.0) for r in (0.5, 1.0)]
    spending = SpendingLimits(5.0 * pilot.tokens)
    J = predict(model, options, spending=spending).J
    known = {(o.recipe, o.K, o.r) for o in options}
    kept = tuple(c for c in wide.candidates if (c.recipe, c.K, c.r_tokens) in known)
    assert len(kept) == len(options)
    found = replace(wide, candidates=kept)
    cheap, dear = (
        larger_pilot(pilot, model, options, J, found, spending=spending, price=price, seed=0)
        for price in (1e-9, 1e6 * pilot.tokens)
    )
    assert cheap["best_extra_tasks"] >= dear["best_extra_tasks"] == 0
