"""A verdict as Markdown, ready for a page of documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]


def markdown(found: Told) -> str:
    """The verdict of `analysis.study.verdict.verdict`, made finite, as Markdown."""
    parts = [
        f"# Study {found['study']}: predicted against measured",
        f"Registered {found['registered']} before the sweep was bought; SHA-256 of its plan "
        f"`{found['sha256']['plan'][:16]}…`. Budgets are teacher tokens (C_i) beside D_BC and the pilot. "
        f"{found['said']}.",
        _primary(found["primary"]),
        _arms(found),
        _regret(found["regret"]),
        _ranking(found["ranking"]),
        _coverage(found["coverage"]),
        _handback(found["handback"]),
        _claims(found["claims"]),
        _equal(found["equal_C_tr"]),
        _left_out(found["cells"]["missing"]),
        _seconds(found["seconds"]),
        _machines(found["machines"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def decided(primary: Told, regret: Told) -> str:
    """What a primary comparison that was measured says to buy, and what its choice lost, in plain words."""
    predicted, seen = primary["predicted"], primary["measured"]
    said = {"holds": "buy", "does not hold": "do not buy"}.get(primary["said"], "it is open whether to buy")
    points = {name: f"{100 * seen[name]:+.1f}" for name in ("difference", "low", "high")}
    return (
        f"{said} {predicted['b']} rather than {predicted['a']}. Predicted {100 * predicted['expected']:+.1f} "
        f"points, measured {points['difference']} ± {100 * seen['se']:.1f} (95 % interval {points['low']} to "
        f"{points['high']}). The best measured recipe is {100 * regret['regret']:.1f} points above it (95 % "
        f"interval {100 * regret['low']:.0f} to {100 * regret['high']:.1f})."
    )


def _section(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Told], after: str = "") -> str:
    """A table of plain values under a title; empty without rows. columns: head and template of its cells."""
    if not rows:
        return ""
    cells = [[_filled(template, row) for _, template in columns] for row in rows]
    return titled(title, [head for head, _ in columns], cells) + (f"\n\n{after}" if after else "")


def titled(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table under a title."""
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))
    return f"## {title}\n\n{lines}"


def _filled(template: str, row: Told) -> str:
    """The template's text; "-" where a value that it formats is missing."""
    try:
        return template.format_map(row)
    except TypeError:  # None takes no format
        return "-"


def _primary(primary: Told) -> str:
    said = "## Primary comparison\n\n" + _filled(
        "{b} minus {a} at {budget:,} teacher tokens: predicted {expected:+.3f}, 90 % band {low:+.3f} to "
        "{high:+.3f}; the smallest difference that could be seen was announced as "
        "{smallest_difference:.3f} (from {se_from}).",
        primary["predicted"],
    )
    seen = primary["measured"]
    if seen is None:
        return f"{said} It was not measured."
    where = "inside" if primary["in_band"] else "outside"
    return (
        f"{said} Measured {seen['difference']:+.3f} (SE {_filled('{se:.3f}', seen)}, 95 % "
        f"{_filled('{low:+.3f} to {high:+.3f}', seen)}, {seen['tasks']} tasks), {where} the band. That the "
        f"plan's choice is better: **{primary['said']}**."
    )


def _arms(found: Told) -> str:
    splits = sorted({split for arm in found["arms"] for split in arm["by_split"]})
    columns = [
        ("budget", "{budget:,}"),
        ("arm", "{arm}"),
        ("seeds", "{seeds}"),
        ("predicted", "{predicted[pass_at_1]:.3f}"),
        ("90 % band", "{predicted[low]:.3f} to {predicted[high]:.3f}"),
        ("measured", "{pass_at_1:.3f}"),
        ("SE", "{se:.3f}"),
        *((split, f"{{by_split[{k}]:.3f}}") for k, split in enumerate(splits) if len(splits) > 1),
        ("C_i", "{C_i:,.0f}"),
        ("C_tr", "{C_tr:,.0f}"),
        ("C_tr predicted", "{predicted[C_tr]:,.0f}"),
    ]
    rows = [arm | {"by_split": [arm["by_split"].get(split) for split in splits]} for arm in found["arms"]]
    rows.sort(key=lambda arm: (-arm["budget"], -arm["pass_at_1"]))
    before = ", ".join(f"{name} {value:.3f}" for name, value in found["references"].items())
    said = f"Before anything is bought: {before}. " if before else ""
    errors = "SE is clustered by task, seeds included where there are several."
    return _section("Arms", columns, rows, said + errors)


def _regret(regrets: Told) -> str:
    columns = [
        ("budget", "{budget:,}"),
        ("choice", "{choice}"),
        ("best measured", "{best:s}"),
        ("regret", "{regret:.3f}"),
        ("95 %", "{low:.3f} to {high:.3f}"),
        ("", "{status}"),
    ]
    rows = [own | {"budget": int(budget)} for budget, own in regrets.items()]
    after = (
        "Undecided: no arm is shown to be better than more demonstrations. The interval is simultaneous over "
        "all arms of a budget."
    )
    return _section("Regret of the plan's choice", columns, rows, after)


def _ranking(ranking: Sequence[Told]) -> str:
    columns = [
        ("order by", "{by}"),
        ("arms", "{arms}"),
        ("pairs in order", "{pair_accuracy:.3f}"),
        ("of those told apart", "{told_apart} (of {pairs_told_apart})"),
        ("Spearman", "{spearman:.3f}"),
        ("picks", "{picks}"),
        ("regret", "{regret:.3f}"),
        ("tokens, bought apart", "{tokens_bought_apart:,.0f}"),
        ("machine seconds", "{seconds:,.0f}"),
    ]
    rows = [{**own, "told_apart": _filled("{pair_accuracy_told_apart:.3f}", own)} for own in ranking]
    after = (
        "Measured with noise: an order that is right does not reach 1. Every student has the pilot's tokens."
    )
    return _section("What orders the arms at the target", columns, rows, after)


def _coverage(found: Told) -> str:
    columns = [
        ("", "{name}"),
        ("n", "{n}"),
        ("in their 90 % band", "{inside:.0%}"),
        ("with the error of measuring", "{inside_with_noise:.0%}"),
        ("mean width", "{width:.3f}"),
        ("predicted minus measured", "{bias:+.3f}"),
    ]
    names = {"pass_at_1": "pass@1", "over_demonstrations": "lead on more demonstrations"}
    rows = [found[key] | {"name": name} for key, name in names.items() if found[key]]
    return _section("Bands", columns, rows)


def _handback(curve: Sequence[Told]) -> str:
    columns = [
        ("K", "{K}"),
        ("r", "{r:g}"),
        ("G(K)", "{G:+.3f}"),
        ("SE", "{G_se:.3f}"),
        ("over more demonstrations", "{over_demonstrations:+.3f}"),
        ("SE", "{se:.3f}"),
    ]
    return _section("Hand-backs and what op-short brought", columns, curve)


def _claims(claims: Sequence[Told]) -> str:
    columns = [
        ("budget", "{budget:,}"),
        ("claim, at equal C_i", "{claim}"),
        ("difference", "{difference:+.3f}"),
        ("95 %", "{low:+.3f} to {high:+.3f}"),
        ("", "{verdict}"),
    ]
    return _section("The paper's claims", columns, claims)


def _equal(own: Told | None) -> str:
    if own is None or len(own["arms"]) < 2:
        return ""
    said = (
        f"Every arm where it was trained on {own['C_tr']:,.0f} accepted tokens, between budgets on the log "
        f"scale; the plan's choice, {own['choice']}, is {own['regret']:.3f} below the best."
    )
    rows = [{"arm": arm, "J": J} for arm, J in sorted(own["arms"].items(), key=lambda item: -item[1])]
    return _section("At equal C_tr", [("arm", "{arm}"), ("pass@1", "{J:.3f}")], rows, said)


def _left_out(missing: Sequence[Told]) -> str:
    lines = "\n".join(f"- {one['cell']}: {one['why']}" for one in missing)
    return f"## Registered and not evaluated\n\n{lines}" if lines else ""


def _seconds(seconds: Mapping[str, float]) -> str:
    told = ", ".join(f"{stage} {s:,.0f}" for stage, s in seconds.items())
    return f"Machine seconds by stage: {told}; {sum(seconds.values()):,.0f} in all." if told else ""


def _machines(machines: Sequence[Told]) -> str:
    used = dict.fromkeys(
        f"{one.get('cards')}; {one.get('cores')} cores; {one.get('system')}" for one in machines
    )
    return f"Machines (GPUs; cores; system): {'. '.join(used)}." if used else ""
