"""The true outcome of a recipe in a world: whole pipelines, played many times and evaluated exactly.

Each seed plays Algorithm 1 from the first demonstration on; pass@1 of its final student is computed by
dynamic programming, so the only noise left is that of the data, and its standard error is reported.
Needs the base install only (numba).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy import Recipe, RunError
from occupancy.kernels.rng import entry, stream_key
from occupancy.record.errors import InputError
from occupancy.record.shows import Shown, Shows
from simulate.pipelines import order as orders
from simulate.pipelines.order import AXES, Order
from simulate.solving.laws import check_recipe
from simulate.worlds.students import Student
from simulate.worlds.types import Float64, Int64, World

if TYPE_CHECKING:
    from simulate.pipelines.serial import Tables

MOST_PROPOSALS = 200_000
_SEEDS = 16


@dataclass(frozen=True, eq=False)
class Owned:
    """Labels that were paid before the budget, such as a pilot's: in the training set, not in the budget.

    Counted as the world's student counts data: `Student.in_tokens`.
    """

    demos: Float64
    """[X, A] the teacher's turns of demonstrations, by context and action; turns or tokens."""
    on_policy: Float64
    """[X, A] those of continuations."""


@dataclass(frozen=True, eq=False)
class Outcome(Shows):
    """One recipe at one mix and budget, over seeds."""

    J: Float64
    """[seeds] pass@1 of the final student."""
    ledger: Int64
    """[seeds, len(LEDGER)] columns as `simulate.pipelines.order.LEDGER` names them."""

    def _shown(self) -> Shown:
        return [
            f"pass@1 {self.mean:.4f} ± {self.se:.4f} over {len(self.J)} seeds; C_i {self.C_i:,.0f}, "
            f"C_tr {self.C_tr:,.0f} teacher tokens"
        ], ()

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
        return float(self.ledger[:, [orders.C_I_BC, orders.C_I_OP]].sum(axis=1).mean())

    @property
    def C_tr(self) -> float:
        """Mean teacher tokens trained on."""
        return float(self.ledger[:, [orders.C_I_BC, orders.C_TR_OP]].sum(axis=1).mean())

    @property
    def r_tasks(self) -> float:
        """Fraction of D_OP by tasks."""
        bc, op = self.ledger[:, orders.TASKS_BC].sum(), self.ledger[:, orders.TASKS_OP].sum()
        return float(op / max(1, bc + op))

    @property
    def r_tokens(self) -> float:
        """Fraction of D_OP by trained tokens."""
        bc, op = self.ledger[:, orders.C_I_BC].sum(), self.ledger[:, orders.C_TR_OP].sum()
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
    student: Student | None = None,
    owned: Owned | None = None,
    seeds: int = 64,
    seed: int = 0,
    se: float | None = None,
    most_seeds: int = 4096,
    workers: int = 1,
) -> Outcome:
    """pass@1 after spending a budget on a recipe and on demonstrations, seed by seed.

    Args:
        world: where it is played.
        recipe: what the fraction r of the budget buys; its T_max is the world's.
        budget: teacher tokens.
        r: 0 is pure BC; 1 makes the prefixes with pi_0.
        axis: "inference" counts tokens bought (C_i), "training" those trained on (C_tr).
        rounds: equal parts of the recipe's tokens, each collected by the student trained on all before.
        keep_demos: False trains the last student on D_OP alone.
        student: by default the world's.
        owned: labels that are trained on beside what is bought.
        seeds: pipelines; with `se`, more are added until the standard error is at most that.
        most_seeds: at most so many.
        seed: of all draws. Two calls with the same seed differ only by what is asked, not by their draws.
        se: standard error of mean pass@1 that is asked for.
        workers: threads; the numbers do not depend on it.

    Returns:
        pass@1 and the ledger of every seed.

    Raises:
        RunError: the filters accept so little that the budget cannot be spent.
        InputError, RecipeError: no pipeline could play what is asked.
    """
    check(world, recipe, budget=budget, r=r, axis=axis, rounds=rounds, seeds=seeds, seed=seed)
    nothing = np.zeros_like(world.base)
    play = partial(
        _pipeline,
        world,
        orders.order(recipe, budget=budget, r=r, axis=axis),
        rounds=rounds,
        keep_demos=keep_demos,
        student=student or world.student,
        owned=owned or Owned(nothing, nothing),
        seed=seed,
    )
    J: list[float] = []
    ledgers, wanted = [], seeds
    with ThreadPoolExecutor(workers) as pool:
        while True:
            for value, ledger in pool.map(play, range(len(J), wanted)):
                J.append(value)
                ledgers.append(ledger)
            outcome = Outcome(np.array(J), np.array(ledgers))
            if se is None or outcome.se <= se or len(J) >= most_seeds:
                return outcome
            needed = math.ceil(1.1 * len(J) * (outcome.se / se) ** 2)
            wanted = min(most_seeds, max(len(J) + _SEEDS, needed))


def _pipeline(
    world: World,
    order: Order,
    number: int,
    *,
    rounds: int,
    keep_demos: bool,
    student: Student,
    owned: Owned,
    seed: int,
) -> tuple[float, Int64]:
    """pass@1 and ledger of pipeline `number`: demonstrations, rounds of collection and training."""
    from simulate.pipelines.serial import collect, collect_demos

    tables, keys = tables_of(world), pipeline_keys(seed, number, world.horizon)
    demos, data = owned.demos.copy(), owned.on_policy.copy()
    ledger = np.zeros(len(orders.LEDGER), np.int64)
    collect_demos(tables, order, keys, student.in_tokens, demos, ledger)
    policy = student.learn(world.base, world.features, demos)
    proposal = 0
    for k in range(rounds):
        running = np.cumsum(policy, axis=1)[world.contexts]
        span = (proposal, order.on_policy * (k + 1) // rounds, MOST_PROPOSALS)
        proposal = collect(tables, order, running, keys, span, student.in_tokens, data, ledger)
        policy = student.learn(world.base, world.features, demos + data if keep_demos else data)
    if proposal >= MOST_PROPOSALS:
        raise RunError(too_few(order.on_policy, world.name))
    ledger[orders.PROPOSALS] = proposal
    ledger[orders.TASKS_OP] = (proposal + order.n - 1) // order.n
    return float(world.start @ chances_of(world, policy)), ledger


def too_few(tokens: int, world: str) -> str:
    """What is said where filters accept too little."""
    return (
        f"{tokens} tokens need more than {MOST_PROPOSALS} proposals in world {world!r}: the recipe's filters "
        f"accept too little; lower the budget"
    )


def chances_of(world: World, policy: Float64) -> Float64:
    """[S] chance of success from each first state under a policy over contexts [X, A]."""
    from simulate.pipelines.serial import values

    return values(tables_of(world), world.by_state(policy), world.horizon)


def pipeline_keys(seed: int, number: int, T: int) -> Any:
    """[STREAMS, T + 1] keys of the draws of pipeline `number`; entry t belongs to turn t."""
    # Numpy words wrap as the generator asks: this is stream_key(own, draw) for all draws at once.
    own = np.array([entry(stream_key(seed, number), 0)], np.uint64)
    draws = np.arange(orders.STREAMS * (T + 1), dtype=np.uint64)
    return np.asarray(entry(own, draws)).reshape(orders.STREAMS, T + 1)


@lru_cache(maxsize=8)
def tables_of(world: World) -> Tables:
    """The world as the kernels and the sweep read it."""
    from simulate.pipelines.serial import Tables

    start = np.cumsum(world.start)
    return Tables(
        start=world.start,
        running_start=start / start[-1],
        successors=world.successors,
        chances=world.chances,
        running_chances=np.cumsum(world.chances, axis=2),
        teacher=world.teacher,
        running_teacher=np.cumsum(world.teacher, axis=1),
        contexts=world.contexts,
        tokens=world.tokens,
        base=world.base,
        features=world.features,
    )


def check(
    world: World, recipe: Recipe, *, budget: int, r: float, axis: str, rounds: int, seeds: int, seed: int
) -> None:
    """Refuse what no pipeline could play."""
    check_recipe(world, recipe)
    if axis not in AXES:
        raise InputError(f"axis={axis!r}: expected one of {', '.join(AXES)}")
    if not 0 <= r <= 1:
        raise InputError(f"r={r}: expected a fraction from 0 to 1")
    for name, value in (("budget", budget), ("rounds", rounds), ("seeds", seeds)):
        if value < 1:
            raise InputError(f"{name}={value}: expected at least 1")
    if seed < 0:
        raise InputError(f"seed={seed}: expected a whole number of at least 0")
