"""Small training runs in a world: what `fewsteps train` and `evaluate` would have left for `--calibrate`.

A tabular student is trained on the teacher's turns of a part of a pilot's tasks and evaluated on new tasks;
the turns of the other tasks are held out and measured. A task of a world is its first state, so an
evaluation draws first states, and the student's chance from each is exact.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from occupancy import Recipe
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import INF
from occupancy.record.rows import Row, evaluation_row, trained_turn_row
from occupancy.runs import Run, create_run
from simulate.pipelines.outcome import chances_of
from simulate.worlds.students import Tabular
from simulate.worlds.types import Float64, World

_LEAST_CHANCE = 1e-9


@dataclass(frozen=True)
class SmallRun:
    """What is trained on, and how it is evaluated."""

    share: float = 0.5
    """Of the pilot's tasks; the turns of the others are held out."""
    K: float = INF
    """Teacher turns of a continuation that are trained on; demonstrations are whole."""
    tasks: int = 400
    """Of the evaluation."""
    attempts: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.K < 1 or self.tasks < 2 or self.attempts < 1:
            raise InputError(
                f"share={self.share}, K={self.K}, tasks={self.tasks}, attempts={self.attempts}: expected a "
                f"share above 0 and up to 1, K and attempts of at least 1, and at least 2 tasks"
            )


def train_small(
    world: World,
    pilot: Run,
    folder: str | Path,
    *,
    size: SmallRun = SmallRun(),
    student: Tabular = Tabular(),  # noqa: B008 - frozen
    seed: int = 0,
) -> Run:
    """Train a student on a part of a world's pilot and evaluate it; writes the run folder."""
    turns = pilot.read("turns").to_pylist()
    clusters = {e["episode_id"]: e["cluster_id"] for e in pilot.read("episodes").to_pylist()}
    taught = [t for t in turns if t["author"] == "teacher" and t["kind"] in ("continuation", "demo")]
    if not taught:
        raise DataError(f"{pilot.folder} holds no turn of a teacher: expected a pilot of the world")
    names = sorted(set(clusters.values()))
    rng = np.random.default_rng(seed)
    used = set(rng.permutation(names)[: max(round(size.share * len(names)), 1)].tolist())
    trained, held = _split(taught, clusters, used, size.K)
    policy = _learn(world, trained, student)
    name = f"tabular-{size.share:g}-{size.K:g}-{seed}"
    rows = [
        _row(name, world, turn, depth, clusters, policy=policy, held_out=out)
        for part, out in ((trained, False), (held, True))
        for turn, depth in part
    ]
    run = create_run(
        folder,
        Recipe("evaluation", teacher="none", T_max=world.horizon),
        {"kind": "training", "environment": f"world {world.name}", "seed": seed},
    )
    tokens = sum(turn["output_tokens"] for turn, _ in trained)
    training = {
        "training_id": name,
        "base": "pi_0",
        "data": json.dumps({"runs": [str(pilot.folder)]}),
        "target_tokens": tokens,
        "sequence_tokens": tokens,
        "gpu_s": 0.0,
        "held_out_nll": json.dumps(None),
    }
    evaluations = list(_evaluate(world, policy, size, name, rng))
    run.commit({"trainings": [training], "trained_turns": rows, "evaluations": evaluations})
    return run


def _split(
    taught: list[dict[str, Any]], clusters: dict[str, str], used: set[str], K: float
) -> tuple[list[tuple[dict[str, Any], int]], list[tuple[dict[str, Any], int]]]:
    """Turns with their depth: to train on, and held out."""
    trained, held = [], []
    depth: dict[str, int] = {}
    for turn in sorted(taught, key=lambda t: (t["episode_id"], t["t"])):
        j = depth[turn["episode_id"]] = depth.get(turn["episode_id"], 0) + 1
        if clusters[turn["episode_id"]] not in used:
            held.append((turn, j))
        elif turn["kind"] == "demo" or j <= K:
            trained.append((turn, j))
    return trained, held


def _learn(world: World, trained: list[tuple[dict[str, Any], int]], student: Tabular) -> Float64:
    """[X, A] the tabular student of these turns."""
    counts = np.zeros_like(world.base)
    for turn, _ in trained:
        counts[_place(world, turn)] += 1.0
    return student.learn(world.base, world.features, counts)


def _place(world: World, turn: dict[str, Any]) -> tuple[int, int]:
    """Context and action of a recorded turn."""
    return int(world.contexts[turn["state_id"]]), int(turn["text"].rpartition(" ")[2])


def _row(
    name: str,
    world: World,
    turn: dict[str, Any],
    depth: int,
    clusters: dict[str, str],
    *,
    policy: Float64,
    held_out: bool,
) -> Row:
    at = _place(world, turn)
    nll = [float(-np.log(max(law[at], _LEAST_CHANCE))) if held_out else None for law in (world.base, policy)]
    return trained_turn_row(
        name,
        turn,
        cluster_id=clusters[turn["episode_id"]],
        t=turn["t"],
        depth=depth,
        context_class="demonstration" if turn["kind"] == "demo" else "student prefix",
        targets=1,
        held_out=held_out,
        nll_before=nll[0],
        nll=nll[1],
    )


def _evaluate(world: World, policy: Float64, size: SmallRun, name: str, rng: np.random.Generator) -> Any:
    """Rows of attempts at new tasks, each from the exact chance of its first state."""
    starts = rng.choice(world.S, size=size.tasks, p=world.start)
    chance = chances_of(world, policy)
    for number, s in enumerate(starts):
        for attempt in range(size.attempts):
            score = float(rng.random() < chance[s])
            yield evaluation_row(name, f"new-{number:05d}", attempt=attempt, score=score, status="finished")
