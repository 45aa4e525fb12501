"""Pages and comparisons of damaged folders and hostile names: one line, a whole page, or what is left out."""

from __future__ import annotations

import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from toy_runs import run_of

from analysis.cli import main
from analysis.compare.paired import compare
from occupancy.record.drafts import whole_file, write_whole
from occupancy.record.drawing import panels, save
from occupancy.record.errors import InputError
from occupancy.record.pages import write
from occupancy.record.recipe import preset
from occupancy.record.show import printable

TOY = ["--env", "toy_world:open_corridors", "--attempts", "1"]
ARM = {"arm": "a", "budget": 1, "predicted": {"pass_at_1": 0.5, "low": 0.1, "high": 0.9}, "pass_at_1": 0.5}

PRIMARY = {"said": "holds", "measured": {"difference": 0.1, "se": "x"}, "predicted": {"a": "a", "b": "b"}}


def evaluated(folder: Path, tasks: int) -> Path:
    assert main(["evaluate", *TOY, "--policy", "drunk", "--tasks", str(tasks), "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, [], {}, {"said": 1, "arms": []}, {"said": "x", "arms": 5}, {"said": "x", "arms": [{}]}),
        {"said": "x", "arms": [ARM | {"budget": 1e26, "se": 0.1}]},
        {"said": "x", "arms": [ARM | {"se": float("nan")}]},
        *({"said": "x", "arms": [], "target": 1, "regret": {"1": {}}, "primary": p} for p in (5, PRIMARY)),
        *({"said": "x", "arms": [], "target": 1, "regret": r, "primary": PRIMARY} for r in (5, {"1": 5})),
    ],
)
def test_a_damaged_verdict_is_one_line(
    value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(value), "utf-8")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), "verdict.json" in said) == (1, True)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "log",
    [
        *(
            b"\xff",
            b"5\n",
            b"[" * 200_000,
            b'{"loss": 1}\n',
            b'{"loss": "x", "step": 1}\n',
            b'{"loss": 1, "st',
        ),
        *(b'{"loss": NaN, "step": 1}\n', b'{"loss": 1, "step": []}\n'),
        *(b'{"loss": 1, "step": 1}\n{"held_out": ' + held + b"}\n" for held in (b'"x"', b"{}", b"[]")),
    ],
)
def test_a_damaged_log_is_told_as_left_out(
    log: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_bytes(log)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    assert "left out: losses: " in capsys.readouterr().out


def test_names_of_folders_are_text_in_figures_pages_and_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = evaluated(Path("a$\\frac$<b>\x1b[31m\n{{7}}"), 2)
    other = evaluated(Path("other"), 2)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Glyph")
        assert main(["report", str(folder), str(other), "--out", str(tmp_path / "r.html")]) == 0
    out = capsys.readouterr()
    assert printable(out.out + out.err) == out.out + out.err
    page = (tmp_path / "r.html").read_text("utf-8")
    assert ("<b>" in page, "{{7}}" in page) == (False, True)
    assert printable("\ud800\udcff") == "\\ud800\\udcff"


def test_a_page_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = write(tmp_path / "page.html", "<!DOCTYPE html>before \ud800")
    assert page.read_text("utf-8") == "<!DOCTYPE html>before ?"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["occupancy.record.drafts"], "sync_one", full)
    with pytest.raises(OSError, match="No space"):
        write(page, "<!doctype html>after")
    assert page.read_text("utf-8") == "<!DOCTYPE html>before ?"
    for name in ("", "no/such.html", str(tmp_path)):
        with pytest.raises(InputError, match="HTML file"):
            write(Path(name), "x")


def test_two_commands_write_a_file_one_after_the_other(tmp_path: Path) -> None:
    file, draft = tmp_path / "page.html", tmp_path / ".page.html.draft"
    draft.write_text("what a kill left")
    with ThreadPoolExecutor(1) as other:
        with whole_file(file) as own:
            assert (own, own.read_text()) == (draft, "")
            own.write_text("half")
            second = other.submit(write_whole, file, "second")
            with pytest.raises(TimeoutError):
                second.result(0.2)
            own.write_text("first")
        second.result()
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("second", [file])


def test_a_figure_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, _ = panels()
    file = save(figure, tmp_path / "figure.pdf")
    before = file.read_bytes()

    def full(place: Path, **_: object) -> None:
        place.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError, match="No space"):
        save(figure, file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_evaluations_are_given_once_and_tasks_of_one_alone_are_told(tmp_path: Path) -> None:
    few, more = evaluated(tmp_path / "few", 2), evaluated(tmp_path / "more", 5)
    with pytest.raises(InputError, match="given twice, in a and b"):
        compare({"a": few, "b": few})
    with pytest.raises(InputError, match="given twice, in a and a"):
        compare({"a": [few, tmp_path / "more" / ".." / "few"], "b": more})
    said = compare({"few": few, "more": more}).cautions
    assert (
        "more against few is over the 2 tasks of both: 0 tasks of few alone and 3 of more alone are left out."
        in said
    )


@pytest.mark.parametrize("value", [None, {}, [1], float("nan")])
def test_an_environment_that_is_no_text_is_one_line_of_every_command(
    value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run", preset("op-short", K=3, n=1, T_max=12), tasks="2").folder
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps(info | {"environment": value}), "utf-8")
    out = str(tmp_path / "out")
    for command in (
        ["compare", str(run), str(run)],
        ["view", str(run), "--out", out],
        ["publish", str(run), "--out", out, "--license", "cc-by-4.0"],
        ["report", str(run), "--out", out],
    ):
        capsys.readouterr()
        assert main(command) == 2, command
        assert capsys.readouterr().err.count("\n") == 1
    assert not Path(out).exists()
    (run / "run.json").write_text(json.dumps(info | {"note": float("inf")}), "utf-8")
    assert main(["view", str(run), "--out", out]) == 0
