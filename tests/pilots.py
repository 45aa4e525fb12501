"""A toy world with a known truth, and pilots recorded in it.

The student walks `steps` contexts; a wrong turn throws it off the track, and `len(student_back)` right
turns lead back; a wrong repair changes nothing. In A the first repair is hard: short continuations are best.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from occupancy.record.recipe import preset
from occupancy.record.rows import Key, episode_row, turn_row
from occupancy.runs import Run, create_run


@dataclass(frozen=True)
class Toy:
    steps: int = 8
    student_on: float = 0.85
    student_back: tuple[float, ...] = (0.05, 0.80, 0.90, 0.95)
    teacher_on: float = 0.98
    teacher_back: float = 0.92
    T_max: int = 24
    shared: tuple[int, ...] = (200, 60, 20, 8)
    """Different contexts of each repair: the first is specific, later ones generic."""

    def right(self, author: str, d: int) -> float:
        if author == "teacher":
            return self.teacher_back if d else self.teacher_on
        return self.student_back[len(self.student_back) - d] if d else self.student_on

    def step(self, i: int, d: int, ok: bool) -> tuple[int, int]:
        depth = len(self.student_back)
        if ok:
            return (i, d - 1) if d else (i + 1, 0)
        return (i, depth) if d == 0 else (i, d)

    def values(self) -> dict[str, np.ndarray]:
        """V[t, i, d] of student and teacher, success with t turns left; exact."""
        depth, values = len(self.student_back), {}
        for author in ("student", "teacher"):
            V = np.zeros((self.T_max + 1, self.steps + 1, depth + 1))
            V[:, self.steps, :] = 1
            for left in range(1, self.T_max + 1):
                for i in range(self.steps):
                    for d in range(depth + 1):
                        p = self.right(author, d)
                        hit, miss = self.step(i, d, True), self.step(i, d, False)
                        V[left, i, d] = p * V[left - 1, *hit] + (1 - p) * V[left - 1, *miss]
            values[author] = V
        return values


A = Toy()


def play(
    toy: Toy, rng: np.random.Generator, who: list[tuple[str, int]], start: tuple[int, int], left: int
) -> tuple[list[dict[str, Any]], bool]:
    """Turns played by (author, how many) in order, until the end; whether the episode was a success."""
    (i, d), turns = start, []
    authors = [author for author, count in who for _ in range(count)]
    for author in authors[:left]:
        if i == toy.steps:
            break
        spot = int(min(rng.zipf(1.5), toy.shared[len(toy.student_back) - d] if d else 200))
        turns.append({"author": author, "state": (i, d), "spot": spot, "tokens": int(rng.integers(80, 121))})
        i, d = toy.step(i, d, bool(rng.random() < toy.right(author, d)))
    return turns, i == toy.steps


def write_pilot(
    folder: Path,
    toy: Toy,
    *,
    tasks: int = 40,
    rollouts: int = 2,
    demos: int = 1,
    ks: tuple[int, ...] = (0, 1, 2, 3, 5),
    replicates: int = 2,
    seed: int = 0,
) -> Run:
    """Record a pilot; the rows are those of `fewsteps collect --pilot`."""
    rng = np.random.default_rng(seed)
    info = {
        "kind": "pilot",
        "environment": "toy 1",
        "seed": seed,
        "student": "pi_1",
        "teacher": "expert",
        "handback": list(ks),
        "replicates": replicates,
        "tasks": f"train:{tasks}",
        "n_tasks": tasks,
    }
    run = create_run(folder, preset("op-short", K="inf", T_max=toy.T_max), info)
    episodes: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []

    def add(key: Key, played: Any, first: int, **more: Any) -> str:
        own, won = played
        teacher = key.kind in ("demo", "continuation")
        row = episode_row(
            key,
            prefix_policy="" if key.kind in ("rollout", "demo") else "pi_1",
            policy="expert" if teacher else "pi_1",
            teacher="" if key.kind == "rollout" else "expert",
            length=first + len(own) - 1,
            R=float(won),
            status="finished" if won else "horizon",
            environment="toy 1",
            **more,
        )
        episodes.append(row)
        turns.extend(_turn(key, first + at, turn) for at, turn in enumerate(own))
        return key.episode_id

    for q in range(tasks):
        task = f"task-{q:03d}"
        for j in range(demos if q % 2 == 0 else 0):
            own = play(toy, rng, [("teacher", toy.T_max)], (0, 0), toy.T_max)
            key = Key("demo", task, continuation=j)
            add(key, own, 1, switch_turn=1, K=toy.T_max, teacher_turns=len(own[0]))
        for i in range(rollouts):
            path, won = play(toy, rng, [("student", toy.T_max)], (0, 0), toy.T_max)
            parent = add(Key("rollout", task, rollout=i), (path, won), 1)
            t = int(rng.integers(1, len(path) + 1))
            start, left = path[t - 1]["state"], toy.T_max - t + 1
            own = play(toy, rng, [("teacher", left)], start, left)
            own[0][0]["spot"] = path[t - 1]["spot"]
            L = len(own[0])
            key = Key("continuation", task, rollout=i, proposal=i, continuation=0)
            whole = add(key, own, t, parent=parent, switch_turn=t, K=left, teacher_turns=L)
            for k in (k for k in ks if k < L):
                for m in range(replicates):
                    back = play(toy, rng, [("student", left - k)], own[0][k]["state"], left - k)
                    key = Key("handback", task, i, i, 0, m, k=k)
                    add(key, back, t + k, parent=whole, switch_turn=t, K=k, teacher_turns=k)
    run.commit({"episodes": episodes, "turns": turns, "proposals": _proposals(episodes)})
    return run


def _proposals(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each rollout proposed once, at the turn where its continuation begins."""
    rollouts = {row["episode_id"]: row for row in episodes if row["kind"] == "rollout"}
    key = ("task_id", "rollout", "proposal", "cluster_id")
    return [
        {
            **{name: row[name] for name in key},
            "continuation": -1,
            "replicate": -1,
            "recipe_hash": "",
            "t_prime": row["switch_turn"],
            "probability": 1 / rollouts[row["parent"]]["length"],
            "T": rollouts[row["parent"]]["length"],
            "R": rollouts[row["parent"]]["R"],
            "psi": json.dumps(
                {"all": True, "without_success": rollouts[row["parent"]]["R"] < 1, "no_repetition": True}
            ),
            "outcome": "accepted",
        }
        for row in episodes
        if row["kind"] == "continuation"
    ]


def _turn(key: Key, t: int, turn: dict[str, Any]) -> dict[str, Any]:
    i, d = turn["state"]
    teacher = turn["author"] == "teacher"
    return turn_row(
        key,
        t,
        author=turn["author"],
        text="right",
        observation="",
        context_id=f"{i}.{d}.{turn['spot']}",
        student_tokens=turn["tokens"] + 5,
        output_tokens=turn["tokens"],
        prompt_tokens=200 + 150 * t if teacher else None,
        cached_tokens=150 * (t - 1) if teacher else None,
        counter="toy",
    )
