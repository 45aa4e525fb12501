"""The command `python -m benchmarks`: every script is listed, and its main's parameters are its options."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from agentloop.entry import PACKAGES
from benchmarks.__main__ import HERE, main, read, scripts


def test_every_script_is_listed_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"estimators", "planner_prior.judge", "studies.figures"}
    assert all(meaning for _, meaning in scripts())
    assert main(["nothing"]) == 2


def test_documented_benchmarks_exist_and_have_the_options_that_are_shown() -> None:
    names = {name for name, _ in scripts()}
    pages = [*HERE.rglob("*.md"), *(HERE.parent / "docs").glob("*.md")]
    broken = r"\\\n|(?<=[^`\n])\n(?=[^`\n]+`)"  # A line that goes on, and code within a sentence.
    texts = [re.sub(broken, " ", page.read_text("utf-8")) for page in pages]
    called = [words for text in texts for words in re.findall(r"-m benchmarks ([a-z][^`\n]*)", text)]
    assert called
    for command in called:
        name, _, rest = command.partition(" ")
        name = name.rstrip(".,:;)").partition("|")[0]
        assert name in names, command
        tree = ast.parse((HERE / f"{name.replace('.', '/')}.py").read_text("utf-8"))
        (told,) = [node.args for node in tree.body if getattr(node, "name", "") == "main"]
        options = {"--" + a.arg.replace("_", "-") for a in told.args + told.kwonlyargs}
        assert set(re.findall(r"--[a-z][\w-]*", rest)) <= options, command


def test_a_script_named_with_a_dot_says_what_to_type() -> None:
    """It did nothing and ended with 0."""
    started = [sys.executable, "-m", "benchmarks.planner_prior.judge", "--help"]
    done = subprocess.run(started, cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.endswith("type python -m benchmarks planner_prior.judge\n")


def test_a_module_of_the_packages_with_a_main_is_a_command() -> None:
    """`python -m` of one without the last two lines would do nothing and end with 0."""
    files = [file for package in PACKAGES for file in (HERE.parent / package).rglob("*.py")]
    texts = {file: file.read_text("utf-8") for file in files}
    mains = {file for file, text in texts.items() if re.search(r"^(async )?def main\(", text, re.M)}
    assert len(mains) > 4
    assert [file for file in mains if "\nif __name__ == " not in texts[file]] == []


def test_parameters_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("script", "What it does.")

    def run(
        *,
        data: Path,
        mode: Literal["a", "b"],
        turns: float = 1e7,
        case: list[str] = [],  # noqa: B006
        ours: bool = False,
    ) -> None: ...

    module.main = run  # type: ignore[attr-defined]
    given = read(module, ["--data", "x", "--mode", "b", "--case", "1", "2", "--ours"])
    assert given == {"data": Path("x"), "mode": "b", "turns": 1e7, "case": ["1", "2"], "ours": True}
    with pytest.raises(SystemExit):
        read(module, ["--data", "x", "--mode", "c"])
    assert "invalid choice: 'c'" in capsys.readouterr().err
