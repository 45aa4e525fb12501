"""The true outcome of a recipe in a world: whole pipelines, played many times and evaluated exactly.

Each seed plays Algorithm 1 from the first demonstration on; pass@1 of its final student is computed by
dynamic programming, so the only noise left is that of the data, and its standard error is reported.
Needs the base install only (numba), with a tabular student.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from occupancy import Recipe, RecipeError, RunError
from occupancy.kernels.rng import entry, stream_key
from occupancy.record.errors import InputError
from simulate.exact.laws import LEAP_BELOW
from simulate.pipelines import codes
from simulate.pipelines.students import Tabular
from simulate.worlds.types import Float64, Int64, World

AXES = ("inference", "training")
MOST_PROPOSALS = 200_000
_SEEDS = 16


@dataclass(frozen=True, eq=False)
class Owned:
    """Labels that were paid before the budget, such as a pilot's: in the training set, not in the budget."""

    demos: Float64
    """[X, A] the teacher's turns of demonstrations, by context and action."""
    on_policy: Float64
    """[X, A] those of continuations."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One recipe at one mix and budget, over seeds."""

    J: Float64
    """[seeds] pass@1 of the final student."""
    ledger: Int64
    """[seeds, len(LEDGER)] columns as `simulate.pipelines.codes.LEDGER` names them."""

    @property
    def mean(self) -> float:
        """Mean pass@1."""
        return float(self.J.mean())

    @property
    def se(self) -> float:
        """Standard error of the mean over seeds."""
        return float(self.J.std(ddof=1) / math.sqrt(len(self.J))) if len(self.J) > 1 else math.inf

    @property
    def C_i(self) -> float:
        """Mean teacher tokens bought, before filters."""
        return float(self.ledger[:, codes.C_I_BC].mean() + self.ledger[:, codes.C_I_OP].mean())

    @property
    def C_tr(self) -> float:
        """Mean teacher tokens trained on."""
        return float(self.ledger[:, codes.C_I_BC].mean() + self.ledger[:, codes.C_TR_OP].mean())

    @property
    def r_tasks(self) -> float:
        """Share of D_OP by tasks."""
        bc, op = self.ledger[:, codes.TASKS_BC].sum(), self.ledger[:, codes.TASKS_OP].sum()
        return float(op / max(1, bc + op))

    @property
    def r_tokens(self) -> float:
        """Share of D_OP by trained tokens."""
        bc, op = self.ledger[:, codes.C_I_BC].sum(), self.ledger[:, codes.C_TR_OP].sum()
        return float(op / max(1, bc + op))


def truth(
    world: World,
    recipe: Recipe,
    *,
    budget: int,
    r: float,
    axis: str = "inference",
    rounds: int = 1,
    keep_demos: bool = True,
    student: Tabular = Tabular(),  # noqa: B008 - frozen
    owned: Owned | None = None,
    seeds: int = 64,
    seed: int = 0,
    se: float | None = None,
    most_seeds: int = 4096,
    workers: int = 1,
) -> Outcome:
    """pass@1 after spending `budget` teacher tokens, a share r of them on the recipe, the rest on pure BC.

    r = 0 is pure BC, r = 1 makes its prefixes with pi_0. `rounds` splits the recipe's share in equal parts,
    each collected by the student trained on all before. `keep_demos=False` trains the final student on D_OP
    alone. `owned` labels are trained on beside what is bought. With `se`, seeds are added until the standard
    error is at most that, `most_seeds` at most.
    Two calls with the same seed differ only by what is asked, not by their draws.
    """
    check(world, recipe, budget=budget, r=r, axis=axis, rounds=rounds, seeds=seeds, seed=seed)
    on_policy = 0 if recipe.rho == "teacher" else round(budget * r)
    plan = _plan(recipe, on_policy, budget - on_policy, axis)
    nothing = np.zeros_like(world.base)
    setting = _Setting(world, plan, rounds, keep_demos, student, owned or Owned(nothing, nothing))
    with ThreadPoolExecutor(workers) as pool:
        done = 0
        parts: list[tuple[Float64, Int64]] = []
        wanted = seeds
        while True:
            starts = range(done, wanted, _SEEDS)
            parts += pool.map(partial(setting.play, seed, wanted), starts)
            outcome = Outcome(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
            done = wanted
            if se is None or outcome.se <= se or done >= most_seeds:
                return outcome
            needed = math.ceil(1.1 * done * (outcome.se / se) ** 2)
            wanted = min(most_seeds, max(done + _SEEDS, needed))


@dataclass(frozen=True, eq=False)
class _Setting:
    """What all seeds of one outcome share, ready for the kernels."""

    world: World
    plan: Any
    rounds: int
    keep_demos: bool
    student: Tabular
    owned: Owned

    def play(self, seed: int, wanted: int, begin: int) -> tuple[Float64, Int64]:
        from simulate.pipelines import kernels

        end = min(begin + _SEEDS, wanted)
        world, T = self.world, self.world.horizon
        J, ledger = np.zeros(end - begin), np.zeros((end - begin, len(codes.LEDGER)), np.int64)
        for row, number in enumerate(range(begin, end)):
            keys = pipeline_keys(seed, number, T)
            J[row] = kernels.pipeline(
                tables_of(world),
                self.plan,
                world.start,
                world.chances,
                world.base,
                self.owned.demos,
                self.owned.on_policy,
                keys,
                self.rounds,
                self.student.kappa,
                self.student.alpha,
                self.keep_demos,
                ledger[row],
                np.empty_like(world.base),
            )
            if ledger[row, codes.PROPOSALS] >= self.plan.most:
                raise RunError(
                    f"{self.plan.on_policy} tokens need more than {self.plan.most} proposals in world "
                    f"{world.name!r}: the recipe's filters accept too little; lower the budget"
                )
        return J, ledger


def pipeline_keys(seed: int, number: int, T: int) -> Any:
    """[STREAMS, T + 1] keys of the draws of pipeline `number`; entry t belongs to turn t."""
    # Numpy words wrap as the generator asks: this is stream_key(own, draw) for all draws at once.
    own = np.array([entry(stream_key(seed, number), 0)], np.uint64)
    draws = np.arange(codes.STREAMS * (T + 1), dtype=np.uint64)
    return np.asarray(entry(own, draws)).reshape(codes.STREAMS, T + 1)


@lru_cache(maxsize=8)
def tables_of(world: World) -> Any:
    """The world as the kernels and the sweep read it: `simulate.pipelines.kernels.Tables`."""
    from simulate.pipelines.kernels import Tables

    start = np.cumsum(world.start)
    return Tables(
        # The last sum is exactly 1, so that a draw below 1 always finds a state.
        start / start[-1],
        world.successors,
        np.cumsum(world.chances, axis=2),
        np.cumsum(world.teacher, axis=1),
        world.teacher,
        world.contexts,
        world.tokens,
    )


def _plan(recipe: Recipe, on_policy: int, demos: int, axis: str) -> Any:
    from simulate.pipelines import kernels

    T = recipe.T_max
    nu = np.array(recipe.switch.nu or [1.0 / T] * T)
    return kernels.Plan(
        psi=codes.PSI[recipe.psi],
        law=codes.LAW[recipe.switch.law],
        success_only=recipe.phi == "success",
        K=recipe.cap(1),
        n=recipe.n,
        repetition=recipe.repetition,
        leap_below=LEAP_BELOW,
        nu=np.cumsum(nu)[:-1] if len(nu) == T else np.cumsum(nu),
        on_policy=on_policy,
        demos=demos,
        by_training=axis == "training",
        most=MOST_PROPOSALS,
    )


def check(
    world: World, recipe: Recipe, *, budget: int, r: float, axis: str, rounds: int, seeds: int, seed: int
) -> None:
    """Refuse what no pipeline could play."""
    if recipe.T_max != world.horizon:
        raise RecipeError(
            f"T_max={recipe.T_max} in a world of horizon {world.horizon}: expected the same; "
            f"use preset(name, T_max={world.horizon})"
        )
    if recipe.switch.law == "weights":
        raise RecipeError("switch law 'weights' needs logged trajectories: use another law in a world")
    if axis not in AXES:
        raise InputError(f"axis={axis!r}: expected one of {', '.join(AXES)}")
    if not 0 <= r <= 1:
        raise InputError(f"r={r}: expected a share from 0 to 1")
    for name, value in (("budget", budget), ("rounds", rounds), ("seeds", seeds)):
        if value < 1:
            raise InputError(f"{name}={value}: expected at least 1")
    if seed < 0:
        raise InputError(f"seed={seed}: expected a whole number of at least 0")
