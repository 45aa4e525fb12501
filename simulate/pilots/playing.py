"""Play a pilot in a world, and write it as the run folder that a real pilot would have left.

`fewsteps plan` reads it like any other, so planners are judged without their knowing. Turns name their
context and action; a context's hash stands for what the policy has read.
"""

# ruff: noqa: PLR0917 - the key of an episode is a tuple of five, spelt out
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from occupancy import Recipe, preset
from occupancy.record.errors import InputError
from occupancy.runs import Run, create_run
from simulate.pipelines.outcome import Owned
from simulate.worlds.types import Float64, World

STUDENT, TEACHER = "student", "teacher"
Rows = dict[str, list[dict[str, Any]]]


POOL = 100_000
"""Tasks that a world offers for collection."""


@dataclass(frozen=True)
class PilotSize:
    """What a pilot plays; the defaults are the smallest design that a planner is asked to live with."""

    tasks: int = 60
    rollouts: int = 1
    """Student rollouts a task, each with one continuation from a uniformly drawn turn."""
    demos: int = 40
    """Demonstrations, on the first tasks."""
    base_rollouts: int = 0
    """Rollouts a task of pi_0, beside those of another student."""
    handback: tuple[int, ...] = (0, 1, 2, 3, 5)
    """Teacher turns k after which the student finishes."""
    replicates: int = 2
    """Hand-backs for each continuation and k."""

    def __post_init__(self) -> None:
        for name, least in (
            ("tasks", 1),
            ("rollouts", 1),
            ("demos", 0),
            ("base_rollouts", 0),
            ("replicates", 1),
        ):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)}: expected at least {least}")
        if any(k < 0 for k in self.handback):
            raise InputError(f"handback={self.handback}: expected teacher turns k >= 0")


@dataclass
class _Episode:
    start: int
    t: int
    states: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    authors: list[str] = field(default_factory=list)
    end: int = 0

    @property
    def length(self) -> int:
        return self.t + len(self.states) - 1


def play_pilot(
    world: World,
    folder: str | Path,
    *,
    size: PilotSize = PilotSize(),
    student: Any = None,
    seed: int = 0,
    pool: int = POOL,
) -> Run:
    """Write a pilot of a student [X, A] (by default pi_0) as a run folder; `pool` tasks are on offer."""
    recipe, info, rows = pilot_rows(world, size=size, student=student, seed=seed, pool=pool)
    run = create_run(folder, recipe, info)
    run.commit(rows)
    return run


def pilot_rows(
    world: World,
    *,
    size: PilotSize = PilotSize(),
    student: Any = None,
    seed: int = 0,
    pool: int = POOL,
) -> tuple[Recipe, dict[str, Any], Rows]:
    """Recipe, run.json and rows of the tables of such a pilot, without a folder."""
    player = _Player(world, world.base if student is None else np.asarray(student, np.float64))
    recipe = preset("op-short", K="inf", T_max=world.horizon)
    name = "pi_0" if student is None else "pi_1"
    rows: Rows = {"episodes": [], "turns": [], "proposals": [], "traces": []}
    for q in range(size.tasks):
        rng = np.random.default_rng([seed, q])
        task, start = f"task-{q:05d}", int(rng.choice(world.S, p=world.start))
        for i in range(size.rollouts):
            for part in _attempt(player, recipe, size, name, task, start, i, rng):
                _extend(rows, part)
        for i in range(size.base_rollouts):
            episode = player.play(start, 1, rng, base=True)
            at = (task, size.rollouts + i, -1, -1, -1)
            _extend(rows, player.rows("rollout", at, episode, recipe, policy="pi_0"))
        if q < size.demos:
            _extend(rows, _demo(player, recipe, task, start, rng))
    info = {
        "kind": "pilot",
        "environment": f"world {world.name}",
        "student": name,
        "teacher": TEACHER,
        "tasks": str(pool),
        "seed": seed,
        "handback": list(size.handback),
        "replicates": size.replicates,
    }
    return recipe, info, rows


def labels_of(world: World, rows: Rows) -> Owned:
    """What the teacher's turns in a pilot's rows teach a student of that world."""
    owned = Owned(np.zeros_like(world.base), np.zeros_like(world.base))
    for turn in rows["turns"]:
        if turn["author"] == TEACHER:
            table = owned.demos if turn["kind"] == "demo" else owned.on_policy
            table[world.contexts[turn["state_id"]], int(turn["text"].rsplit(" ", 1)[1])] += 1.0
    return owned


def _attempt(
    player: _Player, recipe: Recipe, size: PilotSize, name: str, task: str, start: int, i: int, rng: Any
) -> Iterator[Rows]:
    """A rollout, its continuation from a drawn turn, and the hand-backs along it."""
    rollout = player.play(start, 1, rng)
    yield player.rows("rollout", (task, i, -1, -1, -1), rollout, recipe, policy=name)
    t = int(rng.integers(1, rollout.length + 1))
    parent = episode_id(task, "rollout", i, -1, -1, -1)
    key = (task, i, i, 0, -1)
    tail = player.play(rollout.states[t - 1], t, rng, teacher_turns=recipe.cap(t))
    cast = {"prefix_policy": name, "policy": TEACHER, "teacher": TEACHER, "switch_turn": t}
    rows = player.rows("continuation", key, tail, recipe, K=recipe.cap(t), parent=parent, **cast)
    yield rows | {"proposals": [_proposal(player, recipe, task, i, rollout, t)]}
    yield {"traces": [_trace(recipe, key, "continuation", player, rollout, tail, t)]}
    for k in size.handback:
        for m in range(size.replicates if k < len(tail.states) else 0):
            rest = player.play(tail.states[k], t + k, rng)
            cast = {"prefix_policy": name, "policy": name, "teacher": TEACHER if k else ""}
            whole = (task, i, i, 0, m)
            parent_id = episode_id(task, "continuation", *key[1:])
            yield player.rows(
                "handback", whole, rest, recipe, K=k, parent=parent_id, switch_turn=t if k else 0, **cast
            )


def _demo(player: _Player, recipe: Recipe, task: str, start: int, rng: Any) -> Rows:
    key = (task, -1, -1, 0, -1)
    demo = player.play(start, 1, rng, teacher_turns=recipe.T_max)
    cast = {"policy": TEACHER, "teacher": TEACHER, "switch_turn": 1, "K": recipe.T_max}
    trace = _trace(recipe, key, "demo", player, None, demo, 1)
    return player.rows("demo", key, demo, recipe, **cast) | {"traces": [trace]}


class _Player:
    """A world and a student, ready to be played turn by turn."""

    def __init__(self, world: World, student: Float64) -> None:
        self.world = world
        self.student = student
        self.policies = {
            "student": np.cumsum(world.by_state(student), axis=1),
            "base": np.cumsum(world.by_state(world.base), axis=1),
            "teacher": np.cumsum(world.teacher, axis=1),
        }
        self.chances = np.cumsum(world.chances, axis=2)

    def play(self, s: int, t: int, rng: Any, *, teacher_turns: int = 0, base: bool = False) -> _Episode:
        """Turns t, t + 1, .. from state s: the teacher's first, then the student's, to the end."""
        episode = _Episode(s, t)
        last_a, last_u = self.world.A - 1, self.chances.shape[2] - 1
        taught = teacher_turns > 0
        most = teacher_turns if taught else self.world.horizon
        while s < self.world.S and t <= self.world.horizon and len(episode.states) < most:
            policy = self.policies["teacher" if taught else "base" if base else "student"]
            a = min(int(policy[s].searchsorted(rng.random(), "right")), last_a)
            episode.states.append(s)
            episode.actions.append(a)
            episode.authors.append(TEACHER if taught else STUDENT)
            u = min(int(self.chances[s, a].searchsorted(rng.random(), "right")), last_u)
            s, t = int(self.world.successors[s, u]), t + 1
        episode.end = s
        return episode

    def rows(self, kind: str, key: tuple[Any, ...], episode: _Episode, recipe: Recipe, **cast: Any) -> Rows:
        """One row for `episodes`, and one for each turn of `turns`."""
        world, columns = self.world, _columns(key)
        identity = episode_id(key[0], kind, *key[1:], k=cast.get("K", 0))
        reward = float(episode.end == world.S)
        prefix = cast.get("teacher") and kind == "handback"
        row = {
            "episode_id": identity,
            **columns,
            "cluster_id": key[0],
            "task_kind": "",
            "kind": kind,
            "prefix_policy": "",
            "teacher": "",
            "parent": "",
            "switch_turn": 0,
            "K": 0,
            "teacher_turns": cast.get("K", 0) if prefix else episode.authors.count(TEACHER),
            "length": episode.length,
            "R": reward,
            "status": "finished" if episode.end >= world.S else "horizon",
            "error": "",
            "phi": json.dumps({"all": True, "success": reward >= recipe.success_at}),
            "prompt": "" if cast.get("parent") else json.dumps(_prompt(world, episode.start)),
            "environment": f"world {world.name}",
            "seed": 0,
            "wall_s": 0.0,
        }
        turns = [self._turn(identity, columns, kind, episode, j) for j in range(len(episode.states))]
        return {"episodes": [row | cast], "turns": turns}

    def _turn(
        self, identity: str, columns: dict[str, Any], kind: str, episode: _Episode, j: int
    ) -> dict[str, Any]:
        world = self.world
        s, a = episode.states[j], episode.actions[j]
        following = episode.states[j + 1] if j + 1 < len(episode.states) else episode.end
        tokens, context = int(world.tokens[s]), int(world.contexts[s])
        chance = float(self.student[context, a])
        observation = _observation(world, following)
        return {
            "episode_id": identity,
            **columns,
            "kind": kind,
            "t": episode.t + j,
            "author": episode.authors[j],
            "text": _text(context, a),
            "observation": observation,
            "observation_hash": _hash(observation),
            "context_id": _hash(f"context {context}"),
            "state_id": s,
            "student_tokens": tokens,
            "output_tokens": tokens,
            "reasoning_tokens": 0,
            "prompt_tokens": None,
            "cached_tokens": None,
            "counter": "world",
            "finish_reason": "stop",
            "parse_status": "ok",
            "logprob": float(np.log(chance)) if chance > 0 else None,
        }


def episode_id(
    task: str, kind: str, rollout: int, proposal: int, continuation: int, replicate: int, *, k: int = 0
) -> str:
    """Identity of an episode, as collected runs write it."""
    numbers = (rollout, proposal, continuation, replicate)
    tail = "-".join("x" if number < 0 else str(number) for number in numbers)
    return f"{task}#{kind}{k if kind == 'handback' else ''}-{tail}"


def _proposal(
    player: _Player, recipe: Recipe, task: str, i: int, rollout: _Episode, t: int
) -> dict[str, Any]:
    success = rollout.end == player.world.S
    psi = {
        "all": True,
        "without_success": not success,
        "no_repetition": not _repeats(player, rollout, recipe),
    }
    return {
        **_columns((task, i, i, -1, -1)),
        "cluster_id": task,
        "recipe_hash": recipe.hash,
        "t_prime": t,
        "probability": 1.0 / rollout.length,
        "T": rollout.length,
        "R": float(success),
        "psi": json.dumps(psi),
        "outcome": "accepted",
    }


def _trace(
    recipe: Recipe,
    key: tuple[Any, ...],
    kind: str,
    player: _Player,
    rollout: _Episode | None,
    tail: _Episode,
    t: int,
) -> dict[str, Any]:
    world = player.world
    before = [] if rollout is None else list(zip(rollout.states, rollout.actions, strict=True))[: t - 1]
    turns = [*before, *zip(tail.states, tail.actions, strict=True)]
    messages = [message | {"train": False} for message in _prompt(world, turns[0][0])]
    for j, (s, a) in enumerate(turns):
        taught = j >= t - 1
        author = TEACHER if taught else STUDENT
        text = _text(int(world.contexts[s]), a)
        messages.append({"role": "assistant", "content": text, "author": author, "train": taught})
        if j + 1 < len(turns):
            reply = _observation(world, turns[j + 1][0])
            messages.append({"role": "user", "content": reply, "author": "environment", "train": False})
    return {
        "episode_id": episode_id(key[0], kind, *key[1:]),
        **_columns(key),
        "recipe_hash": recipe.hash,
        "messages": json.dumps(messages),
        "target_turns": len(tail.states),
        "C_tr": int(sum(world.tokens[s] for s in tail.states)),
        "token_ids": None,
        "row_starts": None,
        "targets": None,
        "target_tokens": None,
        "sequence_tokens": None,
    }


def _repeats(player: _Player, episode: _Episode, recipe: Recipe) -> bool:
    texts = [
        _text(int(player.world.contexts[s]), a) for s, a in zip(episode.states, episode.actions, strict=True)
    ]
    n = recipe.repetition
    return any(len(set(texts[j : j + n])) == 1 for j in range(len(texts) - n + 1))


def _columns(key: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("task_id", "rollout", "proposal", "continuation", "replicate"), key, strict=True))


def _prompt(world: World, s: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": _observation(world, s), "author": "task"}]


def _observation(world: World, s: int) -> str:
    if s >= world.S:
        return "success" if s == world.S else "failure"
    return f"context {world.contexts[s]}"


def _text(context: int, action: int) -> str:
    return f"in context {context} play {action}"


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _extend(rows: Rows, part: Rows) -> None:
    for table, new in part.items():
        rows[table] += new
