"""Reports: the decision first, all evidence that the folders have, and pages that everybody can read."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Elements, dom
from toy_runs import run_of
from toy_world import Corridors, drunk, expert

from agentloop.run.evaluate import Evaluation, evaluate
from analysis.cli import main
from analysis.curves.arms import Arm
from analysis.page import plan_page
from analysis.plan.planner import plan
from analysis.plan.read import read_pilot
from analysis.report import frames
from analysis.report.gather import report_of
from analysis.report.page import report
from analysis.spend.state import charged
from analysis.view.page import view
from occupancy import occupancy
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

PILOT = Path(__file__).parents[1] / "scripted_pilot"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("report")
    for name, policy in (("drunk", drunk), ("expert", expert)):
        settings = Evaluation(name, "40", 2)
        asyncio.run(evaluate(base / name, settings, environments=Corridors(), policy=policy))
    run_of(base / "run", preset("op-success", n=2, T_max=12))
    training = base / "training"
    training.mkdir()
    entries = [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]
    entries.append({"step": 3, "checkpoint": "epoch-001", "held_out": {"nll": 0.5, "targets": 9}})
    (training / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    study = base / "study"
    study.mkdir()
    arm = {"arm": "op-short K=1", "budget": 1000, "pass_at_1": 0.5, "se": 0.02}
    arm["predicted"] = {"pass_at_1": 0.45, "low": 0.4, "high": 0.6}  # type: ignore[assignment]
    (study / "verdict.json").write_text(json.dumps({"said": "the plan's choice was best", "arms": [arm]}))
    table = "| budget | arm |\n| --- | --- |\n| 1,000 | op-short |"
    (study / "verdict.md").write_text(f"# Study\n\nRegistered.\n\n## Regret\n\n{table}\n\n- `late`\n")
    return {path.name: path for path in base.iterdir()}


@pytest.fixture(scope="module")
def page(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    report([PILOT, *folders.values()], out, budget=100_000, pool=3553)
    return out


def test_the_decision_comes_first_and_then_everything_that_the_folders_hold(page: Path) -> None:
    found = dom(page)
    assert found.find("h2") == ["Decision", "Evidence", "Method", "Versions"]
    text = "".join(found.find("main"))
    assert text.index("op-critical") < text.index("Evidence")
    assert "succeeds more often" in text[: text.index("Evidence")]
    assert "the plan's choice was best" in text[: text.index("Evidence")]
    heads = found.find("h3")
    shown = ("hand-backs", "coverage", "by turn", "averaging", "Losses", "spent", "predicted and measured")
    for what in shown:
        assert any(what in head for head in heads), what
    assert "Regret" in found.find("caption")
    assert {"op-short", "late"} <= {*found.find("td"), *found.find("code")}
    assert page.stat().st_size < 2_000_000


def test_folders_that_decide_nothing_say_what_is_missing(folders: dict[str, Path], tmp_path: Path) -> None:
    assert "two evaluations" in report_of([folders["run"]]).decision[0]
    assert "--budget" in report_of([PILOT]).decision[0]
    with pytest.raises(InputError, match="exactly one pilot"):
        report_of([folders["drunk"], folders["expert"]], budget=1000)
    with pytest.raises(DataError, match="no run, evaluation, training, study or purchase"):
        report_of([tmp_path])


def test_a_run_that_is_no_pilot_designs_one(folders: dict[str, Path]) -> None:
    first, *_, command = report_of([folders["run"]], budget=100_000).decision
    assert first.startswith("Buy a pilot first: ")
    assert "fewsteps collect" in command
    assert "Buy no pilot" in report_of([folders["run"]], budget=10).decision[0]


def test_folders_are_called_by_what_tells_them_apart(folders: dict[str, Path]) -> None:
    found = report_of([folders["drunk"], folders["expert"]])
    assert found.comparison is not None
    assert [rate.arm for rate in found.comparison.rates] == ["drunk", "expert"]
    assert [made["folder"] for made in found.versions] == [str(folders["drunk"]), str(folders["expert"])]


def test_coverage_counts_the_context_at_which_a_continuation_begins(folders: dict[str, Path]) -> None:
    run = open_run(folders["run"])
    turns = run.read("turns").to_pandas()
    taught = turns[(turns["kind"] == "continuation") & (turns["author"] == "teacher") & (turns["t"] > 1)]
    sizes = frames.covered(run).groupby("source")["size"].max()
    assert sizes["continuations"] == len(taught)


def test_held_out_losses_are_each_trainings_own(tmp_path: Path) -> None:
    for name, base, last in (("a", 3.0, 1.5), ("b", 9.0, 1.7)):
        (tmp_path / name).mkdir()
        lines: list[dict[str, Any]] = [{"step": 0, "held_out": {"nll": base}}, {"step": 1, "loss": 2.0}]
        lines.append({"step": 1, "held_out": {"nll": last}})
        (tmp_path / name / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = frames.losses({name: tmp_path / name for name in ("a", "b")})
    assert found["held_out"].tolist() == [1.5, 1.7]


def test_what_cannot_be_shown_is_named(folders: dict[str, Path]) -> None:
    empty = folders["training"].parent / "empty"
    empty.mkdir(exist_ok=True)
    (empty / "log.jsonl").write_text("")
    assert report_of([empty]).left_out == ("losses: the logs hold no step",)


def test_every_token_of_the_teacher_has_a_use(folders: dict[str, Path]) -> None:
    run = open_run(folders["run"])
    table = frames.spent({"run": run}).set_index("use")["tokens"]
    turns = run.read("turns").to_pandas()
    taught = turns.loc[turns["author"] == "teacher", "output_tokens"].sum()
    assert table[["trained on", "rejected", "not in a text", "failed or lost"]].sum() == taught
    assert table["trained on"] == sum(run.read("traces")["C_tr"].to_pylist())


def test_hand_backs_are_means_of_rewards() -> None:
    depth, switch = frames.hand_backs(read_pilot(PILOT))
    contexts = read_pilot(PILOT).contexts
    assert depth["value"].iloc[0] == pytest.approx(np.nanmean(contexts.student))
    assert depth["value"].iloc[-1] == pytest.approx(np.nanmean(contexts.teacher))
    assert switch["contexts"].sum() == np.isfinite(contexts.teacher).sum()


def test_occupancies_are_those_of_the_estimator() -> None:
    batch, names = frames.contexts_of(open_run(PILOT))
    table = frames.conventions(batch, names).set_index(["convention", "state"])["probability"]
    law = occupancy(batch, convention="trajectory").probability
    assert [table["trajectory-uniform", name] for name in names] == pytest.approx(law.tolist())
    first = frames.by_turn(batch, names).query("turn == 1").set_index("state")
    assert first.loc["start", "probability"] == first.loc["start", "alive"] == 1


def test_a_context_after_tool_calls_is_named_by_the_tool(tmp_path: Path) -> None:
    def turn(said: str | None, *tools: str) -> dict[str, object]:
        calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in tools]
        return {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}

    turns = [
        turn("Let me look.", "search", "refund"),
        turn(None, "refund"),
        turn("Done."),
        turn("<find>it</find>"),
        turn("Bye."),
    ]
    reply = {"role": "user", "content": "go on"}
    messages = [reply, *(message for one in turns for message in (one, reply))][:-1]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"task_id": "q", "messages": messages}))
    given = [str(tmp_path / "chat.jsonl"), "--author", "student", "--out", str(tmp_path / "run")]
    assert main(["import", *given]) == 0
    names = frames.contexts_of(open_run(tmp_path / "run"))[1]
    assert sorted(names) == ["after <find>", "after Done.", "after refund", "after search", "others", "start"]


def test_the_command_writes_page_and_figures(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, drawn = tmp_path / "r.html", tmp_path / "figures"
    names = [str(folders[name]) for name in ("drunk", "expert", "training")]
    assert main(["report", *names, "--out", str(out), "--figures", str(drawn), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"] == ["Evaluations", "Losses of trainings"]
    assert {file.suffix for file in drawn.iterdir()} == {".pdf", ".png", ".svg"}
    assert main(["report", names[0], "--out", str(tmp_path / "no" / "r.html")]) == 2
    assert "in a folder that exists" in capsys.readouterr().err


@pytest.fixture(scope="module")
def pages(page: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = plan_page(plan(PILOT, budget=50_000), folder / "plan.html")
    return {"report": page, "plan": made, "view": view(PILOT, folder / "view.html")}


@pytest.mark.parametrize("name", ["report", "plan", "view"])
def test_a_page_is_accessible(pages: dict[str, Path], name: str) -> None:
    """Language, one h1 and no level skipped, texts of images, scopes of heads, labels, contrast."""
    found = dom(pages[name])
    wanted = ("html", "img", "th", "input", "main")
    tags = {tag: [a for t, a, _ in found.all if t == tag] for tag in wanted}
    assert tags["html"][0]["lang"] == "en"
    assert len(tags["main"]) == 1
    levels = [int(tag[1]) for tag, _, _ in found.all if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip([0, *levels], levels, strict=False))
    assert all(len(a["alt"] or "") > 20 for a in tags["img"])
    assert all(a.get("scope") for a in tags["th"])
    labels = "".join(found.find("label"))
    assert bool(labels) == bool(tags["input"])
    assert found.find("title")[0]
    check_contrast(found)


def check_contrast(found: Elements) -> None:
    """WCAG AA, 4.5: every colour of text on the background of its rule, else on white and on light grey."""
    (style,) = found.find("style")
    for rule in re.findall(r"\{([^{}]*)\}", style):
        colour = re.search(r"(?<![\w-])color: *(#\w+|white)", rule)
        ground = re.search(r"background(?:-color)?: *(#\w{6}|white)(?=[;\s}]|$)", rule)
        if colour:
            for behind in [ground[1]] if ground else ["#ffffff", "#f7f9fb"]:
                assert _contrast(colour[1], behind) >= 4.5 or colour[1] == "white", (rule, behind)


def _contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    code = "ffffff" if colour == "white" else colour[1:]
    linear = [int(code[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in linear)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_the_plan_on_the_page_is_that_of_the_command_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paid = tmp_path / "bc"
    shutil.copytree(PILOT.parents[1] / "analysis" / "demonstrations", paid)
    how: dict[str, Any] = {"budget": 100_000, "pool": 3553, "already": [paid]}
    shown = report(["analysis/pilot"], tmp_path / "page.html", **how)
    assert shown.plan is not None
    assert shown.plan.to_dict() == plan("analysis/pilot", **how).to_dict()
    for given in ([PILOT], [paid, "--budget", "1e5"]):
        said = ["report", *map(str, given), "--already", str(paid), "--out", str(tmp_path / "page.html")]
        assert main(said) == 2
        assert "--already without a plan" in capsys.readouterr().err


def test_a_purchase_in_rounds_is_reported_with_its_steps_and_what_it_bought(tmp_path: Path) -> None:
    bought = tmp_path / "out" / "first-demos"
    run_of(bought, preset("pure-bc", T_max=12))
    decided = {"arm": Arm("op-success").to_dict(), "clear": False, "pass_at_1": 0.5, "low": 0.4, "high": 0.6}
    steps = {
        "plan": decided | {"price": 0.0, "said": "op-success r=1"},
        "first purchase": {"price": charged(bought), "said": "9 demonstrations"},
    }
    file = tmp_path / "out" / "spend.json"
    file.write_text(json.dumps({"steps": steps, "spent": charged(bought)}))
    assert main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]) == 0
    shown = (tmp_path / "page.html").read_text("utf-8")
    assert "the last step of the purchase, first purchase: 9 demonstrations." in shown
    assert "op-success r=1" in shown
    assert "out/first-demos" in shown
    file.write_text(file.read_text().replace('"spent": ', '"spent": 1'))
    with pytest.raises(DataError, match="restore it"):
        report_of([tmp_path / "out"])
