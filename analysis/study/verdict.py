"""Predicted against measured: what a finished sweep says of the plan, of small runs, and of the claims."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, spearmanr

from analysis.compare.paired import LEVEL, holm
from analysis.curves.arms import Arm
from analysis.plan.report import finite
from analysis.study.accounts import REFERENCES, jobs_of, machines_of
from analysis.study.claims import CLAIMS, handback, judged
from analysis.study.config import PURE_BC, StudyConfig
from analysis.study.measured import Lead, Sweep, label, read_sweep, split_of
from analysis.study.registration import FILE, check_registration
from analysis.study.telling import markdown
from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError
from occupancy.record.reading import read_json


def write_verdict(folder: Path, config: StudyConfig) -> str:
    """Write verdict.json and verdict.md from the cells that are evaluated; returns the verdict in a line."""
    found = finite(verdict(folder, config))
    write_whole(folder / "verdict.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
    write_whole(folder / "verdict.md", markdown(found))
    return f"{found['said']} ({folder / 'verdict.md'})"


def verdict(folder: Path, config: StudyConfig) -> dict[str, Any]:
    """Everything that the cells of a study say, as plain values.

    Args:
        folder: The study's folder.
        config: Its study.toml.

    Raises:
        DataError: There is no registration, or fewer than two arms are evaluated at the target budget.
    """
    if not (folder / FILE).exists():
        raise DataError(f"{folder} has no registration: there is no prediction to compare with")
    check_registration(folder, config)
    registered = read_json(folder / FILE)
    sweep, missing = read_sweep(folder, registered)
    target = registered["target"]
    if len(sweep.groups(target)) < 2:
        raise DataError(
            f"{folder} has {len(sweep.groups(target))} arms evaluated at {target:,} teacher tokens: expected "
            f"at least 2; go on with the sweep"
        )
    budgets = [b for b in config.sweep.budgets if len(sweep.groups(b)) > 1]
    choice = {int(b): Arm.from_dict(arm) for b, arm in registered["choice"].items()}
    regrets = {str(budget): _regret(sweep, budget, choice[budget]) for budget in budgets}
    found = {
        "study": config.name,
        "registered": registered["date"],
        "sha256": registered["sha256"],
        "target": target,
        "status": registered["status"],
        "cells": {"registered": len(registered["cells"]), "evaluated": len(sweep.cells), "missing": missing},
        "references": {name: sweep.mean([name]) for name in REFERENCES if name in sweep.rates},
        "arms": [_measured(sweep, arm, budget) for budget in budgets for arm in sweep.groups(budget)],
        "primary": _primary(sweep, registered["primary"]),
        "regret": regrets,
        "ranking": _ranking(sweep, config, registered),
        "coverage": _coverage(sweep, budgets),
        "handback": handback(sweep, target, registered["gains"]),
        "claims": [judged(sweep, budget, claim) for budget in reversed(budgets) for claim in CLAIMS],
        "equal_C_tr": _equal_training_cost(sweep, budgets, choice[target]),
        "machines": machines_of(folder),
        "seconds": pd.DataFrame(jobs_of(folder), columns=["stage", "seconds"])
        .groupby("stage")["seconds"]
        .sum()
        .to_dict(),
    }
    return found | {"said": _said(found)}


def _measured(sweep: Sweep, arm: Arm, budget: int) -> dict[str, Any]:
    """An arm at a budget: predicted and measured, with both costs."""
    names = sweep.groups(budget)[arm]
    told = sweep.predicted[arm, budget]
    bought = [sweep.told(name) for name in names]
    rows = sweep.scores[sweep.scores["arm"].isin(names)]
    rate = sweep.rate(names)
    return {
        "arm": label(arm),
        **arm.to_dict(),
        "budget": budget,
        "seeds": len(names),
        "predicted": {name: told[name] for name in ("pass_at_1", "low", "high", "C_i", "C_tr")},
        "pass_at_1": rate.difference,
        "se": rate.se,
        "tasks": rate.tasks,
        "attempts": len(rows),
        "no_data": int(rows["no_data"].sum()),
        "by_split": rows.groupby(split_of(rows["task_id"]))["success"].mean().to_dict(),
        "C_i": float(np.mean([one["C_i"] for one in bought])),
        "C_tr": float(np.mean([one["C_tr"] for one in bought])),
    }


def _primary(sweep: Sweep, registered: Mapping[str, Any]) -> dict[str, Any]:
    groups = {label(arm): names for arm, names in sweep.groups(registered["budget"]).items()}
    told = {"predicted": dict(registered)}
    if registered["a"] not in groups or registered["b"] not in groups:
        return told | {"measured": None, "said": "not measured"}
    lead = sweep.lead([groups[registered["a"]]], [groups[registered["b"]]])
    return told | {
        "measured": asdict(lead),
        "in_band": registered["low"] <= lead.difference <= registered["high"],
        "said": lead.direction,
    }


def _regret(sweep: Sweep, budget: int, choice: Arm) -> dict[str, Any]:
    """The best measured arm minus the plan's choice, and a simultaneous 95 % interval of that.

    The interval compares with all m arms at once, as comparisons with the best do (Hsu 1984); that the
    largest of several noisy means is too large is part of its upper end. The lower end is wrong only where
    the lead of any arm is off, the upper end only where that of the truly best arm is: Bonferroni's quantile
    for m + 1 holds for both together.
    """
    leads, over_bc = sweep.leads(budget, choice), sweep.leads(budget, PURE_BC)
    adjusted = holm([lead.p for lead in over_bc.values()])
    better = [
        label(arm)
        for (arm, lead), p in zip(over_bc.items(), adjusted, strict=True)
        if p is not None and p < LEVEL and lead.difference > 0
    ]
    told: dict[str, Any] = {
        "choice": label(choice),
        "better_than_demonstrations": better,
        "status": "decided" if better else "undecided",
    }
    if not leads:
        return told | {"regret": None, "low": None, "high": None, "best": None}
    q = float(norm.ppf(1 - LEVEL / (len(leads) + 1)))
    best = max(leads, key=lambda arm: leads[arm].difference)
    return told | {
        "best": label(best if leads[best].difference > 0 else choice),
        "regret": max(leads[best].difference, 0.0),
        "low": max(0.0, *(one.difference - q * one.se for one in leads.values())),
        "high": max(0.0, *(one.difference + q * one.se for one in leads.values())),
    }


def _ranking(sweep: Sweep, config: StudyConfig, registered: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How well the plan, and one run at a part of the budget, order the arms at the target."""
    target = registered["target"]
    groups = sweep.groups(target)
    truth = {arm: sweep.mean(names) for arm, names in groups.items()}
    pairs = {frozenset((a, b)): sweep.lead([groups[a]], [groups[b]]) for a, b in combinations(groups, 2)}
    p = dict(zip(pairs, holm([lead.p for lead in pairs.values()]), strict=True))
    told_apart = {pair for pair, value in p.items() if value is not None and value < LEVEL}
    predicted = {
        Arm.from_dict(one): one["pass_at_1"] for one in registered["cells"] if one["budget"] == target
    }
    seconds = {(job["stage"], job["job"]): job["seconds"] for job in jobs_of(sweep.folder)}
    of_plan = sum(s for (stage, _), s in seconds.items() if stage in ("pilot", "trainings"))
    sources: list[tuple[str, dict[Arm, float], float, float]] = [("the plan", predicted, 0.0, of_plan)]
    for share in config.sweep.fractions:
        budget = round(share * target)
        first = {arm: own[0] for arm, own in sweep.groups(budget).items() if own[0].endswith("-s0")}
        took = sum(seconds.get(("sweep", name), 0.0) for name in first.values())
        values = {arm: sweep.mean([name]) for arm, name in first.items()}
        sources.append((f"one run at {share:g} of the budget", values, budget * len(first), took))
    found = []
    for name, values, tokens, took in sources:
        common = [arm for arm in truth if arm in values]
        if len(common) < 3:
            continue
        x, y = ([source[arm] for arm in common] for source in (values, truth))
        pick = common[int(np.argmax(x))]
        found.append(
            {
                "by": name,
                "arms": len(common),
                "pair_accuracy": _pairs(common, values, truth),
                "pair_accuracy_told_apart": _pairs(common, values, truth, among=told_apart),
                "pairs_told_apart": len(told_apart),
                "spearman": float(spearmanr(x, y).statistic) if len(set(x)) > 1 and len(set(y)) > 1 else None,
                "picks": label(pick),
                "regret": max(truth.values()) - truth[pick],
                "tokens_bought_apart": tokens,
                "seconds": took,
            }
        )
    return found


def _pairs(
    arms: Sequence[Arm],
    values: Mapping[Arm, float],
    truth: Mapping[Arm, float],
    among: set[frozenset[Arm]] | None = None,
) -> float | None:
    """Fraction of pairs in the same order; a tie of either counts half."""
    hits = [
        0.5 + 0.5 * float(np.sign(values[a] - values[b]) * np.sign(truth[a] - truth[b]))
        for a, b in combinations(arms, 2)
        if among is None or frozenset((a, b)) in among
    ]
    return float(np.mean(hits)) if hits else None


def _coverage(sweep: Sweep, budgets: Sequence[int]) -> dict[str, Any]:
    """How often pass@1, and the lead on pure BC, are within their 90 % bands, and how far off they are."""
    levels, leads = dict[tuple[Arm, int], Lead](), dict[tuple[Arm, int], Lead]()
    for budget in budgets:
        levels |= {(arm, budget): sweep.rate(names) for arm, names in sweep.groups(budget).items()}
        leads |= {(arm, budget): lead for arm, lead in sweep.leads(budget, PURE_BC).items()}
    return {
        "pass_at_1": _within(sweep, levels, ("pass_at_1", "low", "high")),
        "over_demonstrations": _within(sweep, leads, ("over_bc", "over_bc_low", "over_bc_high")),
    }


def _within(
    sweep: Sweep, measured: Mapping[tuple[Arm, int], Lead], names: Sequence[str]
) -> dict[str, Any] | None:
    if not measured:
        return None
    mean, low, high = np.array([[sweep.predicted[which][name] for name in names] for which in measured]).T
    seen = np.array([one.difference for one in measured.values()])
    slack = 1.645 * np.array([one.se for one in measured.values()])
    return {
        "n": len(measured),
        "inside": float(((low <= seen) & (seen <= high)).mean()),
        "inside_with_noise": float(((low - slack <= seen) & (seen <= high + slack)).mean()),
        "width": float((high - low).mean()),
        "bias": float((mean - seen).mean()),
    }


def _equal_training_cost(sweep: Sweep, budgets: Sequence[int], choice: Arm) -> dict[str, Any] | None:
    """pass@1 of arms where each has trained on the C_tr of the plan's choice at the target.

    Between budgets pass@1 is linear in log C_tr; arms that do not reach that C_tr are left out.
    """
    points: dict[Arm, list[tuple[float, float]]] = {}
    for budget in budgets:
        for arm, names in sweep.groups(budget).items():
            C_tr = float(np.mean([sweep.told(name)["C_tr"] for name in names]))
            if C_tr > 0:
                points.setdefault(arm, []).append((C_tr, sweep.mean(names)))
    if choice not in points:
        return None
    at = max(points[choice])[0]
    values = {}
    for arm, own in points.items():
        x, y = zip(*sorted(own), strict=True)
        if x[0] <= at <= x[-1]:
            values[label(arm)] = float(np.interp(np.log(at), np.log(x), y))
    best = max(values, key=lambda name: values[name])
    regret = values[best] - values[label(choice)]
    return {"C_tr": at, "arms": values, "best": best, "choice": label(choice), "regret": regret}


def _said(found: Mapping[str, Any]) -> str:
    own, cells = found["regret"].get(str(found["target"])), found["cells"]
    primary = found["primary"]
    said = f"{cells['evaluated']} of {cells['registered']} cells"
    if primary["measured"]:
        m = primary["measured"]
        said += (
            f"; {primary['predicted']['b']} minus {primary['predicted']['a']}: predicted "
            f"{primary['predicted']['expected']:+.3f}, measured {m['difference']:+.3f} ± {m['se'] or 0:.3f}"
        )
    if own and own["regret"] is not None:
        said += f"; regret {own['regret']:.3f} [{own['low']:.3f}, {own['high']:.3f}], {own['status']}"
    return said
