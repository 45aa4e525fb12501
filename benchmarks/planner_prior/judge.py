"""Judge priors on worlds that they were not learnt from.

    python -m benchmarks planner_prior.judge --data DIR --stage selection|test|shuffled [--scores FILE]

selection  worlds below number 90, and the laboratory's: each family left out, and a third of all families'
           worlds left out (family known); for development
test       worlds from number 90 on by priors of the others, with their family left out and with it known; to
           be run once for a method
shuffled   how often trainings without information are called distinguishable: at most 5 % of worlds

Regret is in points of pass@1 against the best of all options with and without a pilot. The best is by the
mean of the stored repeats, so regret holds a winner's curse; `split` chooses the best on some repeats and
scores it on another, which is a lower bound. Bands are of level .9. Means are over families.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import expit, ndtr

from analysis.curves.arms import Arm
from analysis.curves.curves import Posterior, posterior
from analysis.curves.draws import LEVEL
from analysis.curves.evidence import distinguishable
from analysis.curves.prior import Prior
from benchmarks.planner_prior.designs import AFTER, DESIGNS, chosen, made
from benchmarks.planner_prior.learn import learn
from benchmarks.planner_prior.stored import BOTH, OPTIONS, VARIED, World, facts_of, read, truth

Row = dict[str, Any]
Job = tuple[str, Sequence[World], Callable[[World], Prior]]
"""(title, worlds, the prior that judges a world)"""


def split(raw: dict[str, Any], multiple: int) -> float:
    """Pass@1 of the option that is best on some repeats, on another repeat: below the true maximum."""
    own, rule = (np.array(raw["truth"][f"{role}-{multiple}"]) for role in ("plan-success", "rule"))
    found = []
    for k in range(len(own)):
        a, b = k % len(rule), (k + 1) % len(rule)
        seen = np.concatenate([np.delete(own, k, 0).mean(0), rule[a]])
        found.append(np.concatenate([own[k], rule[b]])[seen.argmax()])
    return float(np.mean(found))


def bands(post: Posterior, arms: Sequence[Arm], size: float) -> tuple[np.ndarray, np.ndarray]:
    """[A] low and high: central interval of J at LEVEL, by bisection of the mixture's law."""
    means, sd = post.logits(arms, size)

    def quantile(q: float) -> np.ndarray:
        low, high = (means - 9 * sd).min(0), (means + 9 * sd).max(0)
        for _ in range(50):
            middle = (low + high) / 2
            below = post.weights @ ndtr((middle - means) / sd) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(expit((low + high) / 2))

    return quantile((1 - LEVEL) / 2), quantile((1 + LEVEL) / 2)


def judged(world: World, prior: Prior, design: str, rng: np.random.Generator) -> list[Row]:
    """One row for each budget."""
    raw, facts, rows = world.raw, facts_of(world.raw), []
    base = made(chosen(raw["small"], DESIGNS[design]), rng)
    for multiple in (5, 20):
        own, every, rule = (truth(raw, multiple, role) for role in ("plan-success", "plan", "rule"))
        post, true = posterior(base, facts, prior), np.concatenate([own, every])
        J, (low, high) = post.expected(BOTH, multiple), bands(post, BOTH, multiple)
        best, pick = max(own.max(), rule.max()), int(J.argmax())
        row = {
            "family": world.family,
            "multiple": multiple,
            "regret": 100 * (best - true[pick]),
            "split": 100 * (split(raw, multiple) - true[pick]),
            "held": float(((low <= true) & (true <= high)).mean()),
            "width": float((high - low).mean()),
            "bias": 100 * float((J - true).mean()),
            "square": 1e4 * float(((J - true) ** 2).mean()),
            "rules": 100 * (best - rule),
            "rules with the pilot's successes": 100 * (best - own),
        }
        if raw["rounds"]:
            bought = raw["rounds"][str(multiple)]
            after = np.array(bought["truth"]).mean(0)
            row["purchase"] = 100 * (best - after[int(J[: len(OPTIONS)].argmax())])
            more = made(chosen(bought["small"], AFTER), rng)
            post = posterior(base + more, facts, prior)
            J, (low, high) = post.expected(OPTIONS, multiple), bands(post, OPTIONS, multiple)
            row["16 more"] = 100 * (best - after[int(J.argmax())])
            row["16 more held"] = float(((low <= after) & (after <= high)).mean())
            row["16 more width"] = float((high - low).mean())
            row["16 more bias"] = 100 * float((J - after).mean())
        rows.append(row)
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Means over families, standard errors over worlds within them, and the best fixed rules in hindsight."""
    found: dict[str, Any] = {}
    for multiple in (5, 20):
        mine = [row for row in rows if row["multiple"] == multiple]
        by = {
            f: [row for row in mine if row["family"] == f] for f in dict.fromkeys(r["family"] for r in mine)
        }

        def over_families(key: str) -> Any:
            return np.mean([np.mean([row[key] for row in own], 0) for own in by.values()], 0)  # noqa: B023

        def error(values: Sequence[np.ndarray]) -> float:
            return float(np.sqrt(sum(x.var(ddof=1) / len(x) for x in values)) / len(values))

        keys = [key for key in mine[0] if key not in ("family", "multiple") and not key.startswith("rules")]
        score = {key: round(float(over_families(key)), 3) for key in keys}
        biases = [np.mean([row["bias"] for row in own]) for own in by.values()]
        score["worst bias"] = round(float(np.abs(biases).max()), 3)
        score["regret se"] = round(
            error([np.array([row["regret"] for row in own]) for own in by.values()]), 3
        )
        for key in ("rules", "rules with the pilot's successes"):
            regrets = over_families(key)
            k = int(regrets.argmin())
            less = [np.array([row["regret"] - row[key][k] for row in own]) for own in by.values()]
            name = f"{OPTIONS[k].recipe} K={OPTIONS[k].K:g} r={OPTIONS[k].r:g}"
            score[key] = [
                name,
                *(round(float(x), 3) for x in (regrets[k], np.mean([x.mean() for x in less]))),
            ]
            score[f"{key}: se of the difference"] = round(error(less), 3)
        shown = ("regret", "held", "width", "bias")
        score["families"] = {
            f: [round(float(np.mean([row[key] for row in own])), 2) for key in shown] for f, own in by.items()
        }
        found[str(multiple)] = score | {"worlds": len(mine)}
    return found


def jobs(worlds: Sequence[World], stage: str) -> list[Job]:
    """What is judged by which prior, worlds whose student is a table apart."""

    def early(world: World) -> bool:
        return world.table or world.number < (270 if world.family in VARIED else 90)

    known = [x for x in worlds if early(x)]
    test = [x for x in worlds if x.family not in VARIED and early(x) == (stage == "selection")]
    families = list(dict.fromkeys(x.family for x in test))
    without = {f: learn([x for x in known if not of(x, f)]) for f in families}
    if stage == "selection":
        folds = [learn([x for x in known if x.number % 3 != k or x.family in VARIED]) for k in range(3)]
    else:
        folds = [learn(known)] * 3
    found: list[Job] = []
    for title, table in (("", False), (", tables", True)):
        mine = [x for x in test if x.table == table]
        if mine:
            found.append((f"family left out{title}", mine, lambda world: without[world.family]))
            found.append((f"family known{title}", mine, lambda world: folds[world.number % 3]))
    return found


def of(world: World, family: str) -> bool:
    """Whether a world is of a family, or of it but for its student."""
    own = world.raw.get("world", "").rsplit("-", 1)[0]
    return family in (world.family, f"lab-{own}" if world.table else "")


def informed(worlds: Sequence[World], *, shuffled: bool) -> float:
    """Fraction of worlds whose trainings are called distinguishable at 5 %."""
    p = [
        distinguishable(
            made(chosen(x.raw["small"], DESIGNS["max"]), np.random.default_rng(k), shuffled=shuffled),
            permutations=199,
            seed=k,
        )
        for k, x in enumerate(worlds)
    ]
    return float(np.mean(np.array(p) < 0.05))


def main(
    data: Path,
    stage: Literal["selection", "test", "shuffled"],
    designs: list[str] = ["both"],  # noqa: B006 - read alone
    scores: Path | None = None,
) -> None:
    """Print the scores of every job, as JSON by budget, and write them to a file.

    data: the folder that `generate` filled; designs: some of DESIGNS.
    """
    worlds, found = read(data), {}
    if stage == "shuffled":
        for shuffled in (True, False):
            print(
                f"shuffled {shuffled}: distinguishable in {informed(worlds, shuffled=shuffled):.3f} of worlds"
            )
        return
    for title, test, prior_of in jobs(worlds, stage):
        for design in designs:
            rows = [
                row
                for k, world in enumerate(test)
                for row in judged(world, prior_of(world), design, np.random.default_rng(k))
            ]
            found[f"{title}, {design}"] = summary(rows)
            print(f"{title}, {design}: {json.dumps(found[f'{title}, {design}'])}", flush=True)
    if scores:
        scores.write_text(json.dumps(found))
