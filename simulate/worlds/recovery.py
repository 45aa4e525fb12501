"""Recovery worlds: tasks with a right turn at every step, errors that throw the agent off, and ways back.

A task is a track of right turns. A wrong turn leads into one of the errors behind that turn; a chain of
right repair turns leads back to where the track was left. What the first repair needs is written in a
context of its own; later repairs look alike from error to error, so that a few examples teach many.
Dead ends never lead back. A turn can also change nothing (a loop), or give up.

States are (track turn, error, repair step), so a shared repair context hides where it leads back to: what
the policies see is a partially observed process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from occupancy.record.specs import Few, Fraction, NotNegative, Range, Seed, Share, Size, check
from simulate.worlds.types import Float64, Int32, Int64, World, WorldError


@dataclass(frozen=True)
class Recovery:
    """The knobs of a recovery world; each string says what it does to the best K."""

    tracks: Few = 30
    """Kinds of tasks. More of them: everything is rarer; the best K hardly moves."""
    path: tuple[int, int] = (4, 8)
    """Fewest and most right turns that solve a task. Longer: more of a long continuation is on the track,
    where the student is already better, and the best K falls."""
    zipf: NotNegative = 0.8
    """Exponent of the laws of tasks, of first repairs and of the student's favourite errors. Larger: contexts
    repeat, coverage saturates sooner, and K matters less."""
    actions: Annotated[int, Range(3)] = 5
    """Turns to choose from; the last one gives up. Scale only."""
    errors: Few = 2
    """Errors behind each track turn. More: student and teacher meet more different errors; the best K falls
    a little."""
    first_repairs: Few = 150
    """Contexts of the first repair, shared by all errors under the Zipf law. More: a budget covers fewer of
    them, and short continuations lose their lead."""
    repairs: Size = 4
    """Right turns from an error back to the track; 0: a wrong turn changes nothing, and any K is as good.
    Several hard and specific ones in a row need a large K (see `student_repair`, `generic`)."""
    generic: Annotated[float, Range(1)] = 3.0
    """How many times fewer contexts each further repair step has. Near 1: every step is specific and the
    best K grows; large: later steps are learned from a few examples, and only the first is worth buying."""
    student_track: Share = 0.8
    """pi_0's chance of the right turn on the track. Lower: errors are frequent, first repairs are met often
    and the best K falls; below about .65 r = 1 loses, because pi_0 does not get far enough."""
    student_repair: tuple[Share, ...] = (0.12, 0.35, 0.6, 0.8)
    """pi_0's chance of the right turn at each repair step, the last entry repeated. The strongest knob: the
    best K is 1 where only the first step is weak, and large where the last one is."""
    teacher_track: Share = 0.98
    """pi_e's chance of the right turn on the track."""
    teacher_repair: Share = 0.92
    """pi_e's chance of the right turn at a repair. Lower: its errors are learned too, and K matters less."""
    spread: NotNegative = 0.5
    """Standard deviation between contexts of pi_0's log-odds of the right turn."""
    setback: Share = 0.2
    """Chance that a wrong repair turn goes back to the first repair instead of changing nothing. Larger:
    late mistakes cost more, and the best K grows."""
    loop: Share = 0.1
    """Chance that a wrong turn changes nothing. Larger: rollouts are longer and repeat themselves; the best K
    hardly moves."""
    dead: Share = 0.03
    """Chance that a wrong turn leads to a dead end. Larger: a repaired episode is lost later all the same, so
    K matters less; the teacher pays for lost episodes, and filters reject more."""
    give_up: Share = 0.05
    """Fraction of pi_0's wrong turns off the track that give up. Larger: it seldom gets deep into a repair,
    so only longer continuations go there, and the best K grows."""
    aliasing: Share = 0.0
    """Fraction of first-repair contexts that stand for two errors with right turns of their own. Larger: the
    student cannot learn the first repair, so later turns count for more."""
    sharing: Share = 0.5
    """How alike contexts of one kind are: weight of the kind in their features, and the chance that they
    share its right turn. Larger: a log-linear student learns from fewer examples."""
    kinds: Few = 12
    """Kinds of contexts for each repair step and for the track."""
    features: Annotated[int, Range(2)] = 64
    """D, the capacity of a log-linear student. Smaller: tokens on one context cost others."""
    tokens_track: Few = 100
    """Mean tokens of a teacher turn on the track. More: the best K falls, for the tail is on the track."""
    tokens_repair: tuple[Few, ...] = (100,)
    """Mean tokens of a teacher turn at each repair step, the last one repeated. An expensive first step
    raises the best K: the tail is cheap."""
    token_spread: Fraction = 0.2
    """Half-width of the tokens' uniform spread between states, as a fraction of the mean."""
    horizon: Few = 30
    """T_max, turns."""
    seed: Seed = 0
    """Draws the right turns, features, jitters and error laws."""

    def __post_init__(self) -> None:
        for name in ("path", "student_repair", "tokens_repair"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check(self, error=WorldError)
        if self.loop + self.dead > 1:
            raise WorldError(
                f"loop={self.loop} and dead={self.dead} sum above 1: a wrong turn does one thing"
            )
        if len(self.path) != 2 or not 1 <= self.path[0] <= self.path[1] <= self.horizon:
            raise WorldError(
                f"path={self.path}: expected fewest and most turns, at most horizon={self.horizon}"
            )
        if not self.student_repair or not self.tokens_repair:
            raise WorldError("student_repair and tokens_repair: expected at least one entry each")


def recovery_world(knobs: Recovery, *, name: str = "recovery") -> World:
    """Build the world that the knobs describe; the same knobs give the same world."""
    rng = np.random.default_rng(knobs.seed)
    layout = _Layout(knobs, rng)
    contexts, step_of_context = _contexts(knobs, layout, rng)
    right_of_context, features = _looks(knobs, step_of_context, rng)
    right = right_of_context[contexts]
    if knobs.aliasing:
        contexts, right = _alias(knobs, layout, contexts, right, rng)
    successors, chances = _dynamics(knobs, layout, right)
    base = _policy(
        _jitter(_by_step(knobs.student_track, knobs.student_repair, step_of_context), knobs.spread, rng),
        right_of_context,
        np.where(step_of_context == 0, 0.0, knobs.give_up),
        knobs,
    )
    teacher = _policy(
        np.where(layout.step == 0, knobs.teacher_track, knobs.teacher_repair),
        right,
        np.zeros(layout.S),
        knobs,
    )
    # Nothing is right at a dead end: the teacher sees it and stops half of the time, the student wanders.
    dead = layout.dead
    teacher[dead], base[contexts[dead]] = _at_dead_end(0.5, knobs), _at_dead_end(knobs.give_up, knobs)
    jitter = 1 + knobs.token_spread * (2 * rng.random(layout.S) - 1)
    tokens = _by_step(knobs.tokens_track, knobs.tokens_repair, layout.step) * jitter
    return World(
        name=name,
        start=layout.start,
        successors=successors,
        chances=chances,
        teacher=teacher,
        base=base,
        contexts=contexts,
        features=features,
        tokens=np.maximum(1, np.rint(tokens)).astype(np.int64),
        horizon=knobs.horizon,
    )


class _Layout:
    """State ids: track turns first, then (track turn, error, repair step), then the dead end."""

    def __init__(self, knobs: Recovery, rng: np.random.Generator) -> None:
        lengths = rng.integers(knobs.path[0], knobs.path[1] + 1, knobs.tracks)
        self.M = int(lengths.sum())
        self.E, self.R = (knobs.errors, knobs.repairs) if knobs.repairs else (0, 0)
        self.S = self.M * (1 + self.E * self.R) + 1
        self.dead = self.S - 1
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self.start = np.zeros(self.S)
        self.start[first] = zipf(knobs.tracks, knobs.zipf)
        self.next_on_track = np.arange(1, self.M + 1)
        self.next_on_track[first + lengths - 1] = self.S
        self.step = np.zeros(self.S, np.int64)
        """[S] 0 on the track, k at the k-th repair; the dead end counts as the last."""
        self.step[self.M : self.dead] = np.tile(np.arange(1, self.R + 1), self.M * self.E)
        self.step[self.dead] = max(self.R, 1)

    def repair(self, turn: int, error: int, step: int) -> int:
        return self.M + (turn * self.E + error) * self.R + step


def _contexts(knobs: Recovery, layout: _Layout, rng: np.random.Generator) -> tuple[Int32, Int64]:
    contexts = np.zeros(layout.S, np.int32)
    contexts[: layout.M] = np.arange(layout.M)
    steps, X = [np.zeros(layout.M, np.int64)], layout.M
    chains = layout.M * layout.E
    for k in range(layout.R):
        count = max(1, round(knobs.first_repairs / knobs.generic ** min(k, 50)))  # a power may overflow
        which = rng.choice(count, chains, p=zipf(count, knobs.zipf))
        contexts[layout.M + k : layout.dead : layout.R] = X + which
        steps.append(np.full(count, k + 1))
        X += count
    contexts[layout.dead] = X
    return contexts, np.concatenate([*steps, [max(layout.R, 1)]])


def _looks(knobs: Recovery, step: Int64, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """Right turn and features of each context: partly those of its kind, partly its own."""
    X, kinds = len(step), (int(step.max()) + 1) * knobs.kinds
    kind = step * knobs.kinds + rng.integers(0, knobs.kinds, X)
    own_right = rng.integers(0, knobs.actions - 1, X)
    kind_right = rng.integers(0, knobs.actions - 1, kinds)
    right = np.where(rng.random(X) < knobs.sharing, kind_right[kind], own_right)
    directions = _directions(kinds, knobs.features, rng)[kind]
    own = _directions(X, knobs.features, rng)
    return right, np.sqrt(knobs.sharing) * directions + np.sqrt(1 - knobs.sharing) * own


def _alias(
    knobs: Recovery, layout: _Layout, contexts: Int32, right: Int64, rng: np.random.Generator
) -> tuple[Int32, Int64]:
    """Let pairs of errors share a first-repair context while their right turns differ."""
    contexts, right = contexts.copy(), right.copy()
    firsts = np.arange(layout.M, layout.dead, max(layout.R, 1)) if layout.R else np.zeros(0, np.int64)
    pairs = rng.permutation(firsts)[: 2 * int(knobs.aliasing * len(firsts) / 2)].reshape(-1, 2)
    contexts[pairs[:, 1]] = contexts[pairs[:, 0]]
    shift = 1 + rng.integers(0, max(1, knobs.actions - 2), len(pairs))
    right[pairs[:, 1]] = (right[pairs[:, 0]] + shift) % (knobs.actions - 1)
    return contexts, right


def _dynamics(knobs: Recovery, layout: _Layout, right: Int64) -> tuple[Int32, Float64]:
    S, A, E = layout.S, knobs.actions, layout.E
    failure = S + 1
    astray = 1 - knobs.loop - knobs.dead
    successors = np.full((S, E + 4), failure, np.int32)
    chances = np.zeros((S, A, E + 4))
    # Columns: forward, self, dead end, failure, then where a wrong turn leads.
    for s in range(S - 1):
        on_track = s < layout.M
        turn, k = (s, -1) if on_track else divmod(s - layout.M, layout.R)
        if on_track:
            forward = int(layout.next_on_track[s])
            wrong = [layout.repair(s, e, 0) for e in range(E)]
        else:
            turn //= E
            forward = turn if k == layout.R - 1 else s + 1
            wrong = [s - k]
        successors[s, :4] = (forward, s, layout.dead, failure)
        successors[s, 4 : 4 + len(wrong)] = wrong
        for a in range(A - 1):
            if a == right[s]:
                chances[s, a, 0] = 1.0
                continue
            moves = astray if on_track else astray * knobs.setback
            rank = (a - right[s] - 1) % (A - 1)
            chances[s, a, 1], chances[s, a, 2] = 1 - knobs.dead - moves, knobs.dead
            chances[s, a, 4 + rank % len(wrong) if wrong else 1] += moves
        chances[s, A - 1, 3] = 1.0
    successors[layout.dead, 1] = layout.dead
    chances[layout.dead, : A - 1, 1] = 1.0
    chances[layout.dead, A - 1, 3] = 1.0
    return successors, chances


def _policy(chance: Float64, right: Int64, give_up: Float64, knobs: Recovery) -> Float64:
    """Right turn with its chance; the rest gives up or falls on wrong turns by a Zipf law."""
    rows, A = np.arange(len(right)), knobs.actions
    policy = np.zeros((len(right), A))
    policy[rows, right] = chance
    favourites = zipf(A - 2, knobs.zipf)
    for rank in range(A - 2):
        policy[rows, (right + 1 + rank) % (A - 1)] = (1 - chance) * (1 - give_up) * favourites[rank]
    policy[:, A - 1] = (1 - chance) * give_up
    return policy


def _at_dead_end(give_up: float, knobs: Recovery) -> Float64:
    return np.array([(1 - give_up) / (knobs.actions - 1)] * (knobs.actions - 1) + [give_up])


def _by_step(track: float, repairs: tuple[float, ...], step: Int64) -> Float64:
    """The value of each repair step, the last one repeated; step 0 is the track."""
    table = np.array([track, *repairs], np.float64)
    return table[np.minimum(step, len(repairs))]


def _jitter(chance: Float64, spread: float, rng: np.random.Generator) -> Float64:
    inside = np.clip(chance, 1e-6, 1 - 1e-6)
    logit = np.log(inside / (1 - inside)) + spread * rng.standard_normal(len(chance))
    return 1 / (1 + np.exp(-logit))


def zipf(count: int, exponent: float) -> Float64:
    """[count] probabilities in proportion to rank ** -exponent."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def _directions(count: int, D: int, rng: np.random.Generator) -> Float64:
    raw = rng.standard_normal((count, D))
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True))
