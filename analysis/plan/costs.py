"""What a context costs at every depth K, from one pilot, by truncation.

A teacher that is not told K plays the first min(K, L) turns of its full continuation with exactly the
law that it has under the cap K. So one pilot of full continuations prices all K with common random
numbers: m(K) = E sum_{j <= min(K, L)} c_j. It breaks where the teacher is told how many turns remain,
where all turns share one token cap, and where the context is compacted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentloop.ledger.budget import AXES
from analysis.plan.pilot import Contexts, Floats, Pilot, TeacherTurns
from occupancy.record.errors import InputError
from occupancy.record.prices import PICO, read_prices
from occupancy.record.specs import MOST, NotNegative, check
from occupancy.statistics.clusters import clustered_ratio


@dataclass(frozen=True)
class Prices:
    """Money for a million tokens of each kind."""

    output: NotNegative
    prompt: NotNegative = 0.0
    cached: NotNegative = 0.0
    """Of the prompt tokens that were read from a cache; they are charged at this price only."""
    context: NotNegative = 0.0
    """Fixed price of one context: the student's rollout and the environment, in money."""

    def __post_init__(self) -> None:
        check(self, of="price")
        if self.output + self.prompt + self.cached + self.context == 0:
            raise InputError("all prices are 0: expected at least one above; use --axis inference instead")

    @classmethod
    def from_toml(cls, file: str | Path, *, teacher: str = "") -> Prices:
        """The teacher's prices in a table that `collect` reads too; see `occupancy.record.prices`."""
        table = read_prices(file)
        price, million = table.find(teacher), PICO // 10**6
        return cls(
            price.output / million, price.input / million, price.cached_input / million, table.context / PICO
        )


def check_budget(budget: Any, *, axis: str, prices: Prices | None) -> None:
    """Refuse a budget, or an axis without prices, that nothing can be bought with: InputError."""
    if axis not in AXES:
        raise InputError(f"axis {axis!r}: expected one of {', '.join(AXES)}")
    if isinstance(budget, str) or not 0 < budget <= MOST:
        raise InputError(f"budget {budget!r}: expected a number above 0 and up to {MOST:g}")
    if axis == "money" and prices is None:
        raise InputError("the money axis needs prices: give a table with --prices FILE.toml")


def axes_of(prices: Prices | None) -> list[str]:
    """Axes on which something has a cost: money with prices only."""
    return [axis for axis in AXES if axis != "money" or prices is not None]


@dataclass(frozen=True)
class Costs:
    """m(K) for K = 1 .. T_max (the last is inf), means over contexts with task-clustered errors."""

    inference: Floats
    """[T_max] teacher output tokens of a context (C_i), failures included."""
    inference_se: Floats
    training: Floats
    """[T_max] the tokens of those turns that are trained on (C_tr): all but cut ones, failures included."""
    training_se: Floats
    money: Floats | None
    """[T_max] money of a context, c0 included; None without prices."""
    money_se: Floats | None
    c0: float
    """The part of `money` that no depth avoids: reading the prefix once, and the fixed price."""
    target: Floats
    """[T_max] student-tokenizer tokens of those turns; NaN without a tokenizer."""
    sequence: Floats
    """[T_max] the same with everything before and between them: a whole training row; NaN where the student's
    provider counted no prompts."""
    demo: float
    """Teacher output tokens of a demonstration; NaN without demonstrations."""
    demo_sequence: float
    """Student-tokenizer tokens of its whole training row."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; K runs over 1 .. T_max."""
        plain = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in asdict(self).items()}
        return {"K": list(range(1, len(self.inference) + 1)), **plain}


def costs(pilot: Pilot, *, prices: Prices | None = None) -> Costs:
    """Price every depth from the pilot's continuations; see `Costs` for units."""
    contexts, T_max = pilot.contexts, pilot.recipe.T_max
    means = {
        axis: _mean(pilot, costs_of_contexts(pilot, axis=axis, prices=prices)) for axis in axes_of(prices)
    }
    money, money_se = means.get("money", (None, None))
    targets = contexts.turns.student * contexts.turns.trained
    shown = len(pilot.demo_turns.lengths)
    return Costs(
        *means["inference"],
        *means["training"],
        money,
        money_se,
        c0=0.0 if prices is None else prices.context + _prefix_money(contexts.turns, prices),
        target=_mean(pilot, per_context(contexts, targets, T_max=T_max))[0],
        sequence=_mean(pilot, _sequences(pilot))[0],
        demo=float(pilot.demo_turns.output.sum() / shown) if shown else np.nan,
        demo_sequence=_demo_sequence(pilot) if shown else np.nan,
    )


def per_context(contexts: Contexts, amount: Floats, *, T_max: int) -> Floats:
    """[C, T_max] sum of `amount` [N] over the first min(K, L) teacher turns, K = 1 .. T_max."""
    lengths = contexts.turns.lengths
    table = np.zeros((len(contexts), T_max))
    rows = np.repeat(np.arange(len(contexts)), lengths)
    table[rows, np.arange(len(amount)) - np.repeat(contexts.turns.offsets[:-1], lengths)] = amount
    return np.cumsum(table, axis=1)


def _sequences(pilot: Pilot) -> Floats:
    """[C, T_max] length of a context's training row at every K; nothing follows its last turn."""
    known, each = pilot.lengths, pilot.contexts.turns.student + pilot.lengths.step
    return known.prefix[:, None] + per_context(pilot.contexts, each, T_max=pilot.recipe.T_max) - known.step


def _demo_sequence(pilot: Pilot) -> float:
    turns, known = pilot.demo_turns, pilot.lengths
    whole = (turns.student.sum() + known.step * len(turns.student)) / len(turns.lengths)
    return float(known.start + whole - known.step)


def costs_of_contexts(pilot: Pilot, *, axis: str, prices: Prices | None) -> Floats:
    """[C, T_max] what each context costs on an axis at K = 1 .. T_max, fixed costs included."""
    each = turn_costs(pilot.contexts.turns, axis=axis, prices=prices)
    fixed = prices.context if axis == "money" and prices is not None else 0.0
    return per_context(pilot.contexts, each, T_max=pilot.recipe.T_max) + fixed


def demo_cost(pilot: Pilot, *, axis: str, prices: Prices | None) -> Floats:
    """[B] what each demonstration costs on an axis."""
    turns = pilot.demo_turns
    paid = turn_costs(turns, axis=axis, prices=prices)
    return np.add.reduceat(np.append(paid, 0.0), turns.offsets[:-1]) * (turns.lengths > 0)


def turn_costs(turns: TeacherTurns, *, axis: str, prices: Prices | None) -> Floats:
    """[N] what each turn costs on an axis; money of output only where any prompt is unknown."""
    if axis != "money":
        return turns.retained * turns.trained if axis == "training" else turns.output
    assert prices is not None, "the money axis is refused without prices before it gets here"
    paid = turns.output * prices.output
    if prompts_known(turns):
        cached = np.nan_to_num(turns.cached)
        paid = paid + (turns.prompt - cached) * prices.prompt + cached * prices.cached
    return paid / 1e6


def prompts_known(turns: TeacherTurns) -> bool:
    """Whether the provider counted the prompt of every turn: a part of them would mislead."""
    return bool(np.isfinite(turns.prompt).all())


def pilot_price(pilot: Pilot, *, axis: str, prices: Prices | None) -> float:
    """What the pilot itself cost on an axis, demonstrations and failures included.

    C_tr is of turns that can be trained on, so that failed calls have none; their prompts are not known.
    """
    if axis == "inference":
        return float(pilot.tokens)
    turns = (pilot.contexts.turns, pilot.demo_turns)
    paid = sum(turn_costs(part, axis=axis, prices=prices).sum() for part in turns)
    if axis == "money" and prices is not None:
        paid += pilot.failed_tokens * prices.output / 1e6 + prices.context * len(pilot.contexts)
    return float(paid)


def _prefix_money(turns: TeacherTurns, prices: Prices) -> float:
    """Mean money of the first turn's prompt."""
    if not prices.prompt + prices.cached or not prompts_known(turns):
        return 0.0
    first = turns.offsets[:-1][turns.lengths > 0]
    prompts = turn_costs(turns, axis="money", prices=Prices(0.0, prices.prompt, prices.cached))
    return float(prompts[first].sum() / len(turns.lengths))


def _mean(pilot: Pilot, values: Floats) -> tuple[Floats, Floats]:
    return clustered_ratio(values, np.ones_like(values), cluster=pilot.contexts.cluster)
