"""What a pilot holds, as arrays that every estimator reads.

Axes: C contexts (one a continuation), B episodes, N teacher turns, M measured depths k, Q clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.record.errors import DataError
from occupancy.record.recipe import Recipe
from occupancy.statistics.clusters import kish
from occupancy.statistics.coverage import good_turing

LEAST_TASKS = 20
"""Fewer clusters than this give no standard error worth the name."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TeacherTurns:
    """Tokens of the teacher's turns, ragged: episode b owns offsets[b] .. offsets[b + 1] - 1."""

    offsets: Ints
    """[B + 1]"""
    output: Floats
    """[N] output tokens as the provider counts them, reasoning included."""
    prompt: Floats
    """[N] prompt tokens; NaN where the provider does not say."""
    cached: Floats
    """[N] the part of them read from a cache; NaN where the provider does not say."""
    student: Floats
    """[N] length under the student's tokenizer; NaN without one."""
    trained: Flags
    """[N] whole and with text, so that a trace trains on it."""
    retained: Floats
    """[N] the part of `output` that is in the text: C_tr of a turn that is trained on."""

    @property
    def lengths(self) -> Ints:
        """[B] teacher turns of each episode, L."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Episodes:
    """Whole episodes of one policy."""

    cluster: Ints
    """[B] index into Pilot.clusters."""
    T: Ints
    """[B] length in turns."""
    R: Floats
    """[B] 1 for a success, R >= success_at, else 0; NaN where the episode is no data."""


@dataclass(frozen=True)
class Contexts:
    """Contexts that a student reached and the teacher took over, each continued to the end."""

    cluster: Ints
    """[C] index into Pilot.clusters."""
    t_prime: Ints
    """[C] first turn of the teacher."""
    T: Ints
    """[C] length of the rollout that was switched from."""
    context_id: npt.NDArray[np.str_]
    """[C] identity of h_{t'-1}; empty where the run does not say."""
    turns: TeacherTurns
    student: Floats
    """[C] U_0 by hand-back at k = 0: success rate of new student episodes from h; NaN where none."""
    student_replicates: Ints
    """[C] replicates behind that mean."""
    parent: Floats
    """[C] success of the rollout that h was drawn from: not U_0, see `handback`; NaN where no data."""
    teacher: Floats
    """[C] U_inf: success of the continuation; NaN where it is no data."""
    k: Ints
    """[M] depths measured by hand-back, rising."""
    handback: Floats
    """[C, M] success rate over replicates after k teacher turns; NaN where none was played."""
    replicates: Ints
    """[C, M] replicates behind that mean."""
    mixed: Flags
    """[C] whether the student's outcomes there are mixed; False where the pilot has no replays."""

    def __len__(self) -> int:
        """C."""
        return len(self.cluster)


@dataclass(frozen=True)
class Lengths:
    """In tokens of the student's tokenizer; NaN where its provider counted no prompts."""

    prefix: Floats
    """[C] prompt before the first teacher turn of each context."""
    start: float
    """Mean prompt of a first turn."""
    step: float
    """Mean of what a turn adds to the next prompt beside its own tokens."""


@dataclass(frozen=True)
class Pilot:
    """A pilot, validated once; `warnings` are what a reader of the plan must know about it."""

    recipe: Recipe
    environment: str
    student: str
    teacher: str
    clusters: tuple[str, ...]
    """[Q] names of the underlying tasks."""
    task_spec: str
    """Which tasks the pilot was collected on, as the environment reads it; empty where unknown."""
    pool: int
    """Tasks that a collection can draw from: those of the pilot, unless the user says how many."""
    pool_stated: bool
    """The user says so."""
    rollouts: Episodes
    demos: Episodes
    demo_turns: TeacherTurns
    contexts: Contexts
    lengths: Lengths
    statuses: Mapping[str, Mapping[str, int]]
    """Episodes by kind and status."""
    surprise: Mapping[str, float]
    """Nats a turn under the student, of demonstrations (`nll_demo`), continuations (`nll_tail`) and its own
    rollouts (`nll_rollout`); empty where log probabilities are under the turns' own authors."""
    deterministic: bool
    """Every repeated rollout of a task was the same: more proposals bring no new rollouts."""
    warnings: tuple[str, ...] = ()
    failed_tokens: int = 0
    """C_i of attempts that are no turn here: failed calls that were billed, turns of episodes left out."""

    def __post_init__(self) -> None:
        contexts, outcomes = self.contexts, self.outcomes()
        if not len(contexts):
            raise DataError(
                "the pilot has no continuation: nothing says what the teacher costs or brings; "
                "collect one with `fewsteps collect --pilot`"
            )
        if not len(contexts.turns.output):
            raise DataError(
                f"none of the {len(contexts)} continuations has a teacher turn: expected rows in `turns` "
                f"with author 'teacher'; check the authors, or collect again with `--pilot`"
            )
        if len(self.clusters) < 2:
            raise DataError(
                f"the pilot has one task only ({self.clusters[0]!r}): errors are clustered by task, so "
                f"nothing can be said about another one; collect at least 20 tasks"
            )
        if not (contexts.turns.output > 0).any():
            raise DataError(
                f"all {len(contexts.turns.output)} teacher turns have 0 output tokens: costs are unknown; "
                f"record the provider's usage, or name a counter"
            )
        if not np.isfinite(self.rollouts.R).any():
            raise DataError(
                "no student rollout has a reward: the student's value is unknown; collect with `--pilot`"
            )
        if not np.isfinite(contexts.teacher).any():
            raise DataError(
                "no continuation has a reward: the teacher's value is unknown; every one ended in an error"
            )
        if len(outcomes) < 2 or np.ptp(outcomes) == 0:
            raise DataError(
                f"all {len(outcomes)} episodes {'succeed' if outcomes.any() else 'fail'}, as success is a "
                f"reward of {self.recipe.success_at:g} or more: expected both successes and failures; check "
                f"the scorer, collect with --set success_at=X, or choose other tasks"
            )
        if self.student == self.teacher:
            raise DataError(
                f"student and teacher are both {self.student!r}: expected two policies; "
                f"check the names in run.json and in the episodes"
            )

    def outcomes(self) -> Floats:
        """Success of every episode that is data, and of each context's hand-backs."""
        parts = (self.rollouts.R, self.demos.R, self.contexts.teacher, self.contexts.handback.ravel())
        every = np.concatenate(parts)
        return every[np.isfinite(every)]

    @property
    def n_episodes(self) -> int:
        """Episodes of every kind, errors included."""
        return sum(sum(by_status.values()) for by_status in self.statuses.values())

    @property
    def tokens(self) -> int:
        """Teacher output tokens that the pilot cost, demonstrations and failures included."""
        return int(self.contexts.turns.output.sum() + self.demo_turns.output.sum()) + self.failed_tokens

    @property
    def ess(self) -> float:
        """Effective sample size (Kish) of the contexts, reweighted to pooled."""
        return kish(self.contexts.T)

    @property
    def missing_mass(self) -> float:
        """Share of the learner's contexts not seen yet: Good-Turing's f1 / n; NaN without ids."""
        ids = self.contexts.context_id
        if not len(ids) or (ids == "").any():
            return math.nan
        return good_turing(ids)[0]
