"""How large a pilot to buy, before anything is bought: `fewsteps plan --design --budget N`.

Tasks                  p (1 - p) (1 + (m - 1) ICC) / (m SE^2): errors are clustered by task (Miller 2024)
Contexts, demos        one a task, at least LEAST_TASKS, from which on a plan is made; 40 each are advised
Hand-backs             after k = 0, 1, 2, 3, 5 teacher turns, and deeper while the teacher still plays: they
                       measure G(K), and U_0 needs k = 0
Teacher turns          demonstrations, and continuations to their end: by truncation one prices every K
Share of the budget    PILOT_SHARE at most: a dearer pilot costs more than a better K saves

The student's tokens are free on the token axes, so replicates of hand-backs are too. The pilot's traces are
training data: what is lost of its price is what one would not have bought, the turns beyond the K chosen.
"""

from __future__ import annotations

import math
import shlex
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agentloop.policies.chat_spec import bounds_a_turn
from analysis.plan.command_lines import collecting
from analysis.plan.costs import Prices, check_budget
from analysis.plan.doubts import PILOT_SHARE
from analysis.plan.guesses import Guesses
from analysis.plan.pilot import LEAST_TASKS
from occupancy.record.errors import InputError
from occupancy.record.shows import Shown, Shows

if TYPE_CHECKING:
    import pandas as pd

FALL_BACK, FALL_BACK_K = "op-critical with r between .75 and 1, or K = 3 with r = .5", 3
"""What to buy without a pilot."""
ADVISED, DEMOS = 40, 40
"""Contexts, and demonstrations: in toy worlds pilots of 40 traces chose K as well as larger ones."""
TARGET_SE = 0.05
"""Of the student's pass@1 and of G(K): a larger pilot is not asked for."""
LADDER = (LEAST_TASKS, 40, 60, 100, 150, 200)
"""Tasks of the sizes that are compared."""
DEPTHS, DEEPER = (0, 1, 2, 3, 5), (8, 13, 21, 34)
REPLICATES_FREE, REPLICATES_PAID = 4, 2
CONTEXT_SHARE = 0.5
"""Share of an outcome's variance that is the context's own: what replicates do not average away."""
GAIN_SHARE = 0.25
"""Variance of the contexts' true gains, in units of p (1 - p)."""


@dataclass(frozen=True)
class Size:
    """A pilot of some size: what it costs and what it would tell."""

    tasks: int
    rollouts: int
    """Student rollouts, each with one continuation."""
    continuations: int
    demos: int
    tokens: float
    """Teacher output tokens expected."""
    price: float
    """On the axis."""
    share: float
    """Of the budget."""
    lost: float
    """Tokens of turns that would not have been bought, were K = 3 the best."""
    se_J: float
    """Standard error of the student's pass@1, clustered by task."""
    se_teacher: float
    """The same of the teacher's, from the demonstrations."""
    se_G: float
    """The same of the gain G(K) at one depth."""
    student_episodes: int
    """Rollouts and hand-backs: student tokens and wall time."""


@dataclass(frozen=True)
class Design(Shows):
    """What to buy before anything else, or why not to."""

    status: str
    """designed, or pilot_too_small."""
    budget: float
    axis: str
    size: Size
    """The pilot to buy; the smallest one that would do where none fits."""
    handback: tuple[int, ...]
    replicates: int
    sizes: tuple[Size, ...]
    """Larger and smaller ones, to see what each costs."""
    smallest_budget: float
    """The smallest at which a pilot pays."""
    guesses: Guesses
    command: str
    reason: str = ""
    """Why it is too small."""

    def to_pandas(self) -> pd.DataFrame:
        """The sizes that were compared, a row each."""
        import pandas as pd

        return pd.DataFrame([asdict(one) | {"chosen": one == self.size} for one in self.sizes])

    def _shown(self) -> Shown:
        from analysis.plan.design_answer import sentences

        return [*sentences(self), f"`{self.command}`"], [self.to_pandas()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        size = asdict(self.size)
        expected = {name: size.pop(name) for name in ("se_J", "se_teacher", "se_G")}
        return {
            "status": self.status,
            "reason": self.reason,
            "budget": self.budget,
            "axis": self.axis,
            "design": size | {"handback": list(self.handback), "replicates": self.replicates},
            "expected": expected,
            "sizes": [asdict(one) for one in self.sizes],
            "smallest_budget": self.smallest_budget,
            "fall_back": FALL_BACK if self.status == "pilot_too_small" else None,
            "assumptions": self.guesses.plain(),
            "command": self.command,
        }


def design(
    *,
    budget: float,
    axis: str = "inference",
    prices: Prices | None = None,
    pool: int | None = None,
    replicates: int | None = None,
    guesses: Guesses | None = None,
    run: Mapping[str, Any] | None = None,
) -> Design:
    """The pilot to buy first, or why none pays; nothing is read and nothing is bought.

    Args:
        budget: Teacher tokens (C_i), accepted ones on the training axis, money on the money axis.
        axis: inference, training or money.
        prices: Prices of a token, for the money axis.
        pool: Tasks on offer; None: enough.
        replicates: Hand-backs for each k; None: 4, or 2 where a context has a price.
        guesses: Turns, tokens a turn and pass@1, guessed or measured in an earlier run.
        run: Names for the command line (environment, student, teacher, tasks, success_at).

    Raises:
        InputError: A number outside its range, or the money axis without prices.

    Example:
        >>> found = design(budget=1_000_000)
        >>> found.status, found.size.tasks
        ('designed', 100)
    """
    check_budget(budget, axis=axis, prices=prices)
    for name, value in (("pool", pool), ("replicates", replicates)):
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: expected at least 1")
    guesses = guesses or Guesses()
    paid = axis == "money" and prices is not None and prices.context > 0
    M = replicates or (REPLICATES_PAID if paid else REPLICATES_FREE)
    depths = _depths(guesses)
    shop = _Shop(guesses, budget, prices if axis == "money" else None, pool, len(depths) * M, M)
    least, most = shop.size(LEAST_TASKS), shop.size(_wanted(shop))
    status, chosen, reason, command = "pilot_too_small", least, "", ""
    if pool is not None and pool < LEAST_TASKS:
        reason = f"{pool} tasks in the pool: expected at least {LEAST_TASKS}, errors are clustered by task"
    elif least.share > PILOT_SHARE:
        reason = (
            f"the smallest pilot takes {least.share:.0%} of the budget: expected at most {PILOT_SHARE:.0%}"
        )
    else:
        status, chosen = "designed", shop.largest(LEAST_TASKS, most.continuations)
        cap = None if axis == "money" else budget
        command = _command(chosen, depths, M, guesses, cap=cap, run=run or {})
    ladder = sorted({*LADDER, chosen.continuations})
    return Design(
        status=status,
        budget=budget,
        axis=axis,
        size=chosen,
        handback=depths,
        replicates=M,
        sizes=tuple(dict.fromkeys(shop.size(contexts) for contexts in ladder)),
        smallest_budget=least.price / PILOT_SHARE,
        guesses=guesses,
        command=command,
        reason=reason,
    )


@dataclass(frozen=True)
class _Shop:
    guesses: Guesses
    budget: float
    prices: Prices | None
    """On the money axis only."""
    pool: int | None
    handbacks: int
    """Of one continuation, whatever its length."""
    replicates: int

    def size(self, contexts: int) -> Size:
        """The pilot with so many contexts, on as many tasks as there are."""
        g = self.guesses
        tasks = min(contexts, self.pool or contexts)
        contexts = tasks * math.ceil(contexts / tasks)
        demos = min(DEMOS, tasks)
        turns = contexts * g.continuation + demos * g.demo
        tokens = turns * g.turn_tokens
        price = tokens
        if self.prices is not None:
            each = g.turn_tokens * self.prices.output + g.prompt_tokens * self.prices.prompt
            price = turns * each / 1e6 + contexts * self.prices.context
        one = 1 + (contexts / tasks - 1) * g.icc
        p = g.student_pass * (1 - g.student_pass)
        return Size(
            tasks=tasks,
            rollouts=contexts,
            continuations=contexts,
            demos=demos,
            tokens=tokens,
            price=price,
            share=price / self.budget,
            lost=contexts * max(g.continuation - FALL_BACK_K, 0.0) * g.turn_tokens,
            se_J=math.sqrt(p * one / contexts),
            se_teacher=math.sqrt(g.teacher_pass * (1 - g.teacher_pass) / demos),
            se_G=math.sqrt(gain_variance(g.student_pass, self.replicates) * one / contexts),
            student_episodes=contexts * (1 + self.handbacks),
        )

    def largest(self, least: int, most: int) -> Size:
        """The largest that stays within PILOT_SHARE; every price rises with the contexts."""
        larger = range(least + 1, most + 1)
        fit = bisect_right(larger, PILOT_SHARE, key=lambda contexts: self.size(contexts).share)
        return self.size(least + fit)


def gain_variance(p: float, replicates: int) -> float:
    """Variance of one context's U_K - U_0, each a mean of replicates, at outcomes of variance p (1 - p).

    The replicates' own noise, twice, and the spread of true gains between contexts. The two shares are
    guesses: in worlds the error comes out a little large (docs/pilot_design.md).
    """
    return p * (1 - p) * (2 * (1 - CONTEXT_SHARE) / replicates + GAIN_SHARE)


def _wanted(shop: _Shop) -> int:
    """Contexts at which both standard errors reach TARGET_SE."""
    g = shop.guesses
    worst = max(g.student_pass * (1 - g.student_pass), gain_variance(g.student_pass, shop.replicates))
    contexts = worst / TARGET_SE**2
    if shop.pool is not None and contexts > shop.pool:
        # m rollouts of each of `pool` tasks: (1 + (m - 1) ICC) / m is at least ICC.
        left = TARGET_SE**2 * shop.pool / worst - g.icc
        contexts = shop.pool * min((1 - g.icc) / left if left > 0 else math.inf, 4)
    return max(math.ceil(contexts - 1e-9), ADVISED)


def _depths(guesses: Guesses) -> tuple[int, ...]:
    """Hand-backs that a continuation is usually long enough for, and the horizon always."""
    deeper = (k for k in DEEPER if k < guesses.continuation)
    return tuple(k for k in (*DEPTHS, *deeper) if k < (guesses.T_max or math.inf))


def _command(
    size: Size,
    depths: tuple[int, ...],
    replicates: int,
    guesses: Guesses,
    *,
    cap: float | None,
    run: Mapping[str, Any],
) -> str:
    """The `fewsteps collect` that buys it; words in capitals are for the user to fill in."""
    horizon = () if guesses.T_max is None else ("--set", f"T_max={guesses.T_max}")
    success = run.get("success_at", 1)
    start = () if success == 1 else ("--set", f"success_at={success}")
    limit: tuple[str, ...] = () if cap is None else ("--budget", str(math.floor(PILOT_SHARE * cap)))
    teacher = str(run.get("teacher") or "TEACHER")
    if limit and teacher != "TEACHER" and not bounds_a_turn(teacher):
        # Nothing may bound a turn of a teacher that is a function, and a budget needs a bound.
        limit += ("--turn-tokens", str(max(1024, math.ceil(8 * guesses.turn_tokens))))
    return shlex.join(
        [
            *collecting(run, tasks=size.tasks),
            *("--recipe", "op-short", "--set", f"n={size.continuations // size.tasks}", *horizon, *start),
            *("--pilot", "--handback", ",".join(map(str, depths)), "--replicates", str(replicates)),
            *("--demo-tasks", str(size.demos), *limit),
        ]
    )
