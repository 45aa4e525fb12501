"""What data hold never commands a terminal: escapes are shown, markup is text."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
from toy_runs import run_of
from toy_world import Corridors, drunk, expert

from agentloop.types import Answer, Ask, CallFailed, Task
from analysis.cli import main
from occupancy.record.recipe import preset
from occupancy.record.show import printable, progress, safe_console, table

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r[/bold][link=x] end"
RECIPE = preset("op-short", K=3, n=1, T_max=12)


def clean(told: str) -> bool:
    """Whether a terminal would only print it."""
    return told == printable(told)


def test_control_characters_are_visible_wherever_they_are() -> None:
    assert clean(printable(EVIL))
    out = io.StringIO()
    console = safe_console(file=out, width=200)
    console.print(EVIL)
    console.print(table(EVIL, (EVIL, "n"), [(EVIL, 3)], left=(EVIL,)))
    console.rule(EVIL)
    assert clean(out.getvalue())
    assert "[/bold]" in out.getvalue(), "and markup is text"
    assert printable("two\nlines\tand é") == "two\nlines\tand é"


def test_progress_is_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with progress("train") as advance:
        advance(1, 3, note="loss 1")
        advance(2, 3, note="loss .5")
    assert "loss .5" in stream.getvalue()
    assert "2/3" in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_bars_of_other_libraries_are_no_part_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.delenv("TQDM_DISABLE", raising=False)  # commands of this process may have set it
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from occupancy.record.show import Parser, command_line\n"
        "def load(given):\n"
        "    from tqdm.auto import tqdm\n"
        "    for _ in tqdm([1, 2]): pass\n"
        "parser = Parser()\n"
        "parser.set_defaults(handler=load)\n"
        "sys.exit(command_line(parser, []))\n"
    )
    ours, theirs = os.openpty() if terminal else os.pipe()
    env = os.environ | {"TQDM_NCOLS": "80"}
    done = subprocess.run([sys.executable, "-W", "ignore", script], stderr=theirs, env=env, check=False)
    os.write(theirs, b"end")  # or there might be nothing to read
    said = os.read(ours, 10_000)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, said
    assert (said != b"end") == terminal


def test_progress_without_a_terminal_is_lines_which_also_come_while_nothing_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr("occupancy.record.show.EVERY_S", 0.001)
    monkeypatch.setattr("occupancy.record.show.say", said.put)

    def until(*words: str) -> str:
        while not all(word in (line := said.get(timeout=60)) for word in words):
            pass
        return re.sub(r"\d+:\d\d:\d\d", "TIME", line)

    with progress("train") as advance:
        assert until("passed") == "train: nothing finished yet, TIME passed"
        advance(1, 3, note="loss 1")
        assert until("1 of 3") == "train: 1 of 3, loss 1, TIME passed"
        advance(2, 3, note="loss .5")
        assert until("2 of 3") == "train: 2 of 3, loss .5, TIME passed, TIME left"
        advance(3, None)
        assert until("3,") == "train: 3, TIME passed"
    while not said.empty():
        said.get()
    time.sleep(0.01)
    assert said.empty(), "none after its end"


def test_a_table_is_whole_in_a_terminal_that_is_too_narrow_for_it() -> None:
    row = ("*", "op-critical r=1", "0.696", "0.62-0.75", "9,970")
    made = table("arms", ("", "recipe", "pass@1", "90 %", "demon-\nstrations"), [row], left=("", "recipe"))
    for width in (80, 30, 20):
        out = io.StringIO()
        safe_console(file=out, width=width).print(made)
        shown = " ".join(out.getvalue().split())
        assert all(word in shown for cell in row for word in cell.split()), shown
        assert "…" not in shown
    line = "* recipe op-critical r=1, pass@1 0.696, 90 % 0.62-0.75, demonstrations 9,970"
    assert shown == f"arms {line}"


class Evil(Corridors):
    """Tasks with names that command a terminal and look like markup."""

    def tasks(self, spec: str, *, seed: int = 0) -> list[Task]:
        return [replace(task, kind=EVIL) for task in super().tasks(spec)]


def test_no_command_passes_escapes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = 0

    async def teacher(ask: Ask) -> Answer:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise CallFailed(EVIL, kind=EVIL, billed="perhaps")
        return replace(await expert(ask), text=f"forward{EVIL}" if calls % 2 else "forward")

    run_of(tmp_path / "run", RECIPE, student=drunk, teacher=teacher, tasks="4", worlds=Evil())
    for command in (["ledger", str(tmp_path / "run")], ["occupancy", str(tmp_path / "run")]):
        main(command)
        out = capsys.readouterr()
        assert out.out
        assert clean(out.out + out.err), command
    assert main(["collect", "--recipe", EVIL, "--out", str(tmp_path / EVIL)]) == 2
    assert main(["ledger", str(tmp_path / f"no such run {EVIL}")]) == 2
    assert clean(capsys.readouterr().err)


def test_traces_are_shown_with_their_escapes_visible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from families import codec

    codec("chatml").tokenizer.save_pretrained(tmp_path / "tokenizer")

    async def teacher(ask: Ask) -> Answer:
        return replace(await expert(ask), text=f"forward \x1b[2J\x07 {ask.t} [/bold]")

    run_of(tmp_path / "run", RECIPE, teacher=teacher, tasks="4")
    assert main(["traces", "show", str(tmp_path / "run"), "--tokenizer", str(tmp_path / "tokenizer")]) == 0
    out = capsys.readouterr().out
    assert clean(out)
    assert "\\x1b[2J" in out
    assert "[/bold]" in out
