"""Contexts chosen after the rollout, by novelty or mixed outcomes, at equal teacher tokens.

    python -m benchmarks planner_prior.chosen --worlds-file feature_worlds.py --data DIR --numbers 12

The switch turn is drawn uniformly, and the teacher is asked only where the context passes a filter:
    novel   no demonstration that the student was trained on has this context
    mixed   the student's rollout and two replays from the context neither all succeed nor all fail
    first   (no filter) the switch is the rollout's first novel turn; rollouts without one are skipped
Filters cost no teacher token; they cost student rollouts. Each arm is played with the same demonstrations,
students and rollouts with and without a filter, so that differences are paired; pass@1 is exact. A world
takes 6 CPU seconds; what is in DIR is not played again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.arms import DIMENSION
from benchmarks.planner_prior import families, laboratory
from benchmarks.planner_prior.cuts import student
from benchmarks.planner_prior.generate import worlds_of
from benchmarks.planner_prior.stored import INF, VARIED, logit
from occupancy import RunError

Rows = list[dict[str, Any]]
Form = tuple[str, int, float]
FILTERS = ("none", "novel", "mixed", "first")
FORMS = (("op-short", 3), ("op-short", INF), ("op-success", INF), ("op-critical", INF))
SHARES = (0.5, 0.75, 1.0)
ARMS = [(*form, r) for r in SHARES for form in FORMS]
MULTIPLES = (5, 20)
REPLAYS = 2
"""Of the student at each context, beside its own rollout."""
MOST_CHUNKS = 60
"""Of rollouts; where they do not supply the budget, less is bought, and that is counted."""
GENERAL = tuple(name for name in families.NAMES if name not in VARIED)
TABLES = ("lab-short", "lab-middle", "lab-long", "lab-any")


class Chooser:
    """A world, its pilot, and its student's way of learning."""

    def __init__(self, base: Any, family: str, number: int, seed: int) -> None:
        self.base, self.key, self.learn = base, [seed, number], student
        if family in TABLES:
            drawn = laboratory.drawn(family, number, seed)
            S, U = drawn.successors.shape
            succ = np.broadcast_to(drawn.successors[:, None], (S, drawn.A, U)).astype(np.int64)
            logits = np.log(np.maximum(drawn.base, 1e-30))
            self.world = base.World(
                drawn.name, family, drawn.start, succ, drawn.chances, drawn.teacher, drawn.contexts,
                drawn.features, drawn.tokens.astype(float), drawn.horizon, [""] * S, logits,
            )  # fmt: skip
            self.learn = lambda base, world, counts: drawn.student.learn(drawn.base, drawn.features, counts)
        else:
            self.world = families.draw(base, family, number, seed)
        pilot = base.Pilot(self.world, seed * 1000 + number)
        self.price, self.owned = pilot.price, pilot.owned_success

    def trained(self, counts: np.ndarray) -> np.ndarray:
        """[X, A] the student of counts [X, A] of teacher turns."""
        return np.asarray(self.learn(self.base, self.world, counts))

    def played(self, multiple: int, rep: int) -> list[dict[str, Any]]:
        """A row for each form, share and filter at a budget in pilot costs, the pilot's own charged."""
        world, base, rows = self.world, self.base, []
        left = (multiple - 1) * self.price
        for r in SHARES:
            seed = [*self.key, multiple, rep, int(100 * r)]
            shown = base.demos(world, (1 - r) * left, np.random.default_rng([*seed, 1]))
            first = shown + self.owned[0]
            policy, known = self.trained(first), first.sum(1) > 0
            for name, K in FORMS:
                for rule in FILTERS:
                    labels, told = self._bought(policy, known, (name, K), rule, r * left, seed)
                    J = float(world.J(self.trained(shown + self.owned[1] + labels)[world.ctx]))
                    told |= {"arm": [name, K, r], "filter": rule, "multiple": multiple, "rep": rep}
                    rows.append(told | {"J": round(J, 5)})
        return rows

    def _bought(  # noqa: PLR0917 - private
        self,
        policy: np.ndarray,
        known: np.ndarray,
        form: tuple[str, int],
        rule: str,
        budget: float,
        seed: list[int],
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """[X, A] labels that a budget buys, and what share of turns passed and of the budget was spent."""
        world, base, (name, K) = self.world, self.base, form
        labels, spent = np.zeros((world.X, world.A)), 0.0
        size = int(1.2 * budget / world.facts["tail_tokens"]) + 50
        offered = passed = 0
        for chunk in range(MOST_CHUNKS):
            rng = np.random.default_rng([*seed, 2, chunk])
            states, _, length, won = base.rollouts(world, policy, size, rng)
            t = 1 + (rng.random(size) * length).astype(int)
            novel = (states >= 0) & ~known[world.ctx[np.maximum(states, 0)]]
            use = np.ones(size, bool) if name != "op-critical" else ~won
            offered += int(use.sum())
            if rule == "first":
                t = 1 + novel.argmax(0)
            s = base.switched(states, length, t)
            if rule in ("novel", "first"):
                use &= novel[t - 1, np.arange(size)]
            elif rule == "mixed":
                use[use] = self._mixed(policy, s[use], t[use], won[use], rng)
            passed += int(use.sum())
            if not use.any():
                continue
            rng, N = np.random.default_rng([*seed, 3, chunk]), int(use.sum())
            taken = base.continued(world, s[use], t[use], lambda j, _, N=N: N if j < K else 0, rng)
            turns, win, cost = taken
            m = base.within(cost, budget - spent)
            chosen = np.arange(N) < m
            labels += base.count(
                world, turns, chosen & win if name in ("op-success", "op-critical") else chosen
            )
            spent += float(cost[:m].sum())
            if m < N:
                break
        return labels, {"passed": passed / max(offered, 1), "spent": spent / budget}

    def _mixed(
        self, policy: np.ndarray, s: np.ndarray, t: np.ndarray, won: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """[N] whether rollout and replays from states s at turns t neither all succeed nor all fail."""
        world, cum, wins = self.world, np.cumsum(policy, 1)[self.world.ctx], won.astype(int)
        for _ in range(REPLAYS):
            at, left = s.copy(), np.arange(len(s))
            for j in range(world.horizon):
                left = left[(at[left] < world.S) & (t[left] + j <= world.horizon)]
                if not len(left):
                    break
                at[left] = world.step(at[left], cum, rng)[1]
            wins = wins + (at == world.S)
        return np.asarray((wins > 0) & (wins < REPLAYS + 1))


def leads(worlds: list[Rows], multiple: int, arm: list[Any] | None = None) -> dict[str, np.ndarray]:
    """By filter: [W] pass@1 minus that without it, in points, of an arm or the mean of all."""
    found: dict[str, list[float]] = {rule: [] for rule in FILTERS}
    for rows in worlds:
        some = [x for x in rows if x["multiple"] == multiple and arm in (None, x["arm"])]
        of = {(tuple(x["arm"]), x["rep"], x["filter"]): x["J"] for x in some}
        for rule, means in found.items():
            own = [J - of[*key[:2], "none"] for key, J in of.items() if key[2] == rule]
            means.append(100 * float(np.mean(own)))
    return {rule: np.array(values) for rule, values in found.items()}


def carried(worlds: list[Rows], multiple: int, rules: tuple[str, ...]) -> np.ndarray:
    """[W] pass@1 of the best arm with one of some filters: chosen in one repeat, valued in the others."""
    values = []
    for rows in worlds:
        some = [x for x in rows if x["multiple"] == multiple and x["filter"] in rules]
        reps = sorted({x["rep"] for x in some})
        J = np.array([[x["J"] for x in some if x["rep"] == rep] for rep in reps])
        others = [(J.sum(0) - own) / (len(reps) - 1) for own in J]
        values.append(np.mean([rest[own.argmax()] for own, rest in zip(J, others, strict=True)]))
    return 100 * np.array(values)


def learnt(worlds: list[Rows]) -> tuple[dict[Form, tuple[float, ...]], float]:
    """Of buying mixed contexts alone, in logits: by arm the mean lead at budgets 5 and 20; and the standard
    deviation of an arm's lead over worlds, for r = 1, in proportion to r."""
    leads: dict[Any, list[list[float]]] = {(*arm, multiple): [] for arm in ARMS for multiple in MULTIPLES}
    for rows in worlds:
        of = {(*x["arm"], x["multiple"], x["rep"], x["filter"]): logit(x["J"]) for x in rows}
        reps = sorted({x["rep"] for x in rows})
        for key, found in leads.items():
            found.append([of[*key, rep, "mixed"] - of[*key, rep, "none"] for rep in reps])
    every, r = np.array(list(leads.values())), np.array([key[2] for key in leads])  # [arms, W, reps]
    rest = (every - every.mean((1, 2), keepdims=True)) / r[:, None, None]
    # Repeats of a world are independent: the noise of one is in no product of two.
    variance = float((rest[..., :-1] * rest[..., 1:]).mean())
    mean = {key: round(float(np.mean(found)), 4) for key, found in leads.items()}
    return {arm: tuple(mean[*arm, m] for m in MULTIPLES) for arm in ARMS}, max(variance, 0.0) ** 0.5


def write_leads(prior: Path, general: list[Rows], tables: list[Rows], told: str) -> None:
    """Put what was learnt into a prior's file: leads where students generalise, spreads of each kind."""
    known = json.loads(prior.read_text())
    leads, spread = learnt(general)
    spreads, at = {False: spread, True: learnt(tables)[1]}, DIMENSION - 1
    for component, table in zip(known["covariance_of"], known["tables"], strict=True):
        known["covariances"][component][at * (at + 1) // 2 + at] = float(f"{spreads[table] ** 2:.4g}")
    known["leads"] = [[name, "inf" if K == INF else K, r, *pair] for (name, K, r), pair in leads.items()]
    known["provenance"]["mixed contexts"] = told
    prior.write_text(json.dumps(known))


def with_error(lead: np.ndarray) -> str:
    """Mean and standard error over worlds."""
    return f"{lead.mean():+.2f} ± {lead.std(ddof=1) / np.sqrt(len(lead)):.2f}"


def table(worlds: list[Rows]) -> None:
    """Print what filters add to each arm, to the best arm, and what they cost."""
    for multiple in MULTIPLES:
        for arm in ARMS:
            lead = leads(worlds, multiple, list(arm))
            print(f"  {multiple:>2} {arm}: {', '.join(with_error(lead[rule]) for rule in FILTERS[1:])}")
        some = [x for rows in worlds for x in rows if x["multiple"] == multiple]
        for what in ("passed", "spent"):
            mean = [np.mean([x[what] for x in some if x["filter"] == rule]) for rule in FILTERS[1:]]
            print(f"  {multiple:>2} {what}: {', '.join(f'{x:.2f}' for x in mean)}")
        plain = carried(worlds, multiple, ("none",))
        gains = [with_error(carried(worlds, multiple, ("none", rule)) - plain) for rule in FILTERS[1:]]
        print(f"  {multiple:>2} best arm, the filter's beside the others: {', '.join(gains)}")


def main(
    *,
    data: Path,
    worlds_file: Path,
    seed: int = 5501,
    first: int = 0,
    numbers: int = 12,  # worlds of each family
    reps: int = 2,
    prior: Path | None = None,  # a prior.json, into which the leads of `mixed` are written
    date: str = "",
) -> None:
    """Play the worlds that are not there yet, and print what each filter adds."""
    base = worlds_of(worlds_file)
    data.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Rows]] = {name: [] for name in (*GENERAL, *TABLES)}
    for number in range(first, first + numbers):
        for name, worlds in found.items():
            file = data / f"{name}-{number:03d}.json"
            try:
                if not file.exists():
                    world = Chooser(base, name, number, seed)
                    rows = [row for m in MULTIPLES for rep in range(reps) for row in world.played(m, rep)]
                    file.write_text(json.dumps(rows))
            except (RuntimeError, RunError) as error:
                print(f"{name} {number}: {error}", file=sys.stderr, flush=True)
                continue
            worlds.append(json.loads(file.read_text()))
    kinds = {"generalise": GENERAL, "are tables": TABLES}
    general, tables = ([rows for name in names for rows in found[name]] for names in kinds.values())
    for kind, worlds in zip(kinds, (general, tables), strict=True):
        print(f"students that {kind}, {len(worlds)} worlds, points of pass@1 by {', '.join(FILTERS[1:])}")
        table(worlds)
        print(f"  mean leads of mixed in logits, and their shared standard deviation: {learnt(worlds)}")
    for name, worlds in found.items():
        for multiple in MULTIPLES:
            lead = leads(worlds, multiple)
            print(f"  {multiple:>2} {name}: {', '.join(with_error(lead[rule]) for rule in FILTERS[1:])}")
    if prior is not None:
        how = (
            f"{len(general)} worlds of {len(GENERAL)} families, {len(tables)} of tables, seed {seed}, {date}"
        )
        write_leads(prior, general, tables, how)
