"""The learning curve's posterior, from trainings in worlds where the student's own is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import naive_calibrate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.plan.calibrate import (
    GRID,
    KAPPA,
    KAPPA_SPREAD,
    Kappa,
    held_out_loglik,
    kappa_posterior,
    prior,
)
from analysis.plan.read import read_pilot
from analysis.plan.trainings import Training, held_out, read_trainings
from occupancy.record.errors import DataError, InputError
from occupancy.runs import Run, create_run
from simulate.pilots.playing import PilotSize, play_pilot
from simulate.pilots.small_runs import SmallRun, train_small
from simulate.worlds.families import draw_worlds, family
from simulate.worlds.students import Tabular
from simulate.worlds.types import World

HALF = SmallRun(share=0.5)
SHORT = SmallRun(share=0.5, K=1)


@pytest.fixture(scope="module")
def world() -> World:
    (world,) = draw_worlds(1, seed=3, families=[family("middle")])
    return world


@pytest.fixture(scope="module")
def pilot(world: World, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("pilot") / "pilot"
    return play_pilot(world, folder, size=PilotSize(tasks=60), seed=1)


def trainings(world: World, pilot: Run, folder: Path, kappa: float) -> list[Training]:
    student = Tabular(kappa=kappa)
    runs = [
        train_small(world, pilot, folder / str(at), size=size, student=student, seed=at)
        for at, size in enumerate((HALF, SHORT))
    ]
    return read_trainings([run.folder for run in runs], read_pilot(pilot.folder), pilot.folder)


def curve(kappa: float, labels: float) -> np.ndarray:
    """A toy of the model: pass@1 from .4 to .95 as labels are learnt."""
    return np.asarray(0.4 + 0.55 * labels / (labels + np.asarray(kappa)))


def test_nothing_measured_leaves_the_prior() -> None:
    found = kappa_posterior(np.zeros((0, len(GRID))), np.zeros(0), np.zeros(0))
    assert found.weights == pytest.approx(prior().weights)
    assert found.centre == pytest.approx(KAPPA, rel=0.01)
    assert found.spread == pytest.approx(KAPPA_SPREAD, rel=0.05)


@pytest.mark.parametrize("truth", [0.3, 1.5, 6.0])
def test_pass_at_1_moves_kappa_to_the_truth(truth: float) -> None:
    labels = (1.0, 4.0)
    predicted = np.stack([curve(GRID, n) for n in labels])
    measured = np.array([float(curve(truth, n)) for n in labels])
    found = kappa_posterior(predicted, measured, np.array([0.01, 0.01]), discrepancy=0.01)
    assert found.centre == pytest.approx(truth, rel=0.2)
    assert found.spread < 0.5 * KAPPA_SPREAD


def test_the_models_error_is_shared_by_trainings() -> None:
    """Ten trainings that all miss by the same amount tell no more than the model's own error allows."""
    predicted = np.stack([curve(GRID, 3.0)] * 10)
    measured, se = np.full(10, 0.7), np.full(10, 1e-4)
    ten = kappa_posterior(predicted, measured, se)
    one = kappa_posterior(predicted[:1], measured[:1], se[:1])
    assert ten.spread == pytest.approx(one.spread, rel=0.01)


def test_draws_of_the_model_widen_the_posterior() -> None:
    rng = np.random.default_rng(0)
    spread = curve(GRID, 3.0) + 0.1 * rng.standard_normal((1, 200, 1))
    wide = kappa_posterior(spread, np.array([0.7]), np.array([0.01]))
    narrow = kappa_posterior(curve(GRID, 3.0)[None], np.array([0.7]), np.array([0.01]))
    assert wide.spread > 1.3 * narrow.spread


@given(arrays(float, len(GRID), elements=st.floats(0, 1)), st.integers(0, 9))
def test_draws_are_of_the_posterior(weights: np.ndarray, seed: int) -> None:
    weights = weights + 1e-3
    found = Kappa(GRID, weights / weights.sum())
    drawn = found.draws(4000, np.random.default_rng(seed))
    assert drawn.min() >= GRID[0] * (1 - 1e-9)
    assert drawn.max() <= GRID[-1] * (1 + 1e-9)
    assert np.log(drawn).mean() == pytest.approx(np.log(found.centre), abs=0.25)
    low, high = found.band()
    assert low <= high


@given(st.integers(1, 40), st.integers(0, 99))
def test_held_out_agrees_with_dense_matrices(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    context, training = rng.integers(0, 6, n), rng.integers(0, 3, n)
    labels = rng.integers(0, 8, (6, 3))[context, training].astype(float)
    before, after = rng.exponential(1.0, n), rng.exponential(0.3, n)
    turns = list(zip(context, training, labels, before, after, strict=True))
    found = held_out_loglik(context=context, training=training, labels=labels, before=before, after=after)
    if not (labels > 0).any():
        assert (found == 0).all()
        return
    naive = naive_calibrate.held_out(turns, GRID)
    assert found - found.max() == pytest.approx(naive - naive.max(), abs=1e-6)


def test_held_out_turns_of_a_world_move_kappa_towards_the_truth(
    world: World, pilot: Run, tmp_path: Path
) -> None:
    """The prior, and how sure the teacher is, still pull: the order is right, and the distance shrinks."""
    centres = []
    for truth in (0.3, 1.5, 6.0):
        seen = held_out(trainings(world, pilot, tmp_path / str(truth), truth), GRID)
        found = kappa_posterior(np.zeros((0, len(GRID))), np.zeros(0), np.zeros(0), loglik=seen)
        left, before = abs(np.log(found.centre / truth)), abs(np.log(KAPPA / truth))
        assert left < max(0.7, 0.75 * before)
        assert found.spread < 0.7 * KAPPA_SPREAD
        centres.append(found.centre)
    assert centres[0] < 0.6 * centres[1] < 0.6 * centres[2]


def test_a_small_run_is_what_training_leaves(world: World, pilot: Run, tmp_path: Path) -> None:
    (one,) = read_trainings(
        [train_small(world, pilot, tmp_path / "t", size=HALF).folder], read_pilot(pilot.folder), pilot.folder
    )
    short = train_small(world, pilot, tmp_path / "s", size=SHORT)
    turns = short.read("trained_turns").to_pylist()
    taught = [t for t in turns if not t["held_out"]]
    assert {t["cluster_id"] for t in taught}.isdisjoint(t["cluster_id"] for t in turns if t["held_out"])
    assert len({t["cluster_id"] for t in taught}) == 30
    assert max(t["depth"] for t in taught if t["context_class"] == "student prefix") == 1
    assert one.labels.sum() > len(taught)
    assert one.elsewhere == 0
    assert 0 < one.se < 0.03
    assert (one.after[one.seen > 0].mean() < one.before[one.seen > 0].mean()) & (one.after > 0).any()


def test_evaluation_is_of_the_trained_student(world: World, pilot: Run, tmp_path: Path) -> None:
    """More labels and a quicker student do better; a student that learns nothing is pi_0."""
    quick, slow = (trainings(world, pilot, tmp_path / str(k), k)[0].J for k in (0.3, 1e9))
    base = read_pilot(pilot.folder).rollouts.R.mean()
    assert slow == pytest.approx(base, abs=0.2)
    assert quick > slow + 0.2


def refused(pilot: Run, folders: Sequence[Path], match: str) -> None:
    with pytest.raises(DataError, match=match):
        read_trainings(folders, read_pilot(pilot.folder), pilot.folder)


def test_wrong_runs_are_refused(world: World, pilot: Run, tmp_path: Path) -> None:
    other = draw_worlds(1, seed=4, families=[family("short")])[0]
    theirs = play_pilot(other, tmp_path / "theirs", size=PilotSize(tasks=4, demos=4))
    refused(pilot, [train_small(other, theirs, tmp_path / "other").folder], "leave it out")
    refused(pilot, [pilot.folder], "0 trainings")
    run = train_small(world, pilot, tmp_path / "t")
    rows = {name: run.read(name).to_pylist() for name in ("trainings", "trained_turns", "evaluations")}

    def changed(name: str, **parts: list[dict[str, object]]) -> Path:
        new = create_run(tmp_path / name, run.recipe, {"environment": run.info["environment"]})
        new.commit({**rows, **parts})
        return new.folder

    refused(pilot, [changed("no turns", trained_turns=[])], "which turns")
    unseen = [row | {"nll": None, "nll_before": None} for row in rows["trained_turns"]]
    refused(pilot, [changed("nothing", trained_turns=unseen, evaluations=[])], "nothing was measured")
    trained = [row["cluster_id"] for row in rows["trained_turns"] if not row["held_out"]]
    same = [row | {"cluster_id": trained[at % 3]} for at, row in enumerate(rows["evaluations"])]
    refused(pilot, [changed("same tasks", evaluations=same)], "evaluate it on other tasks")
    lost = [row | {"episode_id": f"x{row['episode_id']}"} for row in rows["trained_turns"]]
    refused(pilot, [changed("lost", trained_turns=lost)], "none of the")


def test_an_evaluation_of_its_own_is_found_by_the_students_folder(
    world: World, pilot: Run, tmp_path: Path
) -> None:
    """As `fewsteps evaluate` writes it: another run, which knows the policy only."""
    run = train_small(world, pilot, tmp_path / "t")
    rows = {name: run.read(name).to_pylist() for name in ("trainings", "trained_turns", "evaluations")}
    apart = create_run(tmp_path / "e", run.recipe, {"environment": run.info["environment"]})
    policy = {"training_id": f"vllm:out/{rows['trainings'][0]['training_id'].rpartition('-')[0]}/best"}
    apart.commit({"evaluations": [row | policy for row in rows["evaluations"]]})
    bare = create_run(tmp_path / "b", run.recipe, {"environment": run.info["environment"]})
    bare.commit({name: rows[name] for name in ("trainings", "trained_turns")})
    (found,) = read_trainings([bare.folder, apart.folder], read_pilot(pilot.folder), pilot.folder)
    (whole,) = read_trainings([run.folder], read_pilot(pilot.folder), pilot.folder)
    assert (found.J, found.se) == (whole.J, whole.se)


@pytest.mark.parametrize("shape", [(1, 3), (2, len(GRID)), (1, 5, 3)])
def test_shapes_must_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected"):
        kappa_posterior(np.zeros(shape), np.zeros(1), np.zeros(1))


@pytest.mark.parametrize("size", [{"share": 0.0}, {"K": 0}, {"tasks": 1}, {"attempts": 0}])
def test_impossible_small_runs_are_refused(size: dict[str, float]) -> None:
    with pytest.raises(InputError, match=json.dumps(next(iter(size))).strip('"')):
        SmallRun(**size)  # type: ignore[arg-type]
