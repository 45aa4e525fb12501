"""Whatever is given wrong is one line on standard error: what was given, what was expected, what to do."""

from __future__ import annotations

import argparse
import io
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.cli import main, parser
from occupancy.record.show import Parser, add_json, command_line, exit_code, show

TOY = ["--env", "toy_world:open_corridors", "--student", "drunk", "--tasks", "4", "--set", "K=1"]
MODULE = """
async def student(ask): ...
def text(): return "no policy"
def late(): raise KeyError("x")
def worlds(*, workers, size: int = 3): return object()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a user's modules, which is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    (tmp_path / "users_module.py").write_text(MODULE, "utf-8")
    (tmp_path / "users_broken.py").write_text("1 / 0", "utf-8")
    (tmp_path / "file").write_bytes(b"\xff")
    yield tmp_path
    for name in ("users_module", "users_broken"):
        sys.modules.pop(name, None)


SERVED = ["--student", "toy_world:drunk", "--teacher", "toy_world:expert", "--port", "0", "--tasks", "1"]
RENDERED = ["--tokenizer", "t", "--row-tokens", "9"]


def collect(*more: str) -> list[str]:
    return ["collect", *TOY, "--teacher", "expert", "--out", "run", *more]


WRONG = [
    (collect("--set", "T_max=abc"), 2, "T_max='abc'"),
    (collect("--set", "T_max=0"), 2, "T_max='0': expected a whole number"),
    (collect("--set", "T_max=13"), 2, "at most 12 turns"),
    (collect("--set", "switch=3"), 2, "switch='3'"),
    (collect("--set", "switch=weights"), 2, "needs --switch-weights"),
    (collect("--set", "switch=teacher"), 2, "--teacher expert only acts"),
    (collect("--set", "name="), 2, "name=''"),
    (collect("--set", "teacher=foo"), 2, "with --teacher alone"),
    (collect("--budget", "inf"), 2, "--budget: 'inf': expected a number above 0"),
    (collect("--budget", "nan"), 2, "--budget: 'nan'"),
    (["spend", "nosuch.toml", "--out", "z"], 2, "nosuch.toml cannot be read: there is no such file"),
    (collect("--turn-tokens", "0"), 2, "--turn-tokens: '0': expected a whole number of at least 1"),
    (collect("--workers", "0"), 2, "--workers: '0'"),
    (collect("--ray", "-2"), 2, "--ray: '-2'"),
    (collect("--part", "demonstrations"), 2, "--part without --plan changes nothing"),
    (collect("--like", "pilot"), 2, "--like without --dry-run changes nothing"),
    (collect("--handback", "0,1"), 2, "--handback without --pilot changes nothing"),
    (collect("--replicates", "9"), 2, "--replicates without --pilot changes nothing"),
    (collect("--demo-tasks", "1"), 2, "--demo-tasks without --pilot changes nothing"),
    (collect("--switch-prompt", "file"), 2, "no teacher is asked for t' by op-short"),
    (collect("--axis", "training"), 2, "--axis training without --budget limits nothing"),
    (["serve", "run", "--teacher", "toy_world:expert", "--axis", "money"], 2, "without --budget limits"),
    (collect("--student", "r\udcff"), 2, "'r\\udcff' is no UTF-8 text"),
    (["ledger", "r\udcff"], 2, "'r\\udcff' is no UTF-8 text"),
    (collect("--end-on", "ok"), 2, "other than ok"),
    (collect("--recipe", "file"), 2, "--recipe file cannot be read"),
    (collect("--env-set", "foo=9"), 2, "no setting 'foo'"),
    (collect("--env-set", "name=9"), 2, "no setting 'name'"),
    (collect("--env-set", "workers=x"), 2, "workers='x': expected a whole number"),
    (collect("--env", "os:getcwd"), 2, "os:getcwd"),
    (collect("--env", "users_module:worlds"), 2, "lacks name, version"),
    (collect("--env", "users_module:worlds", "--env-set", "size=x"), 2, "size='x': expected a whole number"),
    (collect("--student", "json:dumps"), 2, "missing 1 required positional argument"),
    (collect("--student", "os:environ"), 2, "expected a function"),
    (collect("--student", "users_module:text"), 2, "returned 'no policy'"),
    (collect("--student", "users_module:late"), 2, "raised KeyError: 'x' (users_module.py, line 4)"),
    (
        collect("--student", "users_broken:student"),
        2,
        "by zero (users_broken.py, line 1)",
    ),
    (collect("--student", "users_none:student"), 2, "expected package.module:function"),
    (
        ["cut", "file", "--recipe", "oec", "--out", "c"],
        2,
        "a file: expected a folder; conversations become one",
    ),
    (["export", "run", "--format", "atiff", "--out", "c"], 2, "'atiff', did you mean 'atif'?"),
    (collect("--out", "file"), 2, "File exists: 'file': name another file or folder"),
    (["demo", "--out", "file"], 2, "File exists: 'file'"),
    (["serve", "file", *SERVED], 2, "File exists: 'file'"),
    (["serve", "run", *SERVED, "--rewards", "verifiers:file"], 2, "--rewards verifiers:file: expected"),
    (["traces", "render", "run", *RENDERED, "--out", "file"], 2, "file exists and is not a Parquet file"),
    (["view", "run", "--out", "/dev/null"], 2, "/dev/null"),
]


@pytest.mark.parametrize(("given", "code", "told"), WRONG, ids=[" ".join(w[0][-2:]) for w in WRONG])
def test_wrong_input_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], code: int, told: str
) -> None:
    assert main(given) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"fewsteps {given[0]}: ")
    assert told in printed.err
    assert not (folder / "run").exists()


OUTPUTS = [
    "demo --out",
    "doctor --make-image",
    "collect --out",
    "evaluate --env toy_world:open_corridors --tasks 1 --policy drunk --out",
    "serve",
    "plan run --budget 1 --out",
    "plan run --budget 1 --page",
    "cut run --recipe op-short --out",
    "spend plan.toml --out",
    "study study.toml --out",
    "train run --base b --preset alfworld --out",
    "report run --out",
    "report run --out r.html --figures",
    "view run --out",
    "traces render run --tokenizer t --row-tokens 9 --out",
    "export run --format atif --out",
    "publish run --license mit --out",
    "import chat.jsonl --out",
    "occupancy run --figure",
    "simulate --world short --out",
    "simulate validate --out",
]


@pytest.mark.parametrize("place", ["file/x", "file/x/y", "/proc/x", "/proc/x/y", "x" * 300])
@pytest.mark.parametrize("command", OUTPUTS)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, place: str
) -> None:
    assert main([*command.split(), place]) == 2
    said = capsys.readouterr().err
    assert f"{place} cannot be written" in said
    assert said.count("\n") == 1


def values_of(command: argparse.ArgumentParser, *names: str) -> Iterator[list[str]]:
    """Each argument of each command that takes a value, with an empty one."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from values_of(below, *names, name)
        elif action.nargs != 0:
            yield [*names, *action.option_strings[:1], ""]


def test_an_empty_text_is_no_value_of_any_argument(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every, top = list(values_of(parser())), parser()
    assert len(every) > 180
    before = sorted(folder.iterdir())
    for given in every:
        assert command_line(top, given) == 2, given
        said = capsys.readouterr().err
        assert "is empty: expected a name or a value" in said, given
        assert said.count("\n") == 1, given
    assert main(["view", "run", "--out= "]) == 2
    assert sorted(folder.iterdir()) == before


def test_a_command_that_is_nearly_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pln"]) == 2
    assert "invalid choice: 'pln', did you mean 'plan'?" in capsys.readouterr().err
    assert main(["zzzzzz"]) == 2
    assert "choose from" in capsys.readouterr().err


def test_an_option_that_there_is_not_is_named_before_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "pilot", "--bugdet", "3"]) == 2
    said = "there is no option --bugdet, did you mean --budget?; see fewsteps plan --help\n"
    assert capsys.readouterr().err == f"fewsteps plan: {said}"
    assert main(["traces", "show", "run", "--zzzz=1"]) == 2
    assert "fewsteps traces show: there is no option --zzzz; see" in capsys.readouterr().err
    assert main(["plan", "nosuch", "--bud", "3"]) == 2, "the beginning of a name is enough"
    assert "nosuch is no run folder" in capsys.readouterr().err


def test_a_command_that_is_stopped_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    assert exit_code("fewsteps collect", stopped) == 130
    said = "stopped; what is finished is kept: run the same command again"
    assert capsys.readouterr().err == f"fewsteps collect: {said}\n"


def test_a_users_module_in_the_current_folder_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "from toy_world import drunk, open_corridors as worlds\ndef student(): return drunk\n"
    (folder / "users_module.py").write_text(source, "utf-8")
    given = collect("--env", "users_module:worlds", "--student", "users_module:student")
    for _ in range(2):
        assert main(given) == 0
        printed = capsys.readouterr()
        assert printed.err == "", "no bar is left on a file, neither of a run nor of nothing"
        assert "capped" in printed.out
        assert "success: of episodes with a reward" in printed.out


def test_a_name_with_markup_is_printed_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(collect("--out", "[/x]")) == 0
    assert "[/x]" in capsys.readouterr().out
    assert main(["ledger", "[/x]"]) == 0
    assert "[/x]" in capsys.readouterr().out


def test_a_database_that_fails_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("agentloop.run.summary.summarise", full)
    assert main(collect()) == 1
    assert capsys.readouterr().err.startswith("fewsteps collect: database or disk is full: see to")


def test_what_is_printed_needs_no_open_stream_and_no_letters_of_its_encoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parser = Parser(prog="fewsteps")
    add_json(parser)
    parser.set_defaults(handler=lambda given: show(given, {"said": "±"}, "3 ± 1 points of 測試"))
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    for given in ([], ["--json"], ["--no-such"]):
        assert command_line(parser, given) == (2 if "--no-such" in given else 0)
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert command_line(parser, []) == 0
    plain.flush()
    assert plain.buffer.getvalue() == b"3 \\xb1 1 points of \\u6e2c\\u8a66\n"  # type: ignore[attr-defined]


def test_a_working_folder_that_was_removed_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert main(["plan", "RUN", "--budget", "1"]) == 2
    assert capsys.readouterr().err.startswith("fewsteps: the working folder was removed")
