"""What is reported of a list of folders: the decision, the evidence as figures and tables, the versions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from analysis.compare.paired import Comparison, compare
from analysis.compare.telling import sentences as compared_in_words
from analysis.figures import pilot as pilot_figures
from analysis.figures import results, spending
from analysis.figures.plan import plan_figure_of
from analysis.plan.answer import sentences
from analysis.plan.design import design
from analysis.plan.design_answer import sentences as design_sentences
from analysis.plan.guesses import Guesses, from_run
from analysis.plan.planner import plan
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.report import Plan
from analysis.report import frames
from analysis.spend import state
from analysis.study.telling import decided, titled
from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import read_json, reading
from occupancy.record.shows import Shown, Shows
from occupancy.record.specs import NotNegative, Share, check_entries
from occupancy.runs import Run, open_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


T = TypeVar("T")
RATE = ("pass_at_1", "low", "high")
"""Entries of a prediction."""


@dataclass(frozen=True)
class Sources:
    """The folders of a report by what they are, each by its path below the folder that holds them all."""

    pilots: dict[str, Run] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    """Everything with episodes that is no evaluation, pilots included."""
    evaluations: dict[str, Run] = field(default_factory=dict)
    trainings: dict[str, Path] = field(default_factory=dict)
    studies: dict[str, Path] = field(default_factory=dict)
    rounds: dict[str, Path] = field(default_factory=dict)
    """What `fewsteps spend` wrote; its purchases are among the runs."""


@dataclass(frozen=True)
class Evidence:
    """A figure of the report with what it says, in a sentence for those who do not see it."""

    title: str
    figure: Figure
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Report(Shows):
    """What a report says."""

    decision: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    comparison: Comparison | None
    plan: Plan | None
    runs: tuple[dict[str, Any], ...]
    versions: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]
    """What could not be shown, and why."""
    studies: tuple[str, ...] = ()
    """The verdict of each study and the steps of each purchase in rounds, as Markdown."""

    def _shown(self) -> Shown:
        return (*self.decision, *self.left_out), ()


def read_sources(folders: Sequence[str | Path]) -> Sources:
    """Folders by what they are; DataError for one that is none of the kinds that are reported."""
    found = Sources()
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    above = os.path.commonpath([path.parent for path in paths]) if paths else ""
    for folder, path in zip(map(Path, folders), paths, strict=True):
        name = str(path.relative_to(above))
        if (folder / "verdict.json").is_file():
            found.studies[name] = folder
        elif (folder / "run.json").is_file():
            run = open_run(folder)
            if run.info.get("kind") == "evaluation":
                found.evaluations[name] = run
            else:
                found.runs[name] = run
                if run.info.get("kind") == "pilot":
                    found.pilots[name] = run
        elif (folder / "log.jsonl").is_file():
            found.trainings[name] = folder
        elif (folder / state.FILE).is_file():
            found.rounds[name] = folder
            bought = (part for parts in state.PURCHASES.values() for part in parts)
            own = [part for part in bought if (folder / part / "run.json").is_file()]
            found.runs.update({f"{name}/{part}": open_run(folder / part) for part in own})
        else:
            raise DataError(
                f"{folder} is no run, evaluation, training, study or purchase in rounds: expected what "
                f"`fewsteps collect`, `evaluate`, `train`, `study` or `spend` wrote"
            )
    return found


def report_of(
    folders: Sequence[str | Path],
    *,
    budget: float | None = None,
    pool: int | None = None,
    already: Sequence[str | Path] = (),
) -> Report:
    """What can be said of the folders; arguments and errors as of `analysis.report.page.report`."""
    sources = read_sources(folders)
    planned, designed = None, tuple[str, ...]()
    if already and (budget is None or not sources.pilots):
        raise InputError("--already without a plan: give --budget and a pilot, or leave it out")
    if budget is not None:
        source = _source_of_plan(sources)
        if sources.pilots:
            planned = plan(source.folder, budget=budget, pool=pool, already=already)
        else:
            designed = _designed(source, budget, pool)
    evaluated = {name: run.folder for name, run in sources.evaluations.items()}
    compared = compare(evaluated) if len(evaluated) > 1 else None
    verdicts = {name: _verdict(folder / "verdict.json") for name, folder in sources.studies.items()}
    rounds = {name: state.recorded(folder) for name, folder in sources.rounds.items()}
    left_out: list[str] = []

    def made(name: str, make: Callable[..., T], *given: Any) -> Iterator[T]:
        try:
            yield make(*given)
        except DataError as error:
            left_out.append(f"{name}: {error}")

    every = _figures(sources, planned, compared, verdicts)
    evidence = tuple(figure for one in every for figure in made(*one))
    words = [made("the verdict in words", _words, folder) for folder in sources.studies.values()]
    studies = (*(text for found in words for text in found), *map(_rounds, rounds, rounds.values()))
    return Report(
        (*designed, *_decision(planned, compared, verdicts, rounds)) or (_missing(sources),),
        evidence,
        compared,
        planned,
        tuple(_run(name, run) for name, run in (sources.runs | sources.evaluations).items()),
        tuple(_versions(sources)),
        tuple(left_out),
        studies,
    )


def _words(study: Path) -> str:
    """The verdict of a study as Markdown."""
    with reading(study / "verdict.md", then="write it anew with `fewsteps study`"):
        return (study / "verdict.md").read_text("utf-8")


def _rounds(name: str, record: state.State) -> str:
    """The steps of a purchase in rounds as Markdown."""
    title = f"{name}: {record['spent']:,.0f} teacher tokens in rounds"
    return titled(title, state.HEADS, state.rows_of(record))


def _verdict(file: Path) -> dict[str, Any]:
    """A study's verdict; DataError where what is shown of it is damaged."""
    found: dict[str, Any] = read_json(file)
    check_entries(found, {"said": str, "arms": tuple[Mapping[str, Any], ...]}, of=str(file))
    rate = Share | None
    for arm in found["arms"]:
        kinds = {"arm": str, "budget": int, "predicted": Mapping[str, Any], "pass_at_1": rate}
        check_entries(arm, kinds | {"se": NotNegative | None}, of=f"an arm of {file}")
        check_entries(arm["predicted"], dict.fromkeys(RATE, rate), of=f"an arm's prediction in {file}")
    return found | {"decided": _decided(found, str(file))}


def _decided(verdict: dict[str, Any], file: str) -> str:
    """What the verdict says to buy; empty where that was not measured, or has no error."""
    check_entries(verdict, dict.fromkeys(("primary", "regret"), Mapping[str, Any] | None), of=file)
    primary, regrets = verdict.get("primary") or {}, verdict.get("regret") or {}
    regret = regrets.get(str(verdict.get("target")))
    if regret is None or primary.get("measured") is None:
        return ""
    number = float | None
    parts: tuple[tuple[Any, dict[str, Any]], ...] = (
        (primary, {"said": str}),
        (primary.get("predicted"), {"a": str, "b": str, "expected": number}),
        (primary["measured"], dict.fromkeys(("difference", "se", "low", "high"), number)),
        (regret, dict.fromkeys(("regret", "low", "high"), number)),
    )
    for found, kinds in parts:
        check_entries(found, kinds, of=f"primary or regret of {file}")
    missing = any(found[name] is None for found, kinds in parts for name in kinds)
    return "" if missing else decided(primary, regret)


def _source_of_plan(sources: Sources) -> Run:
    """The pilot to plan from, else the run whose figures design a pilot."""
    if len(sources.pilots) == 1:
        return next(iter(sources.pilots.values()))
    if not sources.pilots and len(sources.runs) == 1:
        return next(iter(sources.runs.values()))
    raise InputError(
        f"a budget, {len(sources.pilots)} pilots and {len(sources.runs)} runs: expected exactly one pilot "
        f"to plan from, or one run to design a pilot from"
    )


def _designed(source: Run, budget: float, pool: int | None) -> tuple[str, ...]:
    guesses, names = from_run(source.folder, Guesses())
    found = design(budget=budget, pool=pool, guesses=guesses, run=names)
    command = (f"The pilot's command: {found.command}",) if found.command else ()
    return (*design_sentences(found), *command)


def _decision(
    planned: Plan | None,
    compared: Comparison | None,
    verdicts: dict[str, Any],
    rounds: dict[str, state.State],
) -> Iterator[str]:
    if planned is not None:
        yield from sentences(planned)
    for name, record in rounds.items():
        for step, _, came in state.rows_of(record)[-1:]:
            yield f"{name}: the last step of the purchase, {step}: {came}."
    for name, verdict in verdicts.items():
        yield f"{name}: {verdict['decided'] or verdict['said'] + '.'}"
    if compared is not None:
        yield from compared_in_words(compared)
        yield from compared.cautions


def _missing(sources: Sources) -> str:
    """What folders that decide nothing lack."""
    lack = "a budget (--budget), for a plan or a designed pilot" if sources.runs else "a pilot and a budget"
    return f"These folders alone decide nothing: give {lack}, or two evaluations of the same tasks."


def _figures(
    sources: Sources, planned: Plan | None, compared: Comparison | None, verdicts: dict[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """Name, maker and its arguments of every figure that the folders may have data for."""
    if planned is not None:
        yield "plan", _plan, planned
    if compared is not None:
        yield "evaluations", _rates, compared
    for name, verdict in verdicts.items():
        yield f"{name}: predictions", _predictions, name, verdict
    for name, run in sources.pilots.items():
        yield f"{name}: hand-backs", _handbacks, name, run
        yield f"{name}: coverage", _coverage, name, run
    for name, run in sources.runs.items():
        yield f"{name}: occupancy by turn", _by_turn, name, run
        yield f"{name}: conventions", _conventions, name, run
    if sources.runs:
        yield "teacher tokens", _spending, sources.runs
    if sources.trainings:
        yield "losses", _losses, sources.trainings


def _plan(planned: Plan) -> Evidence:
    best = planned.recommended
    return Evidence(
        "What the budget should buy",
        plan_figure_of(planned),
        f"Three panels: pass@1 of the best recipe by budget with its 90 % band; cost of a context by K; "
        f"pass@1 of the best of each recipe at the budget, led by {best.arm.name} with {best.pass_at_1:.3f}.",
        "Bands come from one posterior over the learning curves of all candidates.",
    )


def _rates(compared: Comparison) -> Evidence:
    table = compared.rates_to_pandas()
    told = "; ".join(f"{row.arm} {row.rate:.3f}" for row in table.itertuples())
    return Evidence("Evaluations", results.rates_figure(table), f"pass@1 with 95 % intervals: {told}.")


def _predictions(name: str, verdict: dict[str, Any]) -> Evidence:
    columns = ["arm", "predicted", "low", "high", "measured", "se"]
    rows = [
        # Names of all arms would fill the figure.
        (f"{arm['budget']:,} teacher tokens", *map(arm["predicted"].get, RATE), arm["pass_at_1"], arm["se"])
        for arm in verdict["arms"]
    ]
    table = pd.DataFrame(rows, columns=columns).dropna(subset=columns[:-1]).fillna({"se": 0.0})
    if table.empty:
        raise DataError("no arm has both a prediction and a measurement")
    inside = table["measured"].between(table["low"], table["high"]).sum()
    alt = f"Predicted against measured pass@1 of {len(table)} arms; {inside} lie inside their 90 % band."
    return Evidence(f"{name}: predicted and measured", results.prediction_figure(table), alt)


def _handbacks(name: str, run: Run) -> Evidence:
    depth, switch = frames.hand_backs(read_pilot(run.folder))
    if depth.empty or switch.empty:
        raise DataError("the pilot has no continuation with a reward")
    told = ", ".join(f"{K:g}: {u:.2f}" for K, u in zip(depth["K"], depth["value"], strict=True))
    return Evidence(
        f"{name}: hand-backs",
        pilot_figures.handback_figure(depth, switch),
        f"Success after K teacher turns, by K: {told}. Beside it the teacher's success by switch time.",
        "Contexts as the pilot drew them: a rollout, then one of its turns with equal probability.",
    )


def _coverage(name: str, run: Run) -> Evidence:
    table = frames.covered(run)
    if table.empty:
        raise DataError("it has no finished rollout, or nothing of the teacher to cover it")
    most = table.groupby("source")["covered"].max()
    told = ", ".join(f"{source} {value:.0%}" for source, value in most.items())
    return Evidence(
        f"{name}: coverage",
        pilot_figures.coverage_figure(table),
        f"Fraction of the student's contexts that a training set covers, at its full size: {told}.",
        "A context is covered if the training set has one with the same last observation.",
    )


def _by_turn(name: str, run: Run) -> Evidence:
    batch, names = frames.contexts_of(run)
    figure = pilot_figures.by_turn_figure(frames.by_turn(batch, names))
    alt = f"Fractions of contexts by what was done last, turn by turn, over {len(batch):,} episodes."
    return Evidence(f"{name}: occupancy by turn", figure, alt)


def _conventions(name: str, run: Run) -> Evidence:
    table = frames.conventions(*frames.contexts_of(run))
    wide = table.pivot(index="state", columns="convention", values="probability").fillna(0.0)
    gap = (wide["pooled"] - wide["trajectory-uniform"]).abs()
    return Evidence(
        f"{name}: two averaging conventions",
        pilot_figures.conventions_figure(table),
        f"Occupancies under pooled and trajectory-uniform weights; they differ most {gap.idxmax()}, "
        f"by {gap.max():.3f}.",
        "Pooled: every turn counts the same. Trajectory-uniform: every rollout does.",
    )


def _spending(runs: dict[str, Run]) -> Evidence:
    table = frames.spent(runs)
    told = table.groupby("use", sort=False)["tokens"].sum()
    alt = "Teacher tokens by use: " + ", ".join(f"{use} {n:,.0f}" for use, n in told.items() if n) + "."
    return Evidence("What teacher tokens were spent on", spending.spending_figure(table), alt)


def _losses(trainings: dict[str, Path]) -> Evidence:
    table = frames.losses(trainings)
    if table.empty:
        raise DataError("the logs hold no step")
    last = table.groupby("training", sort=False)["loss"].last()
    alt = "Loss of the last step: " + ", ".join(f"{name} {loss:.3f}" for name, loss in last.items()) + "."
    return Evidence("Losses of trainings", spending.loss_figure(table), alt)


def _run(name: str, run: Run) -> dict[str, Any]:
    episodes = run.read("episodes", columns=["kind", "cluster_id", "R"]).to_pandas()
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in episodes["kind"].value_counts().items())
    return {
        "run": name,
        "episodes": kinds,
        "tasks": f"{episodes['cluster_id'].nunique():,}",
        "teacher tokens": f"{sum(teacher_tokens(run.folder)):,}",
        "mean R": "-" if episodes["R"].isna().all() else f"{episodes['R'].mean():.3f}",
    }


def _versions(sources: Sources) -> Iterator[dict[str, Any]]:
    for run in (sources.runs | sources.evaluations).values():
        info = run.info
        made = info.get("made_with") or {}
        yield {
            "folder": str(run.folder),
            "kind": info.get("kind", "run"),
            "recipe": f"{run.recipe.name} {run.recipe.hash}",
            "environment": info.get("environment", "-"),
            "student": info.get("student") or "-",
            "teacher": info.get("teacher", "-"),
            "seed": info.get("seed", "-"),
            "made with": ", ".join(f"{package} {version}" for package, version in made.items()) or "-",
        }
    others = (("training", sources.trainings), ("study", sources.studies), ("rounds", sources.rounds))
    for kind, folders in others:
        yield from ({"folder": str(folder), "kind": kind} for folder in folders.values())
