"""What a sweep measured: its cells, the attempts of their students, and paired differences of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from agentloop.run.evaluate import RESIDUE
from analysis.compare.paired import training_variance
from analysis.compare.scores import read_scores
from analysis.curves.arms import Arm
from analysis.study.accounts import REFERENCES
from analysis.study.cells import SweepCell
from occupancy.record.errors import DataError
from occupancy.record.reading import read_json
from occupancy.record.specs import NotNegative, check_entries
from occupancy.statistics.clusters import mean_over_tasks


@dataclass(frozen=True)
class Lead:
    """A difference of pass@1, paired by task."""

    difference: float
    se: float
    """Clustered by task, and what another seed of data and training would change."""
    low: float
    """Of a 95 % interval."""
    high: float
    p: float
    tasks: int

    @property
    def direction(self) -> str:
        """Whether the claim that the difference is positive holds."""
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "cannot tell"


@dataclass(frozen=True, eq=False)
class Sweep:
    """What was measured."""

    folder: Path
    cells: Mapping[SweepCell, Mapping[str, Any]]
    """Evaluated cells, with what was predicted of them."""
    scores: pd.DataFrame
    """Attempts, as `read_scores` gives them; an arm is a cell's name."""

    @cached_property
    def predicted(self) -> dict[tuple[Arm, int], Mapping[str, Any]]:
        """What is registered of each arm and budget."""
        return {(cell.arm, cell.budget): told for cell, told in self.cells.items()}

    def groups(self, budget: int) -> dict[Arm, list[str]]:
        """Names of the cells of each arm at a budget."""
        found: dict[Arm, list[str]] = {}
        for cell in self.cells:
            if cell.budget == budget:
                found.setdefault(cell.arm, []).append(cell.name)
        return found

    @cached_property
    def rates(self) -> pd.DataFrame:
        """[task, cell] mean success."""
        return self.scores.groupby(["task_id", "arm"])["success"].mean().unstack("arm")

    @cached_property
    def clusters(self) -> pd.Series[str]:
        """[task] its cluster."""
        return self.scores.drop_duplicates("task_id").set_index("task_id")["cluster_id"]

    @cached_property
    def seed_variance(self) -> float:
        """Variance of pass@1 between seeds of data and training, beyond that of tasks and attempts.

        Pooled over all arms with several seeds: an arm with a single one has it too.
        """
        total, count = 0.0, 0
        for budget in {cell.budget for cell in self.cells}:
            for names in self.groups(budget).values():
                if found := training_variance(self.rates[names].dropna()):
                    component, _, df = found
                    total, count = total + df * (df + 1) * component, count + df
        return total / count if count else 0.0

    def mean(self, names: Sequence[str]) -> float:
        """pass@1 over cells."""
        return float(self.rates[list(names)].dropna().mean().mean())

    def rate(self, names: Sequence[str]) -> Lead:
        """pass@1 of an arm, over its cells, as a difference from 0."""
        return self._weighted(dict.fromkeys(names, 1 / len(names)))

    def lead(self, a: Sequence[Sequence[str]], b: Sequence[Sequence[str]]) -> Lead:
        """Mean of arms b minus mean of arms a; an arm is the list of its cells, one a seed."""
        return self.mean_lead([(a, b)])

    def mean_lead(self, pairs: Sequence[tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]]) -> Lead:
        """Mean over pairs (a, b) of the lead of arms b on arms a."""
        weights: dict[str, float] = {}
        sides = [(arms, sign) for a, b in pairs for arms, sign in ((a, -1.0), (b, 1.0))]
        for arms, sign in sides:
            for names in arms:
                part = sign / len(pairs) / len(arms) / len(names)
                weights |= {name: weights.get(name, 0.0) + part for name in names}
        return self._weighted(weights)

    def leads(self, budget: int, baseline: Arm) -> dict[Arm, Lead]:
        """Every other arm at a budget minus the baseline; empty where that was not measured."""
        groups = self.groups(budget)
        if baseline not in groups:
            return {}
        return {arm: self.lead([groups[baseline]], [own]) for arm, own in groups.items() if arm != baseline}

    def told(self, name: str) -> dict[str, Any]:
        """What a cell was trained on."""
        file = self.folder / "cells" / f"{name}.json"
        found: dict[str, Any] = read_json(file)
        check_entries(found, {"C_i": NotNegative, "C_tr": NotNegative}, of=str(file))
        return found

    def _weighted(self, weights: Mapping[str, float]) -> Lead:
        rates = self.rates[list(weights)].dropna()
        cluster = self.clusters[rates.index].to_numpy()
        if (C := len(set(cluster))) < 2:
            raise DataError(f"{', '.join(weights)} share {C} different tasks: expected at least 2")
        w = np.array([*weights.values()])
        values = rates.to_numpy() @ w
        mean, error = mean_over_tasks(values, task=rates.index, cluster=cluster)
        d, se = float(mean), float(np.sqrt(error**2 + self.seed_variance * float(w @ w)))
        z = float(norm.ppf(0.975))
        if se < RESIDUE:
            # Every task has the same difference: the error that Wilson's interval gives a rate of 0 or 1.
            se = float(np.sqrt(w @ w)) * z / (C + z**2)
        return Lead(d, se, d - z * se, d + z * se, float(2 * norm.sf(abs(d) / se)), len(rates))


def read_sweep(folder: Path, registered: Mapping[str, Any]) -> tuple[Sweep, list[dict[str, str]]]:
    """The evaluated cells of a study, and which registered ones are missing, with the reason.

    registered: the registration.
    """
    every = {SweepCell.from_dict(told): told for told in registered["cells"]}
    places = {name: folder / "cells" / name for name in (*REFERENCES, *(cell.name for cell in every))}
    own = {name: place for name, place in places.items() if (place / "run.json").exists()}
    cells = {cell: told for cell, told in every.items() if cell.name in own}
    missing = []
    for left in (cell.name for cell in every if cell.name not in own):
        note = folder / "cells" / f"{left}.json"
        why = read_json(note).get("cannot", "not evaluated") if note.exists() else "not evaluated"
        missing.append({"cell": left, "why": why})
    if not own:
        raise DataError(f"{folder}/cells holds no evaluation: go on with the sweep")
    scores = read_scores(own)
    for name, n in scores.groupby("arm")["missing"].first().items():
        if n:
            raise DataError(
                f"{own[str(name)]} lacks {n:,} of its attempts: restore its parts/ from where the study was "
                f"copied, or delete the folder, and the same command plays it again"
            )
    return Sweep(folder, cells, scores), missing


def label(arm: Arm) -> str:
    """The arm's name for tables, with the traces of the pilot where they are not the usual ones."""
    return arm.name + ("" if arm.pilot_traces == "success" else " with all of the pilot's traces")


def split_of(task_ids: pd.Series[str]) -> pd.Series[str]:
    """What stands before the first `/` of each task id; "" for ids that name no split."""
    return task_ids.str.extract("^([^/]+)/", expand=False).fillna("")
