"""A verdict as Markdown, ready for a page of documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def markdown(found: Mapping[str, Any]) -> str:
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


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"


def _between(low: float | None, high: float | None, sign: str = "") -> str:
    return "-" if low is None or high is None else f"{low:{sign}.3f} to {high:{sign}.3f}"


def _primary(primary: Mapping[str, Any]) -> str:
    told, seen = primary["predicted"], primary["measured"]
    said = (
        f"## Primary comparison\n\n{told['b']} minus {told['a']} at {told['budget']:,} teacher tokens: "
        f"predicted {told['expected']:+.3f}, 90 % band {_between(told['low'], told['high'], '+')}; the "
        f"smallest difference that could be seen was announced as {told['smallest_difference']:.3f} (from "
        f"{told['se_from']})."
    )
    if seen is None:
        return f"{said} It was not measured."
    where = "inside" if primary["in_band"] else "outside"
    return (
        f"{said} Measured {seen['difference']:+.3f} (SE {_number(seen['se'])}, 95 % "
        f"{_between(seen['low'], seen['high'], '+')}, {seen['tasks']} tasks), {where} the band. That the "
        f"plan's choice is better: **{primary['said']}**."
    )


def _arms(found: Mapping[str, Any]) -> str:
    splits = sorted({split for arm in found["arms"] for split in arm["by_split"]})
    shown = splits if len(splits) > 1 else []
    heads = ["budget", "arm", "seeds", "predicted", "90 % band", "measured", "SE", *shown]
    heads += ["C_i", "C_tr", "C_tr predicted"]
    rows = [
        [
            f"{arm['budget']:,}",
            arm["arm"],
            arm["seeds"],
            _number(arm["predicted"]["pass_at_1"]),
            _between(arm["predicted"]["low"], arm["predicted"]["high"]),
            _number(arm["pass_at_1"]),
            _number(arm["se"]),
            *(_number(arm["by_split"].get(split)) for split in shown),
            f"{arm['C_i']:,.0f}",
            f"{arm['C_tr']:,.0f}",
            "-" if arm["predicted"]["C_tr"] is None else f"{arm['predicted']['C_tr']:,.0f}",
        ]
        for arm in sorted(found["arms"], key=lambda arm: (-arm["budget"], -arm["pass_at_1"]))
    ]
    before = ", ".join(f"{name} {value:.3f}" for name, value in found["references"].items())
    said = f"\n\nBefore anything is bought: {before}." if before else "\n\n"
    errors = "SE is clustered by task, seeds included where there are several."
    return f"## Arms\n\n{_table(heads, rows)}{said} {errors}"


def _regret(regrets: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{int(budget):,}",
            own["choice"],
            own["best"] or "-",
            _number(own["regret"]),
            _between(own["low"], own["high"]),
            own["status"],
        ]
        for budget, own in regrets.items()
    ]
    return (
        f"## Regret of the plan's choice\n\n"
        f"{_table(['budget', 'choice', 'best measured', 'regret', '95 %', ''], rows)}\n\n"
        f"Undecided: no arm is shown to be better than more demonstrations. The interval is simultaneous "
        f"over all arms of a budget."
    )


def _ranking(ranking: Sequence[Mapping[str, Any]]) -> str:
    if not ranking:
        return ""
    heads = ["order by", "arms", "pairs in order", "of those told apart", "Spearman", "picks", "regret"]
    rows = [
        [
            own["by"],
            own["arms"],
            _number(own["pair_accuracy"]),
            f"{_number(own['pair_accuracy_told_apart'])} (of {own['pairs_told_apart']})",
            _number(own["spearman"]),
            own["picks"],
            _number(own["regret"]),
            f"{own['tokens_bought_apart']:,.0f}",
            f"{own['seconds']:,.0f}",
        ]
        for own in ranking
    ]
    return (
        f"## What orders the arms at the target\n\n"
        f"{_table([*heads, 'tokens, bought apart', 'machine seconds'], rows)}\n\n"
        f"Measured with noise: an order that is right does not reach 1. Every student has the pilot's tokens."
    )


def _coverage(found: Mapping[str, Any]) -> str:
    names = {"pass_at_1": "pass@1", "over_demonstrations": "lead on more demonstrations"}
    rows = [
        [
            name,
            own["n"],
            f"{own['inside']:.0%}",
            f"{own['inside_with_noise']:.0%}",
            _number(own["width"]),
            _number(own["bias"], "+"),
        ]
        for key, name in names.items()
        if (own := found[key])
    ]
    heads = [
        "",
        "n",
        "in their 90 % band",
        "with the error of measuring",
        "mean width",
        "predicted minus measured",
    ]
    return f"## Bands\n\n{_table(heads, rows)}"


def _handback(curve: Sequence[Mapping[str, Any]]) -> str:
    if not curve:
        return ""
    rows = [
        [
            own["K"],
            f"{own['r']:g}",
            _number(own["G"], "+"),
            _number(own["G_se"]),
            _number(own["over_demonstrations"], "+"),
            _number(own["se"]),
        ]
        for own in curve
    ]
    heads = ["K", "r", "G(K)", "SE", "over more demonstrations", "SE"]
    return f"## Hand-backs and what op-short brought\n\n{_table(heads, rows)}"


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{own['budget']:,}",
            own["claim"],
            _number(own["difference"], "+"),
            _between(own["low"], own["high"], "+"),
            own["verdict"],
        ]
        for own in claims
    ]
    heads = ["budget", "claim, at equal C_i", "difference", "95 %", ""]
    return f"## The paper's claims\n\n{_table(heads, rows)}"


def _equal(own: Mapping[str, Any] | None) -> str:
    if own is None or len(own["arms"]) < 2:
        return ""
    rows = sorted(own["arms"].items(), key=lambda item: -item[1])
    return (
        f"## At equal C_tr\n\nEvery arm where it was trained on {own['C_tr']:,.0f} accepted tokens, between "
        f"budgets on the log scale; the plan's choice, {own['choice']}, is {own['regret']:.3f} below the "
        f"best."
        f"\n\n{_table(['arm', 'pass@1'], [[n, _number(v)] for n, v in rows])}"
    )


def _left_out(missing: Sequence[Mapping[str, str]]) -> str:
    if not missing:
        return ""
    lines = "\n".join(f"- {one['cell']}: {one['why']}" for one in missing)
    return f"## Registered and not evaluated\n\n{lines}"


def _seconds(seconds: Mapping[str, float]) -> str:
    told = ", ".join(f"{stage} {s:,.0f}" for stage, s in seconds.items())
    return f"Machine seconds by stage: {told}; {sum(seconds.values()):,.0f} in all." if told else ""


def _machines(machines: Sequence[Mapping[str, Any]]) -> str:
    used = list(
        dict.fromkeys(
            f"{one.get('cards')}; {one.get('cores')} cores; {one.get('system')}" for one in machines
        )
    )
    return "" if not used else f"Machines (GPUs; cores; system): {'. '.join(used)}."
