"""The account of a run: its calls, their cost, and whether ledger, tables and provider agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from contextlib import closing
from typing import Any

from agentloop.ledger.store import Ledger
from agentloop.types import Usage
from occupancy.record.errors import DataError, InputError
from occupancy.record.prices import PICO, PriceTable
from occupancy.record.rows import Row
from occupancy.runs import Run

_SUMS = """
select role, policy, count(*) as attempts,
    coalesce(sum(state in ('settled', 'orphaned')), 0) as answered,
    coalesce(sum(state = 'failed'), 0) as failed,
    coalesce(sum(state in ('lost', 'open')), 0) as lost,
    coalesce(sum(attempt > 0), 0) as repeated,
    coalesce(sum(billed = 'perhaps'), 0) as perhaps_billed,
    coalesce(sum(case when billed = 'perhaps' then charged_tokens end), 0) as perhaps_tokens,
    coalesce(sum(output_tokens), 0) as output_tokens,
    coalesce(sum(case when usage = 'local' then output_tokens end), 0) as counted_here,
    coalesce(sum(usage = 'local'), 0) as without_usage,
    coalesce(sum(usage = 'reported' and prompt_tokens is null), 0) as without_prompt,
    coalesce(sum(reasoning_tokens), 0) as reasoning_tokens,
    coalesce(sum(prompt_tokens), 0) as prompt_tokens,
    coalesce(sum(cached_tokens), 0) as cached_tokens,
    sum(charged_tokens) as charged_tokens,
    sum(charged_money) as charged_money
from attempts group by role, policy order by role desc, policy
"""
_ANSWERED = """
select episode_id, t, output_tokens, state from attempts
where role = 'teacher' and state in ('settled', 'orphaned') and t > 0
"""
_FAILED = "select * from attempts where state = 'failed'"
_ASKED = "select * from attempts where role = 'teacher' and t = 0 and state != 'failed'"


def refuse_lost_ledger(run: Run) -> None:
    """DataError where the tables hold teacher turns that the ledger lacks: their cost is unknown."""
    _refuse_import(run)
    bought = run.column("turns", "author").count("teacher")
    file, known = run.folder / "ledger.sqlite", 0
    if bought and file.exists():
        with closing(Ledger(file, read_only=True)) as ledger:
            known = len(ledger.query(_ANSWERED))
    if known < bought:
        raise DataError(
            f"{file} knows {known:,} teacher turns, but the run holds {bought:,}: restore the ledger; "
            f"without it the cost of the run is unknown"
        )


def _refuse_import(run: Run) -> None:
    if run.info.get("kind") == "import":
        raise DataError(
            f"{run.folder} was imported: nothing was bought in it, so it has no account; name a run of "
            f"`fewsteps collect`"
        )


def teacher_attempts(run: Run) -> dict[str, list[tuple[int, int]]]:
    """(turn, output tokens) of the teacher's attempts by episode_id; without a ledger, of its turns."""
    file = run.folder / "ledger.sqlite"
    if file.exists():
        with closing(Ledger(file, read_only=True)) as ledger:
            rows = ledger.query("select episode_id, t, output_tokens from attempts where role = 'teacher'")
        calls = [(row["episode_id"], row["t"], row["output_tokens"] or 0) for row in rows]
    else:
        calls = [(*turn, tokens) for turn, tokens in _taught_turns(run).items()]
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for episode_id, t, tokens in calls:
        found[episode_id].append((t, tokens))
    return found


def account_of(
    run: Run, *, prices: PriceTable | None = None, provider: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Costs by policy, failures, C_i and C_tr, and whether ledger, tables and provider agree.

    Of a run that comes without its ledger (a published one): `ledger` is false, C_i is that of the tables,
    `agree` is None, and there are no policies.

    Args:
        prices: Price table; None: as each attempt was charged.
        provider: What the provider's own account says of the teacher: output, prompt or calls; of a student
            behind a server: student_output, student_prompt or student_calls.

    Raises:
        DataError: The ledger lacks turns that the run holds, or is not there and prices or provider need it.
        InputError: `provider` has another name.
    """
    file = run.folder / "ledger.sqlite"
    known = file.exists()
    # The tables before the ledger: of a run that is being collected, all that they hold is in it by then.
    stored, finished = _taught_turns(run), set(run.column("episodes", "episode_id"))
    policies, answered, failed, asked = list[Row](), list[Row](), list[Row](), list[Row]()
    if known:
        refuse_lost_ledger(run)
        with closing(Ledger(file, read_only=True)) as ledger:
            policies, answered = ledger.query(_SUMS), ledger.query(_ANSWERED)
            failed, asked = ledger.query(_FAILED), ledger.query(_ASKED)
    elif prices is not None or provider is not None:
        raise DataError(
            f"{run.folder} comes without its ledger.sqlite: --prices and --provider need its attempts; "
            f"restore it, or leave them out"
        )
    else:
        _refuse_import(run)
    for row in policies:
        row["money"] = _money(row, prices)
    tables: dict[str, Any] = _tables(stored, finished, answered)
    tables["switch_questions"] = sum(row["output_tokens"] or 0 for row in asked)
    tables["failed_with_usage"] = sum(row["output_tokens"] or 0 for row in failed if row["role"] == "teacher")
    C_i = told = sum(tables.values())
    if known:
        C_i = sum(row["output_tokens"] for row in policies if row["role"] == "teacher")
    tasks = Counter(row["episode_id"].rpartition("#")[0] for row in failed)
    return {
        "folder": str(run.folder),
        "ledger": known,
        "recipe": run.recipe.name,
        "currency": None if prices is None else prices.currency,
        "policies": policies,
        "failures": dict(sorted(Counter(row["failure"] for row in failed).items())),
        "tasks_with_failures": dict(tasks.most_common(20)),
        "C_i": C_i,
        "C_tr": sum(run.column("traces", "C_tr")),
        "tables": tables | {"agree": C_i == told if known else None},
        "provider": None if provider is None else _provider(policies, provider),
    }


def _taught_turns(run: Run) -> dict[tuple[str, int], int]:
    """Output tokens of the teacher's turns in the tables, by episode_id and turn."""
    turns = run.read("turns", columns=["episode_id", "t", "author", "output_tokens"]).to_pylist()
    return {(t["episode_id"], t["t"]): t["output_tokens"] for t in turns if t["author"] == "teacher"}


def _tables(
    stored: Mapping[tuple[str, int], int], finished: Container[str], answered: list[Row]
) -> dict[str, int]:
    """Where the teacher's tokens are: in the turns of the run, or bought for turns that are not in it."""
    sums = {"in_turns": sum(stored.values()), "in_unfinished_episodes": 0, "orphaned": 0}
    for row in answered:
        if row["state"] == "settled" and (row["episode_id"], row["t"]) in stored:
            continue
        unfinished = row["episode_id"] not in finished
        sums["in_unfinished_episodes" if unfinished else "orphaned"] += row["output_tokens"]
    return sums


def _money(row: Row, prices: PriceTable | None) -> float | None:
    """Cost of a policy in the currency: by the table that is given, else as it was charged; None: unknown."""
    if prices is None:
        return None if row["charged_money"] is None else row["charged_money"] / PICO
    if row["without_prompt"] and prices.find(row["policy"]).input:
        return None
    tokens = Usage(
        row["output_tokens"], "", row["reasoning_tokens"], row["prompt_tokens"], row["cached_tokens"]
    )
    return (prices.find(row["policy"]).of(tokens) or 0) / PICO


def _provider(policies: list[Row], given: Mapping[str, int]) -> dict[str, Any]:
    """Our sums beside the provider's, of one role each: the two may have different providers."""
    bounds = {
        f"{prefix}{name}": bound
        for role, prefix in (("teacher", ""), ("student", "student_"))
        for name, bound in _bounds([row for row in policies if row["role"] == role]).items()
    }
    unknown = sorted(set(given) - set(bounds))
    if unknown:
        raise InputError(f"--provider {unknown[0]}: expected {', '.join(bounds)}, each with a whole number")
    told = {}
    for name, value in given.items():
        least, most = bounds[name]
        agree = least <= value and (most is None or value <= most)
        told[name] = {"provider": value, "least": least, "most": most, "agree": agree}
    return told


def _bounds(policies: list[Row]) -> dict[str, tuple[int, int | None]]:
    """What a provider can have billed: known at least, and at most where that is bounded."""
    perhaps = sum(row["perhaps_billed"] for row in policies)
    silent = sum(row["without_usage"] for row in policies)
    answered = sum(row["answered"] for row in policies)
    output = sum(row["output_tokens"] - row["counted_here"] for row in policies)
    most_output = sum(row["charged_tokens"] or 0 for row in policies)
    prompt = sum(row["prompt_tokens"] for row in policies)
    sure = not perhaps and not silent
    return {
        "output": (output, output if sure else max(output, most_output)),
        "prompt": (prompt, prompt if sure and not any(row["without_prompt"] for row in policies) else None),
        "calls": (answered, answered + perhaps + sum(row["failed"] for row in policies)),
    }
