"""Every numeric option of every command refuses what is no number in its range: one line, at once, nothing
written."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from toy_runs import run_of

from agentloop.environments.hotpotqa.__main__ import main as hotpotqa
from agentloop.environments.hotpotqa.__main__ import parser as hotpotqa_parser
from analysis.cli import main, parser
from occupancy.record.recipe import preset

NONSENSE = ("nan", "inf", "-inf", "-1", "1e26", str(10**26), "", " ", "abc", "1,2", "[1]", "0x10")
SEVERAL = {("simulate", name) for name in ("--budgets", "--r", "--K", "--recipes")}
"""They take several values; `WITHIN` has them."""
TOY = ("--env", "toy_world:open_corridors", "--tasks", "2", "--out", "run")
COLLECT = ("collect", "--student", "drunk", "--teacher", "expert", *TOY)
WORLD = ("simulate", "--world", "short", "--seeds", "1", "--out", "out")
WITHIN = [
    *((COLLECT, f"--set={name}=") for name in ("K", "n", "T_max", "success_at")),
    (COLLECT, "--handback="),
    (COLLECT, "--env-set=workers="),
    (("evaluate", "--policy", "drunk", *TOY), "--env-set=workers="),
    *((WORLD, f"--{name}=") for name in ("K", "r", "budgets")),
    (("ledger", "run"), "--provider=output="),
    (("cut", "PILOT", "--recipe", "op-short", "--budget", "100", "--out", "cell"), "--K="),
    *((("plan", "PILOT", "--budget", "100"), f"--what-if={name}=") for name in ("T_max", "evaluation")),
    (
        ("evaluate", "--env", "toy_world:open_corridors", "--policy", "drunk", "--out", "run"),
        "--tasks=train:",
    ),
    *((COLLECT, f"--teacher=openai:m@http://127.0.0.1:9/v1,{name}=") for name in ("max_tokens", "timeout_s")),
]
"""Numbers within a text: the command, and what is before the number. PILOT is a run folder."""
_TEXTS = (
    "--already --author-of --axis --base --baseline --buyer --cache --classes "
    "--columns --context --corpus --end-on --env --env-set --environment --figure --figures --handback "
    "--harness --host --like --status --rewards --K --key-env --kind --license --make-image --model "
    "--n-of-task --name --need --organization --out --page --part --plan --play --policy "
    "--preset --prices --provider --recipe --reward --set --stop-after --student "
    "--switch-prompt --switch-weights --task --tasks --teacher --title --tokenizer "
    "--trace --track --train --trainer --url --what-if --world --worlds "
)
TEXTS = set(_TEXTS.split())
"""Options whose value is a name, a file or a text. A number within one of them is tried in WITHIN."""


def options(found: argparse.ArgumentParser, *path: str, texts: bool = False) -> Iterator[tuple[str, str]]:
    """Command and option, for every option whose text is read as a number; with `texts` for the others."""
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from options(inner, *path, name, texts=texts)
        elif not action.option_strings or action.nargs == 0 or action.choices is not None:
            continue
        elif (action.type in (None, Path)) == texts:
            yield " ".join(path), action.option_strings[0]


NUMERIC = sorted({*options(parser())} - SEVERAL)
OF_HOTPOTQA = sorted(options(hotpotqa_parser()))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str], command: Callable[..., int] = main
) -> None:
    """The command ends at once with exit code 2 and one line that names the option."""
    began = time.process_time()  # what others do on the machine does not count
    code = command(arguments)
    taken = time.process_time() - began
    out = capsys.readouterr()
    assert (code, out.out) == (2, ""), arguments
    assert out.err.count("\n") == 1, out.err
    assert option in out.err
    assert taken < 2, f"{taken:.1f} s: {arguments}"


def test_the_table_holds_every_command_with_numbers() -> None:
    assert len(NUMERIC) >= 55
    assert len(OF_HOTPOTQA) == 3
    with_numbers = {command.split()[0] for command, _ in NUMERIC}
    assert with_numbers >= {"collect", "cut", "evaluate", "import", "occupancy", "plan", "simulate", "traces"}


def test_every_option_with_a_text_is_known() -> None:
    found = {name for top in (parser(), hotpotqa_parser()) for _, name in options(top, texts=True)}
    new = found - TEXTS
    assert not new, f"add these to TEXTS, and where there is a number in the text to WITHIN: {sorted(new)}"


@pytest.mark.parametrize(("command", "option"), NUMERIC)
def test_a_number_that_is_none_is_one_line_and_nothing_is_written(
    command: str, option: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in NONSENSE:
        refused([*command.split(), f"{option}={text}"], option, capsys)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(("command", "option"), OF_HOTPOTQA)
def test_a_number_of_a_module_with_commands_of_its_own_too(
    command: str, option: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in NONSENSE:
        refused([*command.split(), f"{option}={text}"], option, capsys, hotpotqa)
    assert not list(elsewhere.iterdir())


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> str:
    recipe = preset("op-short", K="inf", n=2, T_max=12)
    run = run_of(tmp_path_factory.mktemp("numbers") / "pilot", recipe, pilot=True, handback=(0, 1))
    return str(run.folder)


@pytest.mark.parametrize(("command", "before"), WITHIN)
def test_a_number_within_a_text_too(
    command: tuple[str, ...], before: str, pilot: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [pilot if word == "PILOT" else word for word in command]
    name = before.removesuffix("=").rpartition("=")[2].rpartition(",")[2].removesuffix(":").lstrip("-")
    for text in ("nan", "-inf", "-1", "1e26", "abc", ""):
        refused([*given, f"{before}{text}"], name, capsys)
    assert not list(elsewhere.iterdir())
