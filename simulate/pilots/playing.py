"""Play a pilot in a world, and write it as the run folder that a real pilot would have left.

`fewsteps plan` reads it like any other run, so validation exercises the real input path. The text of a turn
names its context and action; `context_id` is the hash of the context's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from occupancy import Recipe, preset
from occupancy.record.rows import (
    Key,
    Row,
    Rows,
    episode_row,
    merged,
    proposal_row,
    text_hash,
    trace_row,
    turn_row,
)
from occupancy.record.specs import Few, Size, check
from occupancy.runs import Run, create_run
from simulate.pipelines.outcome import Owned
from simulate.worlds.types import Float64, World

STUDENT, TEACHER = "student", "teacher"

POOL = 100_000
"""Tasks that a world offers for collection."""


@dataclass(frozen=True)
class PilotSize:
    """How many episodes of each kind a pilot holds; the defaults are the smallest supported design."""

    tasks: Few = 60
    rollouts: Size = 1
    """Student rollouts a task, each with one continuation from a uniformly drawn turn."""
    demos: Size = 40
    """Demonstrations, on the first tasks."""
    handback: tuple[Size, ...] = (0, 1, 2, 3, 5)
    """Teacher turns k after which the student finishes."""
    replicates: Few = 2
    """Hand-backs for each continuation and k."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class _Episode:
    """Turns t, t + 1, .. of one author, and the state after them."""

    t: int
    author: str
    states: list[int]
    actions: list[int]
    end: int

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
    """A pilot in a world, written as the run folder that a real one would have left; `plan` reads it.

    Args:
        world: where it is played.
        folder: of the run; a new one.
        size: tasks, rollouts, demonstrations and hand-backs.
        student: [X, A] its policy by context, by default pi_0.
        seed: of all draws.
        pool: tasks on offer.
    """
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
    recipe: Recipe | None = None,
    prefix: str = "",
) -> tuple[Recipe, dict[str, Any], Rows]:
    """Recipe, run.json and rows of the tables of such a pilot, without a folder.

    recipe: by default op-short with whole continuations. prefix: of the names of tasks.
    """
    player = _Player(world, student, recipe or preset("op-short", K="inf", T_max=world.horizon))
    parts: list[Rows] = [{"episodes": [], "turns": [], "proposals": [], "traces": []}]
    for q in range(size.tasks):
        rng = np.random.default_rng([seed, q])
        task, start = f"{prefix}task-{q:05d}", int(rng.choice(world.S, p=world.start))
        for i in range(size.rollouts):
            parts += _attempt(player, size, Key("rollout", task, rollout=i), start, rng)
        if q < size.demos:
            parts.append(_demo(player, task, start, rng))
    info = {
        "kind": "pilot",
        "environment": f"world {world.name}",
        "student": player.name,
        "teacher": TEACHER,
        "tasks": str(pool),
        "seed": seed,
        "handback": list(size.handback),
        "replicates": size.replicates,
    }
    return player.recipe, info, merged(*parts)


def labels_of(world: World, rows: Rows, *, only_success: bool = False) -> Owned:
    """The teacher's actions in a pilot's rows by context, counted as the world's student counts data."""
    owned = Owned(np.zeros_like(world.base), np.zeros_like(world.base))
    kept = {row["episode_id"] for row in rows["episodes"] if row["R"] or not only_success}
    for turn in rows["turns"]:
        if turn["author"] == TEACHER and turn["episode_id"] in kept:
            add_label(world, turn, owned.demos if turn["kind"] == "demo" else owned.on_policy)
    return owned


def as_text(rows: Rows) -> Rows:
    """The pilot as an environment of text records it: a context is its whole history, states have no ids."""
    parent = {row["episode_id"]: row["parent"] for row in rows["episodes"]}
    first: dict[str, int] = {}
    for turn in rows["turns"]:
        first[turn["episode_id"]] = min(turn["t"], first.get(turn["episode_id"], turn["t"]))

    def history(episode: str, t: int) -> str:
        # The first turn of a continuation or hand-back reads what was read at that turn before it.
        while t <= first.get(episode, 0) and parent[episode]:
            episode = parent[episode]
        return f"{episode}/{t}"

    turns = [
        turn | {"context_id": history(turn["episode_id"], turn["t"]), "state_id": None}
        for turn in rows["turns"]
    ]
    return rows | {"turns": turns}


def add_label(world: World, turn: Row, data: Float64) -> None:
    """Add a teacher's turn to data [X, A]: 1, or its tokens."""
    data[cell_of(turn)] += turn["output_tokens"] if world.student.in_tokens else 1.0


def cell_of(turn: Row) -> tuple[int, int]:
    """Context and action of a turn, which its text names."""
    words = turn["text"].split()
    return int(words[2]), int(words[4])


def _attempt(player: _Player, size: PilotSize, key: Key, start: int, rng: Any) -> Iterator[Rows]:
    """A rollout, its continuation from a drawn turn, and the hand-backs along it."""
    recipe, name = player.recipe, player.name
    rollout = player.play(start, 1, rng)
    yield player.rows(key, rollout, policy=name)
    t = int(rng.integers(1, rollout.length + 1))
    whole = replace(key, kind="continuation", proposal=key.rollout, continuation=0)
    tail = player.play(rollout.states[t - 1], t, rng, teacher_turns=recipe.cap(t))
    cast = {"prefix_policy": name, "policy": TEACHER, "teacher": TEACHER, "switch_turn": t}
    yield player.rows(whole, tail, K=recipe.cap(t), parent=key.episode_id, **cast)
    yield {
        "proposals": [_proposal(player, key, rollout, t)],
        "traces": [_trace(player, whole, rollout, tail, t)],
    }
    for k in size.handback:
        cast = {"prefix_policy": name, "policy": name, "teacher": TEACHER if k else ""}
        for m in range(size.replicates if k < len(tail.states) else 0):
            rest = player.play(tail.states[k], t + k, rng)
            back = replace(whole, kind="handback", replicate=m, k=k)
            switch = t if k else 0
            yield player.rows(
                back, rest, K=k, parent=whole.episode_id, switch_turn=switch, teacher_turns=k, **cast
            )


def _demo(player: _Player, task: str, start: int, rng: Any) -> Rows:
    key = Key("demo", task, continuation=0)
    demo = player.play(start, 1, rng, teacher_turns=player.recipe.T_max)
    cast = {"policy": TEACHER, "teacher": TEACHER, "switch_turn": 1, "K": player.recipe.T_max}
    return player.rows(key, demo, **cast) | {"traces": [_trace(player, key, None, demo, 1)]}


class _Player:
    """A world and a student, ready to be played turn by turn."""

    def __init__(self, world: World, student: Any, recipe: Recipe) -> None:
        self.world, self.recipe = world, recipe
        self.name = "pi_0" if student is None else "pi_1"
        self.student = world.base if student is None else np.asarray(student, np.float64)
        self.learner = np.cumsum(world.by_state(self.student), axis=1)
        self.teacher = np.cumsum(world.teacher, axis=1)
        self.chances = np.cumsum(world.chances, axis=2)

    def play(self, s: int, t: int, rng: Any, *, teacher_turns: int = 0) -> _Episode:
        """So many turns of the teacher from state s and turn t on, or the student's to the end."""
        policy, author = (self.teacher, TEACHER) if teacher_turns else (self.learner, STUDENT)
        last_a, last_u = self.world.A - 1, self.chances.shape[2] - 1
        most = min(teacher_turns or self.world.horizon, self.world.horizon - t + 1)
        states: list[int] = []
        actions: list[int] = []
        while s < self.world.S and len(states) < most:
            a = min(int(policy[s].searchsorted(rng.random(), "right")), last_a)
            states.append(s)
            actions.append(a)
            u = min(int(self.chances[s, a].searchsorted(rng.random(), "right")), last_u)
            s = int(self.world.successors[s, u])
        return _Episode(t, author, states, actions, s)

    def rows(self, key: Key, episode: _Episode, **cast: Any) -> Rows:
        """One row for `episodes`, and one for each turn of `turns`."""
        reward = float(episode.end == self.world.S)
        taught = len(episode.states) if episode.author == TEACHER else 0
        row = episode_row(
            key,
            **{"teacher_turns": taught} | cast,
            length=episode.length,
            R=reward,
            status="finished" if episode.end >= self.world.S else "horizon",
            phi={"all": True, "success": reward >= self.recipe.success_at},
            prompt=_prompt(self.world, episode.states[0]),
            environment=f"world {self.world.name}",
        )
        return {"episodes": [row], "turns": [self._turn(key, episode, j) for j in range(len(episode.states))]}

    def _turn(self, key: Key, episode: _Episode, j: int) -> Row:
        world = self.world
        s, a = episode.states[j], episode.actions[j]
        following = episode.states[j + 1] if j + 1 < len(episode.states) else episode.end
        tokens, context = int(world.tokens[s]), int(world.contexts[s])
        probability = float(self.student[context, a])
        return turn_row(
            key,
            episode.t + j,
            author=episode.author,
            text=_text(world, s, a),
            observation=_observation(world, following),
            context_id=text_hash(f"context {context}"),
            state_id=int(world.shown[s]),
            student_tokens=tokens,
            output_tokens=tokens,
            counter="world",
            logprob=float(np.log(probability)) if probability > 0 else None,
        )


def _proposal(player: _Player, key: Key, rollout: _Episode, t: int) -> Row:
    success = rollout.end == player.world.S
    return proposal_row(
        replace(key, proposal=key.rollout),
        cluster_id=key.task_id,
        recipe_hash=player.recipe.hash,
        t_prime=t,
        probability=1.0 / rollout.length,
        T=rollout.length,
        R=float(success),
        psi={
            "all": True,
            "without_success": not success,
            "no_repetition": not _repeats(player.world, rollout, player.recipe.repetition),
        },
        outcome="accepted",
    )


def _trace(player: _Player, key: Key, rollout: _Episode | None, tail: _Episode, t: int) -> Row:
    world = player.world
    before = [] if rollout is None else list(zip(rollout.states, rollout.actions, strict=True))[: t - 1]
    turns = [*before, *zip(tail.states, tail.actions, strict=True)]
    messages = [message | {"train": False} for message in _prompt(world, turns[0][0])]
    for j, (s, a) in enumerate(turns):
        taught = j >= t - 1
        author = TEACHER if taught else STUDENT
        text = _text(world, s, a)
        messages.append({"role": "assistant", "content": text, "author": author, "train": taught})
        if j + 1 < len(turns):
            reply = _observation(world, turns[j + 1][0])
            messages.append({"role": "user", "content": reply, "author": "environment", "train": False})
    return trace_row(
        key,
        recipe_hash=player.recipe.hash,
        messages=messages,
        target_turns=len(tail.states),
        C_tr=int(sum(world.tokens[s] for s in tail.states)),
    )


def _repeats(world: World, episode: _Episode, n: int) -> bool:
    texts = [_text(world, s, a) for s, a in zip(episode.states, episode.actions, strict=True)]
    return any(len(set(texts[j : j + n])) == 1 for j in range(len(texts) - n + 1))


def _prompt(world: World, s: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": _observation(world, s), "author": "task"}]


def _observation(world: World, s: int) -> str:
    if s >= world.S:
        return "success" if s == world.S else "failure"
    return f"context {world.contexts[s]}"


def _text(world: World, s: int, action: int) -> str:
    return f"in context {world.contexts[s]} play {action}"
