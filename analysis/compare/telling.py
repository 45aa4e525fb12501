"""A comparison in words: a sentence for each difference, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import ascii_uppercase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy.record.show import table

if TYPE_CHECKING:
    from analysis.compare.paired import Comparison, Difference, Rate

RATE_HEADS = ("", "pass@", "rate", "95 %", "SE", "tasks", "attempts", "trainings")
DIFFERENCE_HEADS = ("", "points", "95 %", "SE", "p", "p (Holm)", "could see", "tasks")
Row = tuple[object, ...]
LONG = 30
"""Letters of a name from which on it is told once, and a letter stands for it."""
SENTENCES = 3
"""Up to so many differences get a sentence each."""


def said(d: Difference, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """A difference as a sentence; `names` are other ones than the arms' own."""
    a, b = names.get(d.a, d.a), names.get(d.b, d.b)
    if d.low is None or d.high is None or d.p_holm is None or d.detectable is None:
        return f"{b} against {a}: {100 * d.difference:+.1f} points on one task, without an error: add tasks."
    between = f"(95 % interval {100 * d.low:+.1f} to {100 * d.high:+.1f})"
    if d.found:
        more = "more" if d.difference > 0 else "less"
        return f"{b} succeeds {more} often than {a}: {100 * d.difference:+.1f} points {between}."
    return (
        f"No difference found between {a} and {b}: {100 * d.difference:+.1f} points {between}. "
        f"A difference below {100 * d.detectable:.1f} points would often be missed."
    )


def sentences(found: Comparison, names: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """The differences in words, those that were found first; of many, what they say of the best arm."""
    best = max((r for r in found.rates if r.k == 1), key=lambda r: r.rate, default=None)
    against_one = len({d.a for d in found.differences}) == 1
    if len(found.differences) <= SENTENCES or against_one or best is None:
        yield from (said(d, names) for d in sorted(found.differences, key=lambda d: not d.found))
        return
    others: dict[bool, list[str]] = {True: [], False: []}
    seen = []
    for d in found.differences:
        if best.arm in (d.a, d.b):
            other = d.b if d.a == best.arm else d.a
            others[d.found].append(names.get(other, other))
            seen += [100 * d.detectable] if not d.found and d.detectable is not None else []
    between = "" if best.low is None else f" (95 % interval {best.low:.3f} to {best.high:.3f})"
    yield f"{names.get(best.arm, best.arm)} has the highest success rate: {best.rate:.3f}{between}."
    if others[True]:
        yield f"It succeeds more often than {', '.join(others[True])}."
    if others[False]:
        missed = f" A difference below {max(seen):.1f} points would often be missed." if seen else ""
        yield f"No difference found between it and {', '.join(others[False])}.{missed}"
    differ = sum(d.found for d in found.differences)
    yield f"Of all {len(found.differences)} pairs, {differ} were found to differ."


def shown(found: Comparison, names: Mapping[str, str] = MappingProxyType({})) -> Iterator[Any]:
    """The comparison for a person: what was found in words, then both tables, within 80 columns.

    names: other ones than the arms' own, where those are long.
    """
    arms = dict.fromkeys(rate.arm for rate in found.rates)
    letters = {arm: _letter(at) for at, arm in enumerate(arms)}
    called = {arm: names.get(arm, arm) for arm in arms}
    long = any(len(name) > LONG for name in called.values())
    yield from sentences(found, letters if long else called)
    yield ""
    yield from (f"{letters[arm]}: {name}" for arm, name in called.items() if long)
    # A column that says the same of every row is left out: pass@1 of one training each is the usual case.
    constant = {
        "pass@": {r.k for r in found.rates} == {1},
        "trainings": {r.trainings for r in found.rates} == {1},
    }
    kept = [at for at, head in enumerate(RATE_HEADS) if not constant.get(head)]
    own = letters if long else {arm: f"{letters[arm]} {name}" for arm, name in called.items()}
    rates = [rate_row(r, own[r.arm]) for r in found.rates]
    heads = [RATE_HEADS[at] for at in kept]
    yield table("success", heads, ([row[at] for at in kept] for row in rates), left=("",))
    rows = (difference_row(d, f"{letters[d.b]}-{letters[d.a]}") for d in found.differences)
    yield table("paired differences", DIFFERENCE_HEADS, rows, left=("",))
    of_k = "" if constant["pass@"] else ", or of the estimate of pass@k"
    yield (
        f"rate: mean over tasks of the fraction of attempts that succeed{of_k}. Errors are clustered by task."
        f" could see: smallest difference found in 80 % of repetitions, at 5 % over all differences together."
    )
    methods = {rate.interval for rate in found.rates} | {d.interval for d in found.differences}
    if methods & {"wilson", "newcombe"}:
        yield (
            "Where all tasks of an evaluation agree, its interval is Wilson's with tasks as trials, and that "
            "of a difference from it Newcombe's."
        )
    yield from found.cautions


def rate_row(rate: Rate, name: str) -> Row:
    """A rate as cells under RATE_HEADS."""
    between = "-" if rate.low is None else f"{rate.low:.3f}-{rate.high:.3f}"
    se = "-" if rate.se is None else f"{rate.se:.3f}"
    return (name, rate.k, f"{rate.rate:.3f}", between, se, rate.tasks, rate.attempts, rate.trainings)


def difference_row(d: Difference, name: str) -> Row:
    """A difference as cells under DIFFERENCE_HEADS, in points."""
    between = "-" if d.low is None or d.high is None else f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
    se, seen = ("-" if x is None else f"{100 * x:.1f}" for x in (d.se, d.detectable))
    p, adjusted = ("-" if x is None else "<.001" if x < 0.001 else f"{x:.3f}" for x in (d.p, d.p_holm))
    return (name, f"{100 * d.difference:+.1f}", between, se, p, adjusted, seen, d.tasks)


def _letter(at: int) -> str:
    return ascii_uppercase[at] if at < 26 else f"A{at - 25}"
