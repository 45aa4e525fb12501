"""What several policies of one `evaluate` are called, where their evaluations are, and what is printed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import Corridor, Corridors, drunk

from agentloop.commands.policy_names import LONGEST, folders_of, names_of, split_name
from agentloop.run.evaluate import Evaluation, evaluate
from analysis.cli import main
from occupancy.record.distinct import differences
from occupancy.record.errors import InputError
from occupancy.runs import open_run

OPTIONS = "max_tokens=160,logprobs=false,cache_gib=8,at_once=128"
WORDS = st.lists(st.sampled_from(["a", "A", "b", "epoch-5", "é", "x" * 40]), min_size=1, max_size=3)
POLICIES = st.builds(
    lambda kind, words, t: f"{kind}:{'/'.join(words)}{t}",
    st.sampled_from(["vllm", "openai"]),
    WORDS,
    st.sampled_from(["", ",t=0", ",t=1"]),
)


def named(*policies: str, given: tuple[str, ...] = ()) -> list[str]:
    return names_of(policies, given or ("",) * len(policies))


@pytest.mark.parametrize(
    ("policies", "names"),
    [
        ((f"vllm:s/bc-s0/epoch-005,{OPTIONS}", f"vllm:s/op-s0/epoch-005,{OPTIONS}"), ["bc-s0", "op-s0"]),
        ((f"vllm:Qwen/Qwen3,{OPTIONS}", f"vllm:s/bc,{OPTIONS}"), ["Qwen-Qwen3", "s-bc"]),
        (("openai:m,temperature=0", "openai:m,temperature=1"), ["temperature=0", "temperature=1"]),
        (("openai:m,top_p=1", "openai:m,temperature=1,top_p=1"), ["m", "m-temperature=1"]),
        (("vllm:m", "transformers:m"), ["vllm", "transformers"]),
        (("vllm:m", "vllm:m/epoch-1"), ["m", "m-epoch-1"]),
        (("s/1,t=1", "s/1,t=2", "s/2,t=1", "s/2,t=2"), ["1-t=1", "1-t=2", "2-t=1", "2-t=2"]),
        ((f"vllm:m,{OPTIONS}",), [f"vllm:m,{OPTIONS}"]),
    ],
)
def test_policies_are_named_after_what_they_differ_in(policies: tuple[str, ...], names: list[str]) -> None:
    assert named(*policies) == names


@given(st.lists(POLICIES, min_size=2, max_size=5, unique=True))
def test_names_are_unique_on_every_disk_and_the_same_in_every_order(policies: list[str]) -> None:
    names = named(*policies)
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert 0 < len(name) <= LONGEST
        assert "/" not in name
        assert name[0] not in ".-"
    assert dict(zip(policies, names, strict=True)) == dict(
        zip(reversed(policies), named(*reversed(policies)), strict=True)
    )


def test_a_user_names_a_policy() -> None:
    assert split_name("bc=vllm:s/bc,top_p=1") == ("bc", "vllm:s/bc,top_p=1")
    for alone in ("scripted:lapse=.1", "vllm:s/lr=1e-5", "openai:m@http://h/v1,top_p=1", "expert"):
        assert split_name(alone) == ("", alone)
    assert named("vllm:a", "vllm:b", given=("base", "")) == ["base", "b"]
    assert named("vllm:a", given=("base",)) == ["base"]
    base, other = named("vllm:a", "vllm:B", given=("b", ""))
    assert (base, other[:2]) == ("b", "B-"), "a disk may take b and B for the same"
    with pytest.raises(InputError, match="vllm:a is given 2 times"):
        named("vllm:a", "vllm:a", given=("x", "y"))
    with pytest.raises(InputError, match="x is given 2 times"):
        named("vllm:a", "vllm:b", given=("x", "X"))


def test_texts_that_share_nothing_are_as_they_were() -> None:
    assert differences(["/runs/a", "b"]) == ["/runs/a", "b"]
    assert differences(["/runs/a", "/runs/b"]) == ["a", "b"]
    assert differences(["x", "x"]) == ["x", "x"]
    assert differences([]) == []


def command(out: Path, *policies: str, attempts: int = 2) -> list[str]:
    chosen = [text for policy in policies for text in ("--policy", policy)]
    world = ["--env", "toy_world:open_corridors", "--tasks", "4", "--attempts", str(attempts)]
    return ["evaluate", *world, *chosen, "--out", str(out)]


def begun(out: Path, name: str, policy: str, *, attempts: int = 2) -> Path:
    settings = Evaluation(policy, "4", attempts)
    return asyncio.run(evaluate(out / name, settings, environments=Corridors(), policy=drunk)).folder


def test_what_was_begun_under_another_name_goes_on_there_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path, "as-earlier-versions-named-it", "drunk")
    assert main(command(tmp_path, "drunk", "good=expert")) == 0
    told = capsys.readouterr().out
    assert "drunk was begun in" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["as-earlier-versions-named-it", "good"]
    assert main([*command(tmp_path, "drunk", "expert"), "--json"]) == 0
    both = json.loads(capsys.readouterr().out)["evaluations"]
    assert [(one["name"], Path(one["folder"]).name) for one in both] == [
        ("drunk", "as-earlier-versions-named-it"),
        ("expert", "good"),
    ]
    assert open_run(tmp_path / "good").info["student"] == "expert", "a name is no part of what is resumed"


def test_another_policys_folder_is_left_alone_and_other_settings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path, "a", "vllm:s/a,top_p=1")
    asked = [Evaluation(policy, "4", 2) for policy in ("vllm:r/a", "vllm:r/b")]
    a, b = folders_of(tmp_path, ["a", "b"], asked)
    assert (a.name.rpartition("-")[0], b.name) == ("vllm-r-a", "b")
    begun(tmp_path, "drunk", "drunk", attempts=3)
    assert main(command(tmp_path, "drunk", "expert")) == 2
    assert "attempts=3" in capsys.readouterr().err


def test_a_damaged_evaluation_beside_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It could be the one that is asked for, so it is not left aside."""
    (begun(tmp_path, "x", "drunk") / "run.json").write_text("{")
    assert main(command(tmp_path, "drunk", "expert")) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "x") in line


class Falling(Corridors):
    """The first corridor fails in later attempts: tasks have unequal numbers of scored attempts."""

    def change(self, corridor: Corridor) -> None:
        corridor.fails_at = 1 if corridor.length == 2 and self.opened > 1 else 0


def open_falling(*, workers: int = 2) -> Falling:
    return Falling(workers=workers)


@pytest.mark.parametrize("columns", [80, 60])
def test_one_table_has_a_row_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = "two-pure-bc-40000-s0-epoch-005", "two-op-short-40000-s0"
    assert main(command(tmp_path, f"{names[0]}=drunk", f"{names[1]}=expert")) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= columns
    assert last.startswith("Differences, paired by task: fewsteps compare "), "a command that can be copied"
    for name, rate in zip(names, ("0.", "1.0000"), strict=True):
        (row,) = [line for line in shown if name in line and ("success" in line or "│" in line)]
        assert columns == 60 or rate in row
    assert "mean over tasks" in " ".join(shown)


def test_scored_attempts_have_a_row_where_they_are_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(tmp_path / "run", "expert", attempts=3)
    given[2] = f"{__name__}:open_falling"
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert " scored" in shown
    assert "scored: attempts with a reward" in " ".join(shown.split())
    assert main(command(tmp_path / "whole", "expert")) == 0
    assert "scored:" not in capsys.readouterr().out
