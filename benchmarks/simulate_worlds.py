"""The numbers and figures of benchmarks/worlds.md: python -m benchmarks simulate_worlds [--parts PART ..]

Parts: families, knobs, findings, rounds. Prints Markdown; findings also writes figures/worlds_*.png.
Every difference is paired by seed, with its standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from occupancy import preset
from occupancy.record.drawing import save
from simulate import (
    FAMILIES,
    MIXED,
    LogLinear,
    Recovery,
    Tabular,
    accepted_law,
    answers,
    recovery_world,
    sweep,
    truth,
)
from simulate.pipelines.figures import K_curves, cost_curves, r_curves
from simulate.pipelines.lanes import with_K
from simulate.worlds.students import Student
from simulate.worlds.types import World

INF = math.inf
K_ALL = (1, 2, 3, 5, 8, INF)
FIGURES = Path(__file__).parent / "figures"


def name(K: float) -> str:
    return "inf" if K == INF else str(int(K))


DEPTHS = [f"K={name(K)}" for K in K_ALL]


def curve(world: World, budget: int, *, r=(0.5, 1.0), seeds: int = 48) -> np.ndarray:
    """[K, seeds] pass@1 of op-short, for each K at the r that is best for it."""
    rows = []
    for K in K_ALL:
        recipe = preset("op-short", K=K, T_max=world.horizon)
        runs = [truth(world, recipe, budget=budget, r=x, seeds=seeds, workers=2).J for x in r]
        rows.append(max(runs, key=np.mean))
    return np.array(rows)


def points(gap: np.ndarray, digits: int = 2) -> str:
    """Mean of paired differences of pass@1, in points, with its standard error."""
    return f"{100 * gap.mean():+.{digits}f} ±{100 * gap.std(ddof=1) / math.sqrt(len(gap)):.{digits}f}"


def line(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def head(title: str, *cells: str) -> None:
    """A title, and the first two lines of its table."""
    print(f"\n### {title}\n")
    line(*cells)
    line(*["---"] * len(cells))


def not_worse(J: np.ndarray) -> list[str]:
    """The K within two paired standard errors of the best."""
    best = J.mean(axis=1).argmax()
    gap = J - J[best]
    error = gap.std(axis=1, ddof=1) / math.sqrt(J.shape[1])
    return [name(K) for K, g, e in zip(K_ALL, gap.mean(axis=1), error, strict=True) if g + 2 * e >= 0]


def families(count: int = 10, budget: int = 128_000) -> None:
    title = f"Families: {count} drawn worlds each, {budget:,} tokens, better of r = .5 and 1"
    head(title, "family", "J student", "J teacher", *DEPTHS, "best K of the worlds")
    for family in (*MIXED, "weak", "garnet"):
        worlds = [FAMILIES[family].draw(10_000 + i) for i in range(count)]
        J = np.array([curve(w, budget) for w in worlds])
        exact = [answers(w) for w in worlds]
        best = pd.Series([name(K_ALL[i]) for i in J.mean(axis=2).argmax(axis=1)]).value_counts()
        cells = [f"{x:.4f}" for x in J.mean(axis=(0, 2))]
        student = np.mean([a.J_student for a in exact])
        teacher = np.mean([a.J_teacher for a in exact])
        spread = np.ptp(J.mean(axis=2), axis=1).mean()
        tally = ", ".join(f"{K}: {n}" for K, n in sorted(best.items(), key=lambda item: float(item[0])))
        line(family, f"{student:.2f}", f"{teacher:.2f}", *cells, f"{tally} (spread {spread:.3f})")


KNOBS = {
    "tracks": (12, 60),
    "path": ((3, 4), (8, 12)),
    "zipf": (0.2, 1.4),
    "errors": (1, 3),
    "first_repairs": (40, 500),
    "repairs": (2, 7),
    "generic": (1.0, 20.0),
    "student_track": (0.65, 0.92),
    "student_repair": ((0.9, 0.9, 0.9, 0.05), (0.05, 0.9, 0.9, 0.9)),
    "teacher_repair": (0.7, 1.0),
    "setback": (0.0, 0.8),
    "loop": (0.0, 0.6),
    "dead": (0.0, 0.15),
    "give_up": (0.0, 0.4),
    "aliasing": (0.0, 0.8),
    "tokens_track": (40, 300),
    "tokens_repair": ((20, 200), (200, 20)),
}


def knobs(budget: int = 64_000) -> None:
    title = f"Knobs: one at a time from the defaults, {budget:,} tokens; J(K=1) - J(K=inf) in points"
    head(title, "knob", *("value", "best K, not worse", "J(1) - J(inf)") * 2)
    for knob, values in {"(defaults)": (None,), **KNOBS}.items():
        cells = [knob]
        for value in values:
            changed = Recovery() if value is None else replace(Recovery(), **{knob: value})
            J = curve(recovery_world(changed), budget)
            cells += [str(value), ", ".join(not_worse(J)), points(J[0] - J[-1], 1)]
        line(*cells)


@dataclass(frozen=True)
class Case:
    """One sweep that a finding is read off."""

    world: World
    student: Student
    budgets: tuple[int, ...]
    recipes: tuple[str, ...] = ("pure-bc", "op-short")
    r: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    seeds: int = 32

    def play(self, axis: str = "inference") -> pd.DataFrame:
        recipes = with_K([preset(n, T_max=self.world.horizon) for n in self.recipes], K_ALL)
        return sweep(
            self.world,
            recipes=recipes,
            budgets=self.budgets,
            r=self.r,
            seeds=self.seeds,
            axis=axis,
            student=self.student,
        ).frame()


def paired(frame: pd.DataFrame, one: dict, other: dict) -> str:
    """Difference of J between two recipes."""
    return points(pick(frame, one) - pick(frame, other))


def pick(frame: pd.DataFrame, where: dict) -> np.ndarray:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.sort_values("seed")["J"].to_numpy()


def top(frame: pd.DataFrame, **where: object) -> dict:
    """The recipe, K and r with the highest mean."""
    for column, value in where.items():
        frame = frame[frame[column] == value]
    columns = ["budget", "recipe", "K", "r"]
    return dict(zip(columns, frame.groupby(columns)["J"].mean().idxmax(), strict=True))


def label(where: dict) -> str:
    return f"K={where['K']}, r={where['r']:g}" if where["recipe"] == "op-short" else where["recipe"]


SHORT, MIDDLE, LONG, ANY = (FAMILIES[n].draw(0) for n in MIXED)
WEAK = FAMILIES["weak"].draw(0)
IMPERFECT = Recovery(tracks=24, dead=0.12, teacher_repair=0.75, teacher_track=0.93)


def findings() -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    log_linear = LogLinear(rate=20.0)
    budgets = (32_000, 128_000, 512_000)
    worlds = {"short": SHORT, "weak": WEAK, "middle": MIDDLE, "long": LONG, "any": ANY}
    played = {f"{who}, tabular": Case(world, Tabular(), budgets).play() for who, world in worlds.items()}
    played["weak, log-linear"] = Case(WEAK, log_linear, budgets).play()
    by_budget = ("world, student", *(f"{b:,}" for b in budgets))
    head("Short continuations against pure BC: best op-short with K <= 3, minus pure BC", *by_budget)
    for who, frame in played.items():
        few = frame[(frame["recipe"] == "op-short") & frame["K"].isin(["1", "2", "3"]) & (frame["r"] > 0)]
        cells = []
        for b in budgets:
            best = top(few, budget=b)
            cells.append(f"{paired(frame, best, {'recipe': 'pure-bc', 'budget': b})} ({label(best)})")
        line(who, *cells)
    title = "J by K at 128,000 tokens, r = .5 and r = 1"
    head(title, "world, student, r", *DEPTHS, "best - K=1", "best - K=inf")
    for who, frame in played.items():
        for r in (0.5, 0.75, 1.0):
            at = {"recipe": "op-short", "budget": 128_000, "r": r}
            J = [pick(frame, at | {"K": name(K)}) for K in K_ALL]
            best = at | {"K": name(K_ALL[int(np.argmax([j.mean() for j in J]))])}
            cells = [f"{j.mean():.4f}" for j in J]
            ends = [paired(frame, best, at | {"K": K}) for K in ("1", "inf")]
            line(f"{who}, r={r}", *cells, *ends)
    head("Best r by budget, and its lead on r = 0 and on r = 1 (same K)", *by_budget)
    for who, frame in played.items():
        cells = []
        for b in budgets:
            best = top(frame[frame["recipe"] == "op-short"], budget=b)
            ends = [paired(frame, best, best | {"r": r}) for r in (0.0, 1.0)]
            cells.append(f"{label(best)}: {ends[0]}; {ends[1]}")
        line(who, *cells)
    filters(IMPERFECT, "imperfect teacher, dead ends")
    equal_contexts(WEAK, log_linear, contexts=600, demos=64_000)
    equal_contexts(WEAK, Tabular(), contexts=600, demos=64_000)
    filters(Recovery(tracks=24, dead=0.0, teacher_repair=0.98), "teacher that always succeeds")
    by_family = {f"Family {who}": played[f"{who}, tabular"] for who in ("short", "middle", "long")}
    save(K_curves(by_family), FIGURES / "worlds_K.png")
    by_student = {f"Family {who} student": played[who] for who in ("weak, tabular", "weak, log-linear")}
    save(r_curves(by_student), FIGURES / "worlds_r.png")
    imperfect = recovery_world(IMPERFECT, name="imperfect teacher")
    names = ("pure-bc", "op-short", "op-success", "op-critical")
    costs = Case(imperfect, Tabular(), (32_000, 64_000, 128_000), recipes=names, r=(0.5,)).play()
    costs = costs[(costs["recipe"] != "op-short") | costs["K"].isin(["2", "inf"])]
    save(cost_curves(costs), FIGURES / "worlds_costs.png")


def equal_contexts(world: World, student: Student, *, contexts: int, demos: int, seeds: int = 64) -> None:
    """The same number of contexts for every K, so that a longer K only adds data."""
    title = f"{contexts} contexts for every K, {demos:,} BC tokens: {world.name}, {student}"
    head(title, "K", "J", "K=1 minus it", "D_OP tokens")
    first = None
    for K in K_ALL:
        recipe = preset("op-short", K=K, T_max=world.horizon)
        own = round(contexts * accepted_law(world, recipe).C_i)
        budget = demos + own
        out = sweep(world, recipes=[recipe], budgets=[budget], r=[own / budget], seeds=seeds, student=student)
        first = out.J if first is None else first
        line(name(K), f"{out.J.mean():.4f}", points(first - out.J), f"{own:,}")


def filters(given: Recovery, title: str) -> None:
    world = recovery_world(given, name=title)
    recipes = ("pure-bc", "op-short", "op-success", "op-critical", "oec", "leap")
    case = Case(world, Tabular(), (64_000,), recipes=recipes, r=(0.5,), seeds=64)
    said = f"Filters, {title}: J minus that of op-short K=inf, in points, 64,000 tokens, r = .5"
    head(said, "recipe", "same C_i", "same C_tr", "C_i where C_tr is matched")
    frames = {axis: case.play(axis) for axis in ("inference", "training")}
    for recipe in ("op-success", "op-critical", "oec", "leap"):
        cells = []
        for frame in frames.values():
            own = frame[(frame["recipe"] == recipe)]["K"].iloc[0]
            at = {"recipe": recipe, "K": own, "r": 0.5}
            cells.append(paired(frame, at, {"recipe": "op-short", "K": "inf", "r": 0.5}))
        matched = frames["training"]
        cost = matched[matched["recipe"] == recipe]["C_i"].mean()
        line(recipe, *cells, f"{cost:,.0f}")


def rounds(budget: int = 40_000, seeds: int = 64) -> None:
    title = f"Rounds: {budget:,} tokens, r = 1, J and its lead on one round"
    head(title, "world", "K", "1 round", "2 rounds", "4 rounds")
    deep = Recovery(tracks=4, repairs=5, student_repair=(0.02,), generic=1.0, first_repairs=30)
    for said, world in (("five repairs that pi_0 never passes", recovery_world(deep)), ("any", ANY)):
        for K in (1, 2, INF):
            recipe = preset("op-short", K=K, T_max=world.horizon)
            J = [
                truth(world, recipe, budget=budget, r=1, rounds=n, seeds=seeds, workers=2).J
                for n in (1, 2, 4)
            ]
            later = (f"{more.mean():.4f} ({points(more - J[0])})" for more in J[1:])
            line(said, name(K), f"{J[0].mean():.4f}", *later)


PARTS = {"families": families, "knobs": knobs, "findings": findings, "rounds": rounds}


def main(parts: list[str] = list(PARTS)) -> None:  # noqa: B006 - read alone
    for part in parts:
        PARTS[part]()
