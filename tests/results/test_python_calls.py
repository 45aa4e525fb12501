"""What the command line does, from Python: the calls of docs/python.md, frames, and tables in notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from browser import Elements
from paper_page import page, se

from agentloop.ledger.forecast import forecast
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.types import Task
from analysis.compare import compare
from analysis.plan.design import design
from analysis.plan.planner import plan
from analysis.report.gather import report_of
from occupancy import Trajectories, mean, occupancy, preset
from occupancy.record.errors import InputError
from occupancy.runs import open_run

ROOT = Path(__file__).parents[2]
PILOT = ROOT / "tests" / "scripted_pilot"
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")
CALLS = re.findall(r"`([\w.]+):(\w+)`", (ROOT / "docs" / "python.md").read_text("utf-8"))


@pytest.mark.parametrize(("module", "name"), CALLS)
def test_every_call_of_the_page_exists(module: str, name: str) -> None:
    if module.startswith("sft"):
        pytest.importorskip("torch")
    call = getattr(import_module(module), name)
    assert callable(call)
    assert f"::: {call.__module__}.{call.__name__}\n" in REFERENCE
    assert call.__doc__
    assert "Args:" in call.__doc__


def test_a_plan_is_a_frame_of_its_candidates() -> None:
    found = plan(PILOT, budget=50_000)
    frame = found.to_pandas()
    assert len(frame) == len(found.candidates)
    assert frame["pass_at_1"].is_monotonic_decreasing
    assert frame["recommended"].sum() == 1
    assert frame["not_excluded"].sum() == len(found.not_worse)


def test_results_show_themselves_as_escaped_tables() -> None:
    hostile = "<script>alert(1)</script>"
    compared = compare({hostile: {"q": [1], "r": [0]}, "b": {"q": [1], "r": [1]}})
    batch = Trajectories([0, 3, 5], [0, 1, 2, 0, 1], [0, 1], features=[1, 0, 1, 1, 1])
    estimates = occupancy(batch, convention="pooled"), mean(batch, convention="pooled")
    pilot = open_run(PILOT)
    settings = Settings(preset("op-short", K=3, T_max=50), "s", "t", "4")
    cost = forecast(settings, [Task("a", "a", "train")], SpendingLimits(), like=pilot)
    for result in (
        compared,
        plan(PILOT, budget=50_000),
        pilot,
        design(budget=1e6),
        cost,
        *estimates,
        report_of([PILOT]),
    ):
        html = result._repr_html_()
        found = Elements(html)
        assert "<table" in html or not hasattr(result, "to_pandas")
        assert not found.find("script")
    assert hostile in "".join(Elements(compared._repr_html_()).find("td"))


def test_results_are_printed_as_their_answer_in_80_columns() -> None:
    """print(plan) was 60,000 characters of fields."""
    plain = {"a": {"q": [1], "r": [0]}, "b": {"q": [1], "r": [1]}}
    for result, first in (
        (plan(PILOT, budget=50_000), "No preference; the best guess is "),
        (design(budget=1e6), "Buy a pilot first: "),
        (compare(plain), "No difference found between a and b: "),
        (open_run(PILOT), "scripted_pilot"),
    ):
        lines = str(result).splitlines()
        assert first in lines[0]
        assert all(len(line) <= 80 or line.startswith("`fewsteps") for line in lines)
        assert len(lines) < 60


@pytest.mark.parametrize(
    "call",
    [
        lambda: plan(PILOT, budget="2M"),  # type: ignore[arg-type]
        lambda: design(budget="2M"),  # type: ignore[arg-type]
        lambda: compare({"a": [1, 0], "b": [0, 0]}),  # type: ignore[list-item]
        lambda: open_run(PILOT).read("episode"),
        lambda: open_run(PILOT).read("episodes", columns=["reward"]),
        lambda: Trajectories([0, 2], [0, 1], tasks=["q"]),
    ],
)
def test_a_slip_in_a_call_is_one_line_that_says_what_was_expected(call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="expected") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_page_of_the_paper_is_made_from_its_data() -> None:
    assert (ROOT / "docs" / "paper.md").read_text("utf-8") == page(), "run python tests/paper_page.py"
    assert round(se(17.3, 210), 1) == 2.6
