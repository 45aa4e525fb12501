"""Pages about the published studies say what their verdicts say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.curves.arms import Arm
from analysis.study.cells import SweepCell
from analysis.study.config import PURE_BC
from analysis.study.measured import Sweep, label

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "benchmarks" / "studies"
PUBLISHED = ("alfworld", "hotpotqa")
"""Pages with the claims and gains of op-short of their tables."""
ALL = (*PUBLISHED, "alfworld_stronger")
Told = Mapping[str, Any]


def of(number: float, digits: int = 3) -> str:
    """As pages write it: .046."""
    return f"{number:.{digits}f}".replace("0.", ".", 1)


def plus(number: float, digits: int = 3) -> str:
    """With its sign: +.046."""
    return f"{number:+.{digits}f}".replace("0.", ".", 1)


def verdict(study: str, file: str = "verdict.json") -> Told:
    told: Told = json.loads((STUDIES / study / file).read_text("utf-8"))
    return told


def sweep_of(study: str) -> Sweep:
    """The sweep, of the published table of attempts; a task is its own cluster."""
    rows = pd.read_parquet(STUDIES / study / "evaluations.parquet").rename(columns={"student": "arm"})
    rows = rows.assign(success=(rows["score"] >= 1).astype(float), cluster_id=rows["task_id"], no_data=False)
    registered = json.loads((STUDIES / study / "registration.json").read_text("utf-8"))["cells"]
    cells = {SweepCell.from_dict(told): told for told in registered}
    trained = set(rows["arm"])
    return Sweep(Path(), {cell: told for cell, told in cells.items() if cell.name in trained}, rows)


def missing(page: str, expected: Iterator[str]) -> list[str]:
    """What the page does not say, however its lines are broken."""
    text = " ".join((ROOT / page).read_text("utf-8").split())
    return [words for words in expected if words not in text]


def result(study: str) -> Iterator[str]:
    """What every page on a study has: the registered comparison and the regret at the target."""
    told = verdict(study)
    found = told["primary"]["measured"]
    yield f"{plus(found['difference'])} ± {of(found['se'])}"
    yield f"{told['cells']['evaluated']}"
    regret = told["regret"][str(told["target"])]
    yield f"{of(regret['regret'])}"
    yield f"0 to {of(regret['high'])}"
    ranking = told["ranking"][0]
    yield f"{ranking['pair_accuracy']:.0%}".replace("%", " %")
    yield f"Spearman {of(ranking['spearman'], 2)}"


def claims(study: str) -> Iterator[str]:
    target = verdict(study)["target"]
    for claim in verdict(study)["claims"]:
        if claim["difference"] is not None and (study == "alfworld" or claim["budget"] == target):
            yield f"{plus(claim['difference'])} [{plus(claim['low'])}, {plus(claim['high'])}]"


def arms(study: str) -> Iterator[str]:
    """Rows of a table of arms: predicted, band, measured."""
    for arm in verdict(study)["arms"]:
        told = arm["predicted"]
        band = f"{of(told['low'])} to {of(told['high'])}"
        yield f"| {of(told['pass_at_1'])} | {band} | {of(arm['pass_at_1'])} ± {of(arm['se'])} |"


def handbacks(study: str) -> str:
    rows = [row for row in verdict(study)["handback"] if row["r"] == 0.5]
    return ", ".join(plus(row["over_demonstrations"]) for row in rows)


@pytest.mark.parametrize("study", ALL)
def test_the_pages_of_a_study_have_its_result(study: str) -> None:
    for page in (f"benchmarks/studies/{study}.md", "docs/study.md"):
        assert missing(page, result(study)) == []


def test_pages_of_studies_have_the_numbers_of_their_tables() -> None:
    for study in PUBLISHED:
        page = f"benchmarks/studies/{study}.md"
        assert missing(page, claims(study)) == []
        assert missing(page, iter([handbacks(study)])) == []
    assert missing("benchmarks/studies/alfworld_stronger.md", arms("alfworld_stronger")) == []


def test_the_readme_has_the_numbers_of_the_verdicts() -> None:
    def expected() -> Iterator[str]:
        cells = []
        for study in ALL:
            told = verdict(study)
            found, levels = told["primary"]["measured"], told["coverage"]["pass_at_1"]
            predicted = plus(100 * told["primary"]["predicted"]["expected"], 1)
            measured = f"{plus(100 * found['difference'], 1)} ± {of(100 * found['se'], 1)}"
            cells.append(f"predicted {predicted}, measured {measured}")
            holds = round(levels["inside"] * levels["n"])
            yield f"{-100 * levels['bias']:.0f}"
            yield f"{holds} of {levels['n']}"
        yield " | ".join(cells)
        shares = [verdict(study)["coverage"]["over_demonstrations"]["inside"] for study in ALL]
        yield " | ".join(f"{share:.0%}".replace("%", " %") for share in shares)
        studies = [verdict(study) for study in ALL]
        few = [
            claim
            for told in studies
            for claim in told["claims"]
            if claim["claim"].endswith("more demonstrations")
        ]
        held = [claim for claim in few if claim["verdict"] == "holds"]
        words = ("none", "one", "two", "three", "four", "five", "six", "seven")
        yield f"few teacher turns beat demonstrations at {words[len(held)]} of {words[len(few)]} budgets"

    assert missing("README.md", expected()) == []


def test_the_readme_has_the_best_rule_that_was_measured_in_all_studies() -> None:
    sweeps = [(sweep_of(study), verdict(study)) for study in ALL]
    leads = []
    for sweep, told in sweeps:
        groups = sweep.groups(told["target"])
        choice = next(
            arm for arm in groups if str(label(arm)) == told["regret"][str(told["target"])]["choice"]
        )
        leads.append(
            {rule: sweep.lead([groups[rule]], [groups[choice]]) for rule in groups if rule != choice}
        )
    common = set.intersection(*(set(lead) for lead in leads))
    best = min(common, key=lambda rule: sum(lead[rule].difference for lead in leads))

    def row(named: str, rule: Arm) -> str:
        cells = (f"{plus(100 * lead[rule].difference, 1)} ± {of(100 * lead[rule].se, 1)}" for lead in leads)
        return f"minus {named}, {label(rule).replace('=0', '=')} | {' | '.join(cells)} |"

    rows = [row("a rule of few teacher turns", Arm("op-short", 3, 0.5))]
    rows.append(row("the best fixed rule measured in all three", best))
    assert missing("README.md", iter(rows)) == []


@pytest.mark.parametrize("study", ALL)
def test_pages_on_the_data_say_what_the_files_hold(study: str) -> None:
    folder, told = STUDIES / study, verdict(study)
    attempts = len(pd.read_parquet(folder / "evaluations.parquet", columns=["score"]))
    told_on = f"all {told['cells']['registered']} students"
    expected = [told_on, f"{attempts:,} attempts", told["registered"][11:19]]
    if (folder / "study.tar.xz").exists():
        expected.append(f"{(folder / 'study.tar.xz').stat().st_size / 1e6:.1f} MB")
    assert missing(f"benchmarks/studies/{study}/README.md", iter(expected)) == []
    if study in PUBLISHED:
        page = (STUDIES / f"{study}.md").read_text("utf-8")
        sweep = next(line for line in page.splitlines() if line.startswith("| sweep |"))
        assert sweep.startswith(f"| sweep | {told['cells']['evaluated'] + len(told['references'])} |")
        assert sweep.endswith(f"| {told['seconds']['sweep']:,.0f} |")


@pytest.mark.parametrize("study", ["alfworld", "alfworld_stronger"])
def test_pages_say_how_many_bands_of_leads_hold(study: str) -> None:
    leads = verdict(study)["coverage"]["over_demonstrations"]
    held = f"{round(leads['inside'] * leads['n'])} of {leads['n']}"
    for page in (f"benchmarks/studies/{study}.md", "docs/study.md"):
        assert missing(page, iter([held])) == []


def test_rivals_are_those_of_the_published_attempts() -> None:
    sweep = sweep_of("alfworld")
    groups = sweep.groups(10_000)
    choice = groups[Arm("op-short", 2, 1.0)]
    short, critical = (
        (Arm("op-short", K, 0.5) for K in (1, 3, 5)),
        (Arm("op-critical", r=r) for r in (0.5, 1)),
    )

    def expected() -> Iterator[str]:
        for rival in (PURE_BC, *short, *critical, Arm("op-success", r=0.5)):
            lead = sweep.lead([groups[rival]], [choice])
            yield f"| {of(sweep.mean(groups[rival]))} | {plus(lead.difference)} ± {of(lead.se)} |"

    assert missing("benchmarks/studies/alfworld.md", expected()) == []


def test_leads_and_levels_are_those_of_the_published_attempts() -> None:
    sweep = sweep_of("hotpotqa")
    groups, leads = sweep.groups(40_000), sweep.leads(40_000, PURE_BC)
    students = sweep.rates[[name for names in groups.values() for name in names]].mean()
    told = {arm: sweep.predicted[arm, 40_000] for arm in leads}
    inside = [
        told[a]["over_bc_low"] <= lead.difference <= told[a]["over_bc_high"] for a, lead in leads.items()
    ]
    bias = sum(lead.difference - told[arm]["over_bc"] for arm, lead in leads.items()) / len(leads)

    def expected() -> Iterator[str]:
        yield f"{sum(inside)} of {len(leads)} in its band"
        yield f"{of(bias)} higher than predicted"
        yield f"{of(students.min())} to {of(students.max())} at 40,000 tokens"
        yield f"from {of(verdict('hotpotqa')['references']['pilot'])} to {of(sweep.mean(groups[PURE_BC]))}"

    assert missing("benchmarks/studies/hotpotqa.md", expected()) == []


def test_the_planner_s_page_says_how_far_levels_were_off() -> None:
    levels = [verdict(study)["coverage"]["pass_at_1"] for study in ALL]
    first, second, third = (of(-level["bias"]) for level in levels)
    held = [round(level["inside"] * level["n"]) for level in levels]
    both = f"{held[0] + held[1]} of {levels[0]['n'] + levels[1]['n']} bands held"
    expected = (
        f"{first} and {second} too low, and {both}; in the third they were {third} too low, and {held[2]} of"
    )
    assert missing("docs/planner.md", iter([expected])) == []


def test_a_budget_that_was_measured_twice_differs_as_pages_say() -> None:
    again = {(arm["arm"], arm["budget"]): arm for arm in verdict("hotpotqa", "verdict_60.json")["arms"]}
    pairs = [
        (arm, again[arm["arm"], 10_000]) for arm in verdict("hotpotqa")["arms"] if arm["budget"] == 10_000
    ]
    changes = pd.Series([now["pass_at_1"] - then["pass_at_1"] for now, then in pairs])
    errors = [now["se"] for now, _ in pairs]
    words = [f"by {of(abs(changes.mean()))} on average", of((changes**2).mean() ** 0.5)]
    words.append(f"{of(min(errors))} to {of(max(errors))}")
    for page in ("benchmarks/studies/hotpotqa.md", "docs/study.md"):
        assert missing(page, iter(words)) == []


def test_the_planner_s_page_has_the_scores_of_the_prior_that_ships() -> None:
    scores = json.loads((ROOT / "analysis" / "curves" / "prior.json").read_text("utf-8"))["provenance"][
        "scores"
    ]
    columns = [
        scores[f"family {known}{kind}"] for kind in ("", ", tables") for known in ("left out", "known")
    ]

    def row(name: str, score: str, digits: int) -> str:
        cells = (" / ".join(of(column[size][score], digits) for size in ("5", "20")) for column in columns)
        return f"| {name} | {' | '.join(cells)} |"

    rows = [row("plan, 16 trainings", "regret", 2), row("90 % bands hold", "held", 2)]
    rows.append(row("their mean width", "width", 3))
    assert missing("docs/planner.md", iter(rows)) == []
    left_out = columns[0]
    losses = f"loses {left_out['5']['regret']:.1f} points"
    assert missing("README.md", iter([losses, f"and {left_out['20']['regret']:.1f} at 20 times"])) == []
