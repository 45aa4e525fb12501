"""`fewsteps ledger`: what a run has cost, and whether ledger, tables and provider agree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from occupancy.record.show import add_json, show, table
from occupancy.record.specs import Size

if TYPE_CHECKING:
    from agentloop.ledger.matched import Proof


ALWAYS = ("attempts", "answered", "output_tokens")
SHOWN = {
    **dict.fromkeys(("attempts", "answered"), ""),
    "failed": "failed",
    "lost": "lost when the process died",
    "repeated": "repeated after a failure",
    "perhaps_billed": "may have been billed without an answer",
    **dict.fromkeys(("output_tokens", "reasoning_tokens", "prompt_tokens", "cached_tokens"), ""),
    "perhaps_tokens": "tokens of these at most",
}
"""Rows of an account; those that are 0 for every policy are left out, but for ALWAYS."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `ledger`."""
    ledger = commands.add_parser(
        "ledger",
        help="what a run has cost, attempt by attempt",
        description="Print a run's account; reconcile it with its tables and with the provider's own count.",
    )
    add = ledger.add_argument
    add("run", metavar="RUN", help="the run folder")
    add("--prices", metavar="FILE", help="price table in TOML (default: as it was charged)")
    add(
        "--provider",
        action="append",
        default=[],
        metavar="NAME=N",
        help="what the provider's account says of the teacher: output=TOKENS, prompt=TOKENS or calls=N; "
        "of the student: student_output=TOKENS, …",
    )
    add_json(ledger)
    ledger.set_defaults(handler=_ledger)


def _ledger(given: argparse.Namespace) -> int:
    from agentloop.ledger.report import account_of
    from occupancy.record.prices import read_prices
    from occupancy.record.specs import settings
    from occupancy.runs import open_run

    provider = settings(_account, given.provider, of="--provider")
    account = account_of(
        open_run(given.run),
        prices=read_prices(given.prices) if given.prices else None,
        provider=provider or None,
    )
    show(given, account, lambda: _shown(account))
    agree = [account["tables"]["agree"], *(row["agree"] for row in (account["provider"] or {}).values())]
    return 1 if False in agree else 0


def _account(
    *,
    output: Size = 0,
    prompt: Size = 0,
    calls: Size = 0,
    student_output: Size = 0,
    student_prompt: Size = 0,
    student_calls: Size = 0,
) -> None:
    """What a provider's own account may say of the teacher, and of a student behind a server."""


def _shown(account: dict[str, Any]) -> Iterator[Any]:
    if not account["ledger"]:
        yield (
            f"{account['folder']} comes without its ledger; costs from the tables: {account['C_i']:,} "
            f"teacher tokens, {account['C_tr']:,} in accepted traces (C_tr); failed calls are not counted"
        )
        return
    policies = account["policies"]
    heads = ("", *(f"{row['role']}\n{row['policy']}" for row in policies))
    rows = [
        (said or name.replace("_", " "), *(f"{row[name]:,}" for row in policies))
        for name, said in SHOWN.items()
        if name in ALWAYS or any(row[name] for row in policies)
    ]
    if account["currency"]:
        money = ("-" if row["money"] is None else f"{row['money']:,.4f}" for row in policies)
        rows.append((account["currency"], *money))
    yield table(f"{account['folder']}: {account['recipe']}", heads, rows, left=("",))
    if account["failures"]:
        yield "failed: " + ", ".join(f"{kind} {n}" for kind, n in account["failures"].items())
    for row in policies:
        if row["without_usage"]:
            yield (
                f"{row['policy']} named no usage, or one that contradicts itself, in "
                f"{row['without_usage']:,} answers: their {row['counted_here']:,} tokens are our own count, "
                f"and each was charged its most"
            )
        if account["currency"] and row["money"] is None:
            n = f"{row['without_prompt']:,}"
            yield f"{row['policy']} named no prompt tokens in {n} answers: what they cost is not known"
    where = ", ".join(f"{name} {n:,}" for name, n in account["tables"].items() if name != "agree" and n)
    verdict = "agrees" if account["tables"]["agree"] else "does NOT agree"
    tables = f"({where or 'nothing'}): {verdict} with the tables"
    yield f"C_i {account['C_i']:,} {tables}; C_tr {account['C_tr']:,}"
    if reasoning := sum(row["reasoning_tokens"] for row in policies if row["role"] == "teacher"):
        yield (
            f"C_i counts all that the teacher wrote, {reasoning:,} tokens of reasoning among it; C_tr what "
            f"accepted traces hold: reasoning only where it is kept in the turn (thinking=keep)"
        )
    for name, row in (account["provider"] or {}).items():
        most = "more" if row["most"] is None else f"{row['most']:,}"
        verdict = "agrees" if row["agree"] else "does NOT agree"
        yield f"{name}: provider {row['provider']:,}, here {row['least']:,} to {most}: {verdict}"


def proof_shown(proof: Proof) -> Iterator[Any]:
    """The table that shows whether recipes spent the same."""
    heads = ("recipe", "spent", "over budget", "largest continuation", "C_i", "C_tr", "traces", "reached")
    rows = []
    for m in proof.matches:
        numbers = (m.spent, m.spent - proof.budget, m.largest, m.C_i, m.C_tr, m.traces)
        rows.append((m.name, *(f"{n:,}" for n in numbers), "yes" if m.reached else "no: out of tasks"))
    title = f"budget {proof.budget:,} on the axis {proof.axis}"
    yield table(title, heads, rows, left=("recipe", "reached"))
    verdict = "matched" if proof.matched else "NOT matched"
    yield f"{verdict}: the recipes differ by {proof.spread:,} at most"
