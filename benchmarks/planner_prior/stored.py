"""What `generate` stored, as `learn` and `judge` read it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.arms import Arm, Array, Traces, features
from analysis.curves.evidence import Training
from analysis.curves.prior import Count, Facts, fact_vector

INF = 10**6
"""K of whole continuations in the files."""
VARIED = ("varied", "lab-tables")
"""Families whose worlds each draw their own structure or student; they have no component of their own."""
DEPTHS = (1, 2, 3, 5, INF)
STORED = (
    [("pure-bc", INF, 0.0)]
    + [("op-short", K, r) for r in (0.25, 0.5, 0.75, 1.0) for K in DEPTHS]
    + [(name, INF, r) for name in ("op-success", "op-critical", "oec") for r in (0.5, 0.75, 1.0)]
    + [("op-failed", K, r) for r in (0.5, 0.75, 1.0) for K in DEPTHS]
)
"""(recipe, K, r) of the options in the order of the stored truths."""


def arm_of(key: Any, traces: Traces = "success") -> Arm:
    """The arm of a stored (recipe, K, r)."""
    name, K, r = key
    if name in ("pilot", "pilot-success"):
        name, traces = "pilot", "success" if name == "pilot-success" else "all"
    return Arm(name, float("inf") if K >= INF else float(K), float(r), traces)


OPTIONS = [arm_of(key) for key in STORED]
BOTH = [arm_of(key, traces) for traces in ("success", "all") for key in STORED]
ROWS = {
    (m, traces): np.array([features(arm_of(key, traces), m, final=True) for key in STORED])
    for m in (5, 20)
    for traces in ("success", "all")
}
"""[45, 54] features of the options, by budget in pilot costs and the pilot's traces that are trained on."""


@dataclass(frozen=True)
class World:
    """One world as EM reads it: sums of squares of small trainings and of final students at 5 and at 20.

    Attributes:
        family, number: which world.
        XX, Xy, yy: [3, 54, 54], [3, 54] and [3] weighted sums of squares of features and logits.
        count: [3] observations.
        final: [2, 90] logits of the options at 5 and 20, with successes and with all of the pilot's traces.
        facts: [12] of the pilot.
        raw: the file.
    """

    family: str
    number: int
    XX: Array
    Xy: Array
    yy: Array
    count: Array
    final: Array
    facts: Array
    raw: dict[str, Any]

    @property
    def table(self) -> bool:
        """Whether the student is a table, as in the laboratory's own families."""
        return self.family.startswith("lab-")


def facts_of(raw: dict[str, Any]) -> Facts:
    """Facts from the stored rates; the number of hand-backs is what these pilots usually have."""
    f = raw["facts"]

    def count(key: str, n: int) -> Count | None:
        return (f[key] * n, n) if n and np.isfinite(f[key]) else None

    return Facts(
        student=count("J0", 60),
        teacher=count("JT", 40),
        learner=count("Tc", 60),
        failed=count("Tf", int(f["n_failed"])),
        early=count("T_early", 30),
        late=count("T_late", 30),
        handback0=count("U0", 120),
        handback1=count("U1", 120),
        handback5=count("U5", 100),
        T_max=f["T_max"],
        nll_demo=f["nll_demo"],
        nll_tail=f["nll_tail"],
        nll_rollout=f["nll_roll"],
        turns_demo=f["turns_demo"],
        turns_tail=f["turns_tail"],
    )


def logit(p: Any) -> Array:
    """Of probabilities clipped to [.01, .99]."""
    p = np.clip(np.asarray(p, float), 0.01, 0.99)
    return np.asarray(np.log(p / (1 - p)))


def truth(raw: dict[str, Any], multiple: int, role: str) -> Array:
    """[45] pass@1 of the options, mean of the repeats."""
    return np.asarray(np.mean(raw["truth"][f"{role}-{multiple}"], 0))


def small(stored: dict[str, Any]) -> Training | None:
    """A stored training, evaluated without noise; None where it is too small."""
    size = stored["demo"] + stored["op"]
    if size < 0.08 or stored["arm"][0] == "none":
        return None
    return Training(arm_of(stored["arm"]), stored["demo"], stored["op"], 0, (stored["J"],), (1,))


def world_of(raw: dict[str, Any]) -> World:
    """A stored world for EM."""
    rows, values, scale = [], [], []
    for stored in [*raw["small"], *(s for bought in raw["rounds"].values() for s in bought["small"])]:
        if (training := small(stored)) is not None:
            rows.append(training.row(1.0))
            values.append(stored["J"])
            scale.append(max(training.size(1.0), 0.1))
    X, y, p = np.array(rows), logit(values), np.array(scale)
    XX, Xy, yy = [(X.T * p) @ X], [X.T @ (p * y)], [float((p * y * y).sum())]
    final = []
    for multiple in (5, 20):
        own, every = (logit(truth(raw, multiple, role)) for role in ("plan-success", "plan"))
        X, y = np.vstack([ROWS[multiple, "success"], ROWS[multiple, "all"]]), np.concatenate([own, every])
        final.append(y)
        XX.append(X.T @ X)
        Xy.append(X.T @ y)
        yy.append(float(y @ y))
    return World(
        family=raw["family"],
        number=raw["number"],
        XX=np.array(XX),
        Xy=np.array(Xy),
        yy=np.array(yy),
        count=np.array([len(rows), *[2 * len(OPTIONS)] * 2], float),
        final=np.array(final),
        facts=fact_vector(facts_of(raw)),
        raw=raw,
    )


def read(folder: Path) -> list[World]:
    """All stored worlds of a folder."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise SystemExit(f"{folder} holds no worlds (*.json): fill it by `planner_prior generate --out`")
    return [world_of(json.loads(file.read_text())) for file in files]
