"""`fewsteps collect` with a budget, and `fewsteps ledger` on what it leaves."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of
from toy_world import expert

from agentloop.ledger import report
from agentloop.ledger.report import account_of
from agentloop.ledger.store import Ledger
from agentloop.run.collect import SpendingLimits
from agentloop.types import Answer, Ask, CallFailed, Traits, Usage
from analysis.cli import main
from occupancy.record.errors import BudgetStopped
from occupancy.record.prices import read_prices
from occupancy.record.recipe import preset
from occupancy.runs import open_run

PRICES = 'currency = "EUR"\n[models."*"]\ninput = 2\ncached_input = 0.5\noutput = 8\n'


def cli(*arguments: str, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    text = capsys.readouterr().out
    return code, json.loads(text) if text else None


def collecting(out: Path, *more: str) -> list[str]:
    seams = ["--env", "toy_world:open_corridors", "--student", "drunk", "--teacher", "expert"]
    return ["collect", *seams, "--tasks", "8", "--set", "T_max=12", "--out", str(out), *more]


def test_a_budget_stop_has_its_exit_code_and_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    budget = ("--turn-tokens", "30", "--budget")
    code, summary = cli(*collecting(out, *budget, "120"), out=out, capsys=capsys)
    assert (code, summary["status"]) == (3, "budget_stopped")
    assert summary["C_i"] <= 120
    code, summary = cli(*collecting(out, *budget, "100000"), out=out, capsys=capsys)
    assert (code, summary["status"]) == (0, "finished")
    code, account = cli("ledger", str(out), out=out, capsys=capsys)
    assert code == 0
    assert account["C_i"] == summary["C_i"] == account["tables"]["in_turns"]


def test_recipes_with_one_budget_print_their_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    recipes = ("--recipe", "op-short", "--recipe", "pure-bc", "--set", "n=5", "--budget", "300")
    code, proof = cli(*collecting(out, *recipes), out=out, capsys=capsys)
    assert code == 0
    assert proof["matched"]
    assert sorted(p.name for p in out.iterdir()) == ["op-short", "pure-bc"]
    assert main(collecting(out, *recipes)) == 0
    assert "matched: the recipes differ by" in capsys.readouterr().out


def test_demonstrations_need_no_student(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    alone = [word for word in collecting(out) if word not in ("--student", "drunk")]
    code, summary = cli(*alone, "--recipe", "pure-bc", out=out, capsys=capsys)
    assert (code, summary["status"], list(summary["episodes"])) == (0, "finished", ["demo"])
    assert open_run(out).info["student"] == ""
    assert main([*alone, "--recipe", "pure-bc"]) == 0, "the same command goes on"
    both = [*alone[:-1], str(tmp_path / "both"), "--recipe", "pure-bc", "--recipe", "op-short"]
    capsys.readouterr()
    assert main(both) == 2
    assert "--student is missing, whose rollouts op-short begins with" in capsys.readouterr().err


def test_money_prices_each_token_once(tmp_path: Path) -> None:
    """5,005 fresh and 257,955 cached prompt tokens, as in a public report of a double charge."""
    from occupancy.record.prices import read_prices

    file = tmp_path / "prices.toml"
    file.write_text('currency = "USD"\n[models."m"]\ninput = 1.25\ncached_input = 0.625\noutput = 10\n')
    cost = read_prices(file).find("m").of(Usage(1744, "m", reasoning=900, prompt=262_960, cached=257_955))
    assert cost == 5005 * 1_250_000 + 257_955 * 625_000 + 1744 * 10_000_000


def test_the_account_names_failures_unknown_usage_and_what_is_not_in_the_tables(tmp_path: Path) -> None:
    calls = 0

    async def teacher(ask: Ask) -> Answer:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            raise CallFailed("slow", kind="timeout", retry=True, billed="perhaps")
        answer = await expert(ask)
        if calls % 5 == 0:
            return Answer(answer.text, Usage(2, "local:words-and-marks", reported=False))
        return answer

    recipe = preset("op-short", K=2, n=2, T_max=12)
    spending = SpendingLimits(backoff_s=0, turn_tokens=50)
    run = run_of(tmp_path / "run", recipe, teacher=teacher, spending=spending)
    account = account_of(run, provider={"output": 400, "calls": calls})
    (policy,) = account["policies"]
    written = attempts(run)
    assert policy["attempts"] == calls == len(written)
    assert account["failures"] == {"timeout": policy["perhaps_billed"]}
    assert policy["perhaps_tokens"] == 50 * policy["perhaps_billed"]
    assert policy["without_usage"] == sum(a["usage"] == "local" for a in written) > 0
    assert account["tables"]["agree"]
    assert sum(account["tasks_with_failures"].values()) == policy["failed"]
    assert account["provider"]["calls"]["agree"]
    assert account["provider"]["output"]["least"] < account["provider"]["output"]["most"]


def test_a_stopped_run_reconciles_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "run", tmp_path / "prices.toml"
    table.write_text(PRICES)
    money = ("--turn-tokens", "30", "--prices", str(table), "--axis", "money", "--budget", "0.008")
    assert main(collecting(out, *money)) == 3
    assert "EUR" in capsys.readouterr().err
    code, account = cli("ledger", str(out), "--prices", str(table), out=out, capsys=capsys)
    assert code == 0
    written = attempts(open_run(out))
    stored = sum(t["output_tokens"] for t in rows(open_run(out), "turns") if t["author"] == "teacher")
    assert account["tables"]["in_turns"] == stored
    assert account["tables"]["in_unfinished_episodes"] == account["C_i"] - stored
    by_hand = sum(2 * a["prompt_tokens"] + 8 * a["output_tokens"] for a in written) / 10**6
    assert account["policies"][0]["money"] == pytest.approx(by_hand)
    assert by_hand <= 0.008
    assert main(["ledger", str(out)]) == 0
    assert "agrees with the tables" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_read_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "prices.toml"
    for text, told in [
        ("currency = 1", "expected currency and"),
        ('currency = "x"\n[models.m]\ninput = 1', "expected input, output"),
        ('currency = "x"\n[models.m]\ninput = -1\noutput = 2', "m.input = -1: expected a number"),
        ("nothing", "cannot be read"),
    ]:
        table.write_text(text)
        assert main(collecting(tmp_path / "run", "--prices", str(table))) == 2
        assert told in capsys.readouterr().err
    table.write_text('currency = "x"\n[models.other]\ninput = 1\noutput = 2\n')
    assert main(collecting(tmp_path / "run", "--prices", str(table))) == 2
    assert "add [models." in capsys.readouterr().err
    assert not (tmp_path / "run").exists(), "refused before a folder is begun"
    counts = tmp_path / "n.csv"
    counts.write_text("task_id,n\ncorridor/1,3\ncorridor/1,4\n")
    assert main(collecting(tmp_path / "run", "--n-of-task", str(counts))) == 2
    assert "names a task twice" in capsys.readouterr().err
    assert main(["ledger", str(tmp_path)]) == 2
    assert "no run folder" in capsys.readouterr().err


def test_a_run_without_its_ledger_has_the_costs_of_its_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the pilot that is shipped; a ledger that is there and disagrees stays an error."""
    out = tmp_path / "run"
    assert cli(*collecting(out), out=out, capsys=capsys)[0] == 0
    _, whole = cli("ledger", str(out), out=out, capsys=capsys)
    ledger = out / "ledger.sqlite"
    ledger.rename(tmp_path / "kept")
    code, account = cli("ledger", str(out), out=out, capsys=capsys)
    assert (code, account["ledger"], account["tables"]["agree"]) == (0, False, None)
    assert (account["C_i"], account["C_tr"]) == (whole["C_i"], whole["C_tr"])
    assert main(["ledger", str(out)]) == 0
    assert f"comes without its ledger; costs from the tables: {whole['C_i']:,} teacher" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["ledger", str(out), "--provider", "calls=3"]) == 2
    assert "restore it" in capsys.readouterr().err
    (tmp_path / "kept").rename(ledger)
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("delete from attempts")
        database.commit()
    assert main(["ledger", str(out)]) == 2
    assert "knows 0 teacher turns" in capsys.readouterr().err


def test_the_providers_count_is_compared_with_one_role(tmp_path: Path) -> None:
    """A student behind a server of its own is on another account."""

    async def paid(ask: Ask) -> Answer:
        return await expert(ask)

    paid.traits = Traits(paid=True, most_output=50)  # type: ignore[attr-defined]
    run = run_of(tmp_path / "run", preset("op-short", K=2, n=1, T_max=12), student=paid, teacher=paid)
    bought = {
        role: sum(a["output_tokens"] for a in attempts(run) if a["role"] == role)
        for role in ("teacher", "student")
    }
    assert all(bought.values())
    told = {"output": bought["teacher"], "student_output": bought["student"]}
    assert all(row["agree"] for row in account_of(run, provider=told)["provider"].values())
    both = account_of(run, provider={"output": sum(bought.values())})["provider"]
    assert not both["output"]["agree"]


def test_prompts_whose_length_is_not_known_are_not_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def silent(ask: Ask) -> Answer:
        answer = await expert(ask)
        return replace(answer, usage=replace(answer.usage, prompt=None)) if ask.t % 2 else answer

    run = run_of(tmp_path / "run", preset("op-short", K=3, T_max=12), teacher=silent)
    (tmp_path / "prices.toml").write_text(PRICES)
    prices = read_prices(tmp_path / "prices.toml")
    account = account_of(run, prices=prices, provider={"prompt": 10**6})
    assert account["policies"][0]["money"] is None
    assert account["provider"]["prompt"]["most"] is None
    assert account["provider"]["prompt"]["agree"]
    assert main(["ledger", str(run.folder), "--prices", str(tmp_path / "prices.toml")]) == 0
    assert "named no prompt tokens in" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "prices.toml").write_text(PRICES.replace("input = 2", "input = 0"))
    assert account_of(run, prices=read_prices(tmp_path / "prices.toml"))["policies"][0]["money"] is not None


def test_a_run_that_grows_while_it_is_read_agrees_with_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that is being collected, the tables may have more turns by the time its ledger is open."""
    folder, recipe = tmp_path / "run", preset("op-short", T_max=12)
    with pytest.raises(BudgetStopped):
        run_of(folder, recipe, spending=SpendingLimits(budget=100, turn_tokens=30))
    before = set(folder.glob("parts/*"))
    shutil.copytree(folder, tmp_path / "before")
    later = set((run := run_of(folder, recipe)).folder.glob("parts/*")) - before
    for part in later:
        part.rename(tmp_path / part.name)
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    for file in (tmp_path / "before").glob("ledger.sqlite*"):
        shutil.copy(file, folder)
    opened = list[Ledger]()

    class Growing(Ledger):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            opened.append(self)
            for part in later if len(opened) == 2 else ():
                (tmp_path / part.name).rename(part)

    monkeypatch.setattr(report, "Ledger", Growing)
    assert account_of(run)["tables"]["agree"]
    assert later
    assert later <= set(folder.glob("parts/*"))


def test_a_ledger_that_is_read_stays_as_it_was_opened(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-short", T_max=12), tasks="4")
    with closing(Ledger(run.folder / "ledger.sqlite", read_only=True)) as ledger:
        known = ledger.account()
        with closing(sqlite3.connect(run.folder / "ledger.sqlite")) as db, db:
            db.execute("update attempts set output_tokens = output_tokens + 1")
        assert ledger.account() == known
    assert account_of(run)["C_i"] > known["C_i"]
