"""docs/own_environment.md runs as it stands, and `fewsteps check` names what is missing elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_world import Corridors

from agentloop.check import check_environments
from analysis.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "own_environment.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CODE = "\n".join(BLOCKS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "guess.py").write_text(CODE, "utf-8")
    yield tmp_path
    sys.modules.pop("guess", None)


def checked(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, dict[str, str]]:
    """Exit code, and what was said of everything that is not in order."""
    code = main(["check", *given, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == (0 if all(f["ok"] for f in findings) else 1)
    return code, {f["what"]: f["said"] for f in findings if not f["ok"]}


def test_the_page_is_short_and_its_environment_can_be_checked_and_collected_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 32
    for name in ("guess:Games", "guess:student"):
        assert checked(capsys, name) == (0, {})
    assert checked(capsys, "guess:Games", "--policy", "guess:student") == (0, {})
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith("    fewsteps ")]
    for command in commands:
        assert main(command) == 0, command
    assert "MISSING" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "what", "told"),
    [
        (
            ("    async def close(self):\n        pass\n", ""),
            "members",
            "Games lacks close: see",
        ),
        (("T_max, capacity, policies = ", "T_max, capacity, other = "), "members", "Games lacks policies"),
        (('"guess", "guess 1"', '"guess", ""'), "members", "version is ''"),
        (('"guess", "guess 1"', '"guess", "1.0"'), "members", "version is '1.0': expected"),
        (("Replay.EXACT, 7", "Replay.EXACT, 0"), "members", "T_max is 0"),
        (("Replay.EXACT", "'exact?'"), "members", "expected a Replay"),
        (('8, ("expert",)', '8, ("expert")'), "members", "expected a tuple of names"),
        (("for n in range(1,", "for n in (1, 1) or range(1,"), "tasks", "names a task twice"),
        (("for n in range(1,", "for n in random.sample(range(99), 5) or range(1,"), "tasks", "second time"),
        (("int(count or 100)", "1 // 0"), "tasks", "ZeroDivisionError"),
        (('if spec == "expert" else None', ""), "policies", "expected None"),
        (('8, ("expert",)', '8, ("expert", "other")'), "policies", "policy('other') is None"),
        (("def prompt(", "def other("), "reset and prompt", "Game lacks prompt"),
        (('"environment")]', '"me")]'), "reset and prompt", "author 'me'"),
        (("reward=1.0", "reward=2.0"), "play and reward", "expected R in [0, 1]"),
        (("done=True, reward=1.0", "done=True"), "play and reward", "expected R in [0, 1]"),
        (('Reply("Right."', 'Reply(f"{random.random()}"'), "replay from the same seed", "at turn 1"),
        (('Reply("Guess', 'Reply(f"{random.random()}'), "replay from the same seed", "at turn 0"),
        (("if not text.strip().isascii() or", "if False and"), "turns that make no sense", "line 15"),
    ],
)
def test_what_is_missing_is_named_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], what: str, told: str
) -> None:
    assert CODE.count(change[0]) == 1
    (folder / "guess.py").write_text(CODE.replace(*change), "utf-8")
    code, wrong = checked(capsys, "guess:Games")
    assert (code, list(wrong)) == (1, [what])
    assert told in wrong[what]


POLICY = """
from agentloop.types import Answer, Traits, Usage
class Model:
    traits = Traits(gives=frozenset({"text"}))
    async def __call__(self, ask): return Answer("3", Usage(2, "words"))
def model(): return Model()
"""


@pytest.mark.parametrize(
    ("change", "what", "told"),
    [
        (('{"text"}', '{"words"}'), "traits", "gives has words"),
        (('{"text"}', '{"token_ids"}'), "tokens", "traits.gives has token_ids"),
        (('Usage(2, "words")', 'Usage(0, "words")'), "tokens", "usage.output is 0"),
        (('frozenset({"text"})', 'frozenset({"text"}), most_output=1'), "tokens", "most_output is 1"),
        (('Answer("3", ', '("3", '), "two answers", "returned a tuple"),
        (('return Answer("3", ', 'return ask.nothing("3", '), "two answers", "guess.py, line 5"),
    ],
)
def test_a_policy_that_breaks_a_promise_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], what: str, told: str
) -> None:
    (folder / "guess.py").write_text(POLICY, "utf-8")
    sys.modules.pop("guess", None)
    assert checked(capsys, "guess:model") == (0, {})
    sys.modules.pop("guess", None)
    (folder / "guess.py").write_text(POLICY.replace(*change), "utf-8")
    code, wrong = checked(capsys, "guess:model")
    assert (code, list(wrong)) == (1, [what])
    assert told in wrong[what]


def test_an_environment_is_closed_when_its_check_fails() -> None:
    worlds = Corridors(fails_at=1)
    findings = asyncio.run(check_environments(worlds, "2"))
    assert not findings[-1].ok
    assert worlds.closed
