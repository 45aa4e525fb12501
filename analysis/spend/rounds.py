"""Buying in rounds: first what any arm can use, then trainings on all that is paid for, then the winner.

    1 plan from the pilot, with small trainings on cuts of it
    2 buy a share of the budget as demonstrations and whole continuations, in the pilot's proportion
    3 train students of contrasting arms on cuts of the pilot and the purchase together; where the budget is
      large and the prior does not know the family, buy more, with the best arms' demonstrations, and again
    4 buy the rest in the form of the arm with the highest expectation; its rollouts are played by a
      student of the demonstrations that are paid for
    5 train the final student on everything: successes of 1 to 3, and what 4 bought

Where the order is clear, what is left of steps 2 and 3 is left out. Each step's decision, evidence and
price is in OUT/spend.json before the next one begins; the same call on the same folder goes on where it was
stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from agentloop.cuts.cut import Cell, cut, own_traces
from agentloop.cuts.pooled import pooled
from agentloop.run.episode import boundary
from analysis.curves.arms import Arm, arms_of
from analysis.curves.curves import posterior
from analysis.curves.draws import band, drawn
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts
from analysis.plan.facts import facts_of
from analysis.plan.kept import evidence, own_tasks
from analysis.plan.offers import Purchase, offers
from analysis.plan.pilot import Pilot
from analysis.plan.pool import with_pool
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.trainer import Bench, Effort, Progress, Trainer, train_more
from analysis.spend.state import KEEP_OPEN, PURCHASES, State, begin, charged, decision, done, steps_of, winner
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import BudgetStopped, DataError, InputError, RunError
from occupancy.record.recipe import INF, K_text, Recipe, preset
from occupancy.runs import Run, only_writer, open_run
from occupancy.statistics.clusters import mean_over_tasks

Buyer = Callable[[Recipe, float, int, Path, list[Path]], object]
"""Collects with a recipe for at most a budget of teacher tokens into a run folder: (recipe, budget, seed,
folder, demonstrations). The student of the rollouts is trained on the folders of demonstrations, or is pi_0
where there are none. Called again on a folder, it goes on, or leaves what is finished."""
FIRST_SHARE = 0.2
"""Of what is left after the pilot, for the purchase that keeps arms open; less of large budgets."""
MOST_FIRST = 2.0
"""Times the pilot's cost: the first purchase is never larger."""
LARGE = 10.0
"""Times the pilot's cost: where more is left after the pilot, there is a second purchase."""
UNKNOWN = 0.5
"""Probability that the family is none of the prior's, from which on there is one: others do not need it."""
SECOND_SHARE = 1 / 3
"""Of what is left after the pilot, for the second purchase; less of large budgets."""
MOST_SECOND = 6.0
"""Times the pilot's cost: the second purchase is never larger."""
NEAR_BEST = 0.01
"""Of pass@1: arms that are so much worse than the best weigh 1 / e of it in the second purchase's form."""
CLEAR = 0.95
"""Probability of beating the best of every other recipe from which on no arm is kept open any longer."""
DUST = 0.002
"""Share of the budget below which the rest is not spent: it buys less than an episode."""


@dataclass(frozen=True)
class Rounds:
    """One purchase in rounds; a folder holds all of it."""

    pilot: Run
    folder: Path
    budget: float
    """Teacher tokens (C_i), the pilot's included where it is charged."""
    buy: Buyer
    trainer: Trainer
    trainer_name: str
    effort: Effort = Effort(16)  # noqa: RUF009 - frozen
    """Trainings before each decision."""
    final: Trainer | None = None
    """Trains the final student; None: as the others are trained."""
    charged: bool = True
    beside: tuple[Path, ...] = ()
    """Run folders that every student is trained on too, as D_BC; paid for before the budget."""
    pool: int | None = None
    """Tasks that the budget can be spread over; None: nobody said."""
    planned: Arm | None = None
    """What the plan recommended before these rounds."""
    mixed: bool = False
    """Contexts with mixed outcomes alone are compared, too, as in the plan."""
    seed: int = 0
    progress: Progress = lambda line: None

    def __post_init__(self) -> None:
        if not 0 < self.budget < INF:
            raise InputError(f"--budget {self.budget}: expected teacher tokens above 0")
        if self.left <= 0:
            raise InputError(
                f"--budget {self.budget:,.0f} is what the pilot has cost ({self.facts.pilot:,.0f}): give "
                f"more, or say that it is sunk"
            )

    @cached_property
    def read(self) -> Pilot:
        """The pilot as arrays."""
        pilot = read_pilot(self.pilot.folder)
        return pilot if self.pool is None else with_pool(pilot, self.pool)

    @cached_property
    def facts(self) -> Facts:
        """What the pilot says without trainings."""
        return facts_of(self.read, sunk=sum(sum(teacher_tokens(run)) for run in self.beside))

    @property
    def left(self) -> float:
        """Teacher tokens to buy beside the pilot."""
        return self.budget - (self.facts.pilot if self.charged else 0.0)

    @property
    def asked(self) -> State:
        """What a record in the folder must have been begun with."""
        return {
            "pilot": str(self.pilot.folder.resolve()),
            "pilot_tokens": self.facts.pilot,
            "budget": self.budget,
            "charged": self.charged,
            "beside": [str(run.resolve()) for run in self.beside],
            "beside_tokens": self.facts.sunk,
            "pool": self.pool,
            "trainer": self.trainer_name,
            "seed": self.seed,
        }

    @property
    def demonstrations(self) -> Recipe:
        """The recipe that buys demonstrations."""
        like = self.pilot.recipe
        return preset("pure-bc", teacher=like.teacher, T_max=like.T_max, success_at=like.success_at)


def spend(rounds: Rounds) -> State:
    """Carry the rounds out, or go on with them; returns the record in OUT/spend.json.

    Args:
        rounds: Pilot, folder, budget, who buys and who trains.

    Returns:
        `spent` teacher tokens and `steps`: each with its price, what came of it (`said`) and the decision.

    Raises:
        DataError: The folder holds something else, or what is in it is damaged or of another purchase.
        RunError: Another process writes the folder, or a purchase or a training failed; what is finished is
            kept, and the same call goes on.
    """
    rounds.folder.mkdir(parents=True, exist_ok=True)
    with only_writer(rounds.folder):
        state = begin(rounds.folder, rounds.asked)
        work = {
            "plan": lambda: _decide(rounds, [rounds.pilot]),
            "first purchase": lambda: _first_purchase(rounds),
            "decide": lambda: _with_more(rounds, _decide(rounds, _pools(rounds, 1))),
            "second purchase": lambda: _second_purchase(rounds, state["steps"]["decide"]),
            "decide again": lambda: _decide(rounds, _pools(rounds, 2)),
            "demonstrations": lambda: _buy_demonstrations(rounds, state),
            "continuations": lambda: _buy_continuations(rounds, state),
            "final student": lambda: _final(rounds, state),
        }
        if state["steps"]:
            rounds.progress(f"spend: goes on after: {', '.join(state['steps'])}")
        for name in steps_of(state):
            if name in state["steps"]:
                continue
            rounds.progress(f"spend: {name} begins")
            found = work[name]()
            done(rounds.folder, state, name, found)
            left = max(rounds.left - state["spent"], 0.0)
            cost = f"; it cost {found['price']:,.0f} teacher tokens" if found["price"] else ""
            rounds.progress(f"spend: {name}: {found['said']}{cost}; {left:,.0f} teacher tokens are left")
    return state


def _decide(rounds: Rounds, runs: Sequence[Run]) -> State:
    """Train contenders on cuts of all that is paid for, and choose."""
    facts = rounds.facts
    every = [a for a in arms_of(rounds.read.recipe.T_max, mixed=rounds.mixed) if a.pilot_traces == "success"]
    offered = offers(rounds.read, Purchase(rounds.budget, charged=rounds.charged), every)
    arms = [offer.arm for offer in offered if not offer.why_not]
    if not arms:
        raise InputError(f"the budget buys nothing of any recipe ({offered[0].why_not}): give more")
    trained: list[Training] = []
    for run in runs:
        bench = Bench(run, rounds.trainer, rounds.trainer_name, rounds.beside)
        # What was trained before the last purchase is read, not added to.
        effort = rounds.effort if run is runs[-1] else Effort(0)
        trained = train_more(
            trained, bench, effort, facts=facts, arms=arms, tokens=rounds.left, progress=rounds.progress
        )
    return _choice(rounds, facts, arms, trained)


def _choice(rounds: Rounds, facts: Facts, arms: Sequence[Arm], trained: Sequence[Training]) -> State:
    believed = posterior(trained, facts)
    draws = drawn(believed, arms, [rounds.left / 2, rounds.left], pilot=facts.pilot, seed=rounds.seed)
    J = draws.at([rounds.left] * len(arms))
    mean = J.mean(0)
    best = int(mean.argmax())
    low, high = band(J[:, [best]])[:, 0].tolist()
    best_of: dict[str, int] = {}
    for at in np.argsort(-mean):
        best_of.setdefault(arms[at].recipe, int(at))
    rivals = [at for recipe, at in best_of.items() if recipe != arms[best].recipe]
    planned = arms[best].name if rounds.planned is None else rounds.planned.name
    told = "" if planned == arms[best].name else f" (the plan recommended {planned})"
    weight = np.exp((mean - mean.max()) / NEAR_BEST)
    demonstrations = float(weight @ [1 - arm.r for arm in arms] / weight.sum())
    sure = float(min((J[:, best] > J[:, other]).mean() for other in rivals)) if rivals else 1.0
    return {
        "arm": arms[best].to_dict(),
        "pass_at_1": float(mean[best]),
        "low": low,
        "high": high,
        "beats_each_other_recipe": sure,
        "clear": sure >= CLEAR,
        "unseen": believed.unseen,
        "demonstrations": min(max(demonstrations, 0.0), 1.0),
        "trainings": [
            t.arm.to_dict() | {"tokens": t.tokens, "seed": t.seed, "pass_at_1": t.pass_at_1, "se": t.se}
            for t in trained
        ],
        "price": 0.0,
        "said": f"{arms[best].name}{told}: expected pass@1 {mean[best]:.3f} (90 % interval {low:.3f} to "
        f"{high:.3f}); it beats the best of every other recipe with probability {sure:.0%} or more; "
        f"trainings: {len(trained)}",
    }


def _first_purchase(rounds: Rounds) -> State:
    """Demonstrations and whole continuations of pi_0, in the pilot's proportion."""
    tokens = min(FIRST_SHARE * rounds.left, MOST_FIRST * rounds.facts.pilot)
    demos = rounds.read.demo_turns.output.sum() / rounds.facts.pilot
    return _keep_open(rounds, "first purchase", tokens, demos)


def _with_more(rounds: Rounds, decided: State) -> State:
    """A decision and the teacher tokens of the second purchase; 0 where there is none."""
    pilot, left = rounds.facts.pilot, rounds.left
    tokens = min(SECOND_SHARE * left, MOST_SECOND * pilot)
    more = left > LARGE * pilot and not decided["clear"] and decided["unseen"] >= UNKNOWN
    return decided | {"more": tokens if more else 0.0}


def _second_purchase(rounds: Rounds, decision: State) -> State:
    """The same with the demonstrations that the best arms would buy; both parts are bought in any case."""
    return _keep_open(
        rounds, "second purchase", decision["more"], min(max(decision["demonstrations"], 0.1), 0.9)
    )


def _keep_open(rounds: Rounds, step: str, tokens: float, demos: float) -> State:
    """Buy a share `demos` of the tokens as demonstrations, the rest as whole continuations."""
    shown, continued = PURCHASES[step]
    price = _bought(rounds, rounds.demonstrations, demos * tokens, shown)
    price += _bought(rounds, rounds.pilot.recipe, (1 - demos) * tokens, continued)
    return _purchase(rounds, step, price)


def _purchase(rounds: Rounds, step: str, price: float, of: str = "") -> State:
    """The record of a purchase, what was bought in words."""
    kinds = [kind for run in _open(rounds, PURCHASES[step]) for kind in run.column("episodes", "kind")]
    bought = {"demonstrations": kinds.count("demo"), "continuations": kinds.count("continuation")}
    said = " and ".join(f"{n:,} {what}" for what, n in bought.items() if n) or "nothing"
    return {"price": price, "folders": list(PURCHASES[step]), "said": f"{said}{of}"}


def _bought(
    rounds: Rounds, recipe: Recipe, budget: float, name: str, demonstrations: Sequence[Path] = ()
) -> float:
    """Buy into OUT/name; returns what it cost, which is never more than the budget."""
    if budget < max(DUST * rounds.left, 1.0):
        return 0.0
    folder, names = rounds.folder / name, sorted(sum(PURCHASES.values(), ()))
    K = "" if recipe.rho == "teacher" else f" K={K_text(recipe.K)}"
    rounds.progress(f"spend: {name}: {recipe.name}{K} for at most {budget:,.0f} teacher tokens")
    charged(folder)  # Refuses what was begun and is damaged.
    with suppress(BudgetStopped), boundary(RunError, f"the buyer for {name} ({folder}; purchases are kept)"):
        seed = rounds.seed + 1 + names.index(name)
        rounds.buy(recipe, math.floor(budget), seed, folder, list(demonstrations))
    price = charged(folder)
    if price:
        _refuse_other(rounds, recipe, open_run(folder))
    if price > budget:
        raise RunError(
            f"{folder} has cost {price:,.0f} teacher tokens, and its share was {budget:,.0f}: the buyer must "
            f"not exceed its budget; nothing more is bought"
        )
    return price


def _refuse_other(rounds: Rounds, recipe: Recipe, bought: Run) -> None:
    """DataError where a purchase was made with another recipe, or in another environment."""
    asked = recipe.to_dict() | {"n": bought.recipe.n, "name": bought.recipe.name}
    places = [str(run.info.get("environment", "")) for run in (bought, rounds.pilot)]
    if bought.recipe.to_dict() != asked or (all(places) and places[0] != places[1]):
        raise DataError(
            f"{bought.folder} was bought as {bought.recipe.name} in {places[0]!r}, and {recipe.name} in "
            f"{places[1]!r} was asked: restore it, or name a new folder"
        )


def _pools(rounds: Rounds, purchases: int) -> list[Run]:
    """For cuts: the pilot, and it with the first purchases as one run, after each of them."""
    parts, found = [rounds.pilot], [rounds.pilot]
    for step, name in zip(KEEP_OPEN[:purchases], ("pool", "pool-2"), strict=False):
        parts += _open(rounds, PURCHASES[step])
        folder = rounds.folder / name
        if not folder.exists():
            pooled(parts, folder)
        found.append(_made(folder, parts))
    return found


def _made(folder: Path, of: Sequence[Run]) -> Run:
    """A run that was made of others; DataError where it is damaged, or made of something else."""
    again = f"where {folder} is moved away, it is made again"
    try:
        held, paid = sum(teacher_tokens(folder)), sum(sum(teacher_tokens(run.folder)) for run in of)
    except DataError as error:
        raise DataError(f"{error}; {again}") from error
    if held != paid:
        raise DataError(f"{folder} holds {held:,} teacher tokens, and what it is made of {paid:,}: {again}")
    return open_run(folder)


def _open(rounds: Rounds, names: Sequence[str]) -> list[Run]:
    return [open_run(rounds.folder / name) for name in names if (rounds.folder / name / "run.json").exists()]


def _rest(rounds: Rounds, state: State) -> float:
    """Teacher tokens that are bought in the winner's form."""
    return rounds.left - sum(float(state["steps"].get(step, {}).get("price", 0.0)) for step in KEEP_OPEN)


def _buy_demonstrations(rounds: Rounds, state: State) -> State:
    budget = (1 - winner(state).r) * _rest(rounds, state)
    return _purchase(rounds, "demonstrations", _bought(rounds, rounds.demonstrations, budget, "demos"))


def _buy_continuations(rounds: Rounds, state: State) -> State:
    arm, own = winner(state), _open(rounds, ("first-demos", "second-demos", "demos"))
    if len(rounds.read.demo_turns.lengths):
        folder = rounds.folder / "pilot-demos"
        if not folder.exists():
            with whole_folder(folder) as draft:
                cut(rounds.pilot, Cell(rounds.demonstrations, r=0.0), draft)
        own = [open_run(folder), *own]
    shown = [*(run.folder for run in own), *rounds.beside] if own else []
    budget = arm.r * _rest(rounds, state)
    price = _bought(rounds, arm.recipe_of(rounds.pilot.recipe), budget, "contexts", shown)
    return _purchase(rounds, "continuations", price, of=f" of {arm.name}")


def _final(rounds: Rounds, state: State) -> State:
    """Train the final student on all that was paid for."""
    folders = []
    for run in (rounds.pilot, *_open(rounds, [name for step in KEEP_OPEN for name in PURCHASES[step]])):
        folder = rounds.folder / f"own-{run.folder.name}"
        if not folder.exists():
            with whole_folder(folder) as draft:
                own_traces(run, draft, success=True)
        folders.append(_made(folder, [run]).folder)
    folders += [*(run.folder for run in _open(rounds, ("demos", "contexts"))), *rounds.beside]
    with boundary(RunError, f"the trainer {rounds.trainer_name} on all that was bought ({rounds.folder})"):
        answer = (rounds.final or rounds.trainer)(folders, rounds.seed)
    seen = own_tasks(*map(open_run, folders))
    rows = evidence(answer, own_tasks=seen, like=rounds.pilot, trainer=rounds.trainer_name)
    won = [row["score"] >= rounds.pilot.recipe.success_at for row in rows]
    tasks, clusters = ([row[name] for row in rows] for name in ("task_id", "cluster_id"))
    mean, se = map(float, mean_over_tasks(won, task=tasks, cluster=clusters))
    hoped = decision(state)
    told: State = {"price": 0.0, "folders": [str(folder) for folder in folders], "pass_at_1": mean, "se": se}
    told |= {"evaluation": str(answer)} if isinstance(answer, str | Path) else {}
    return told | {
        "said": f"pass@1 {mean:.3f} ± {se:.3f} (expected {hoped['pass_at_1']:.3f}, 90 % interval "
        f"{hoped['low']:.3f} to {hoped['high']:.3f}), trained on {len(folders)} run folders"
    }
