"""The prediction of a study as a file, written before anything else is bought, refused once it is changed.

STUDY/registration.json           what is predicted of every cell, and what will be compared
STUDY/registration.json.sha256    its hash
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit  # type: ignore[import-untyped, unused-ignore]

from analysis.curves.arms import Arm
from analysis.curves.curves import posterior
from analysis.curves.draws import band, drawn
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts
from analysis.plan.facts import facts_of
from analysis.plan.kept import kept_trainings
from analysis.plan.offers import Purchase, offers
from analysis.plan.pilot import Pilot
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.report import finite
from analysis.study.cells import SweepCell, cells_of
from analysis.study.config import PURE_BC, StudyConfig, count
from analysis.study.measured import label
from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError, installed_version
from occupancy.record.reading import read_json, reading
from occupancy.runs import open_run

FORMAT = 2
FILE = "registration.json"
PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "transformers", "vllm", "alfworld", "textworld")
DETECTABLE = 1.96 + 0.84
"""Standard errors of the smallest difference that is seen in 80 % of repetitions at 5 %."""
GUESSED_SE = 0.025 * 2**0.5
"""Of the difference of two trainings with one attempt each at 274 games, where no form was trained twice."""
GUESSED_GAMES = 274
LARGE_ENOUGH = 0.9
"""Of what a collection holds: an arm that is expected to need more may be one that it cannot supply."""
_TABLES = ("episodes", "turns", "proposals", "traces")


def bench_name(config: StudyConfig) -> str:
    """What the pilot's trainings are kept under."""
    return f"study {config.name}"


def register(folder: Path, config: StudyConfig) -> None:
    """Write the registration of a study that has its plan.

    Raises DataError where there is one: a prediction is made once.
    """
    file = folder / FILE
    if file.exists():
        raise DataError(f"{file} exists: a study is registered once; begin a new one in a new folder")
    if any((folder / "cells").glob("*")):
        raise DataError(
            f"{folder} has cells and no {FILE}: restore it; a prediction is made before the sweep"
        )
    plans = read_json(folder / "plan.json")
    pilot = read_pilot(folder / "pilot")
    if config.pool:
        pilot = replace(pilot, pool=max(config.pool, len(pilot.clusters)), pool_stated=True)
    choice = {int(b): _choice(config, pilot, int(b), p["candidates"]) for b, p in plans.items()}
    kept = kept_trainings(open_run(folder / "pilot"), trainer=bench_name(config))
    trainings = list(kept.values())
    cells = cells_of(config.sweep, choice)
    facts = facts_of(pilot, sunk=sum(teacher_tokens(folder / "demonstrations" / "first")))
    predicted = _predictions(pilot, facts, trainings, cells, seed=config.seed)
    told = {
        "format": FORMAT,
        "study": config.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": {name: of() for name, of in _registered(folder).items()},
        "versions": _versions(),
        "source_sha256": _source(),
        "target": config.sweep.target,
        "status": plans[str(config.sweep.target)]["status"],
        "recommended": {b: Arm.from_dict(p["recommended"]).to_dict() for b, p in plans.items()},
        "choice": {str(b): arm.to_dict() | {"name": label(arm)} for b, arm in choice.items()},
        "primary": _primary(config, choice[config.sweep.target], predicted, trainings),
        "gains": plans[str(config.sweep.target)]["gains"],
        "cells": [cell.to_dict() | predicted[cell.arm, cell.budget] for cell in cells],
    }
    text = json.dumps(finite(told), indent=1, allow_nan=False) + "\n"
    write_whole(folder / f"{FILE}.sha256", f"{hashlib.sha256(text.encode()).hexdigest()}  {FILE}\n")
    write_whole(file, text)


def check_registration(folder: Path, config: StudyConfig) -> str:
    """What is registered, in one line; empty before there is a registration.

    Raises DataError where the registration, or what it was made of, has been changed since.
    """
    file = folder / FILE
    if not file.exists():
        return ""
    listed = file.with_name(f"{FILE}.sha256")
    with reading(listed):
        begun = " ".join(listed.read_text("utf-8").split()[:1] if listed.exists() else []) or "nothing"
    now = _of_file(file)
    if begun != now:
        raise DataError(f"{file} has SHA-256 {now}, and {begun} was registered: restore the file")
    told = read_json(file)
    registered = _registered(folder)
    if told["format"] == 1:
        registered["config"] = lambda: _of_values(config)
    for name, of in registered.items():
        if (was := told["sha256"][name]) != (found := of()):
            raise DataError(
                f"the {name} of {folder} has SHA-256 {found}, and {was} was registered on {told['date']}: "
                f"restore it, or begin a new study in a new folder"
            )
    primary = told["primary"]
    return (
        f"registered {told['date']}, every hash holds: {primary['b']} against {primary['a']} at "
        f"{primary['budget']:,} teacher tokens is predicted to differ by {primary['expected']:+.3f} "
        f"[{primary['low']:+.3f}, {primary['high']:+.3f}]; the smallest difference that can be seen is "
        f"{primary['smallest_difference']:.3f}"
    )


def refuse_other(begun: StudyConfig, asked: StudyConfig, folder: Path) -> None:
    """DataError where a study in a folder was begun with another config: the first entry that differs."""
    if begun.sha256 == asked.sha256:
        return
    was, now = dict(_entries(begun.plain())), dict(_entries(asked.plain()))
    name = next(name for name in [*was, *now] if was.get(name) != now.get(name))
    raise DataError(
        f"{folder} was begun with {name} = {was.get(name)!r}, and {now.get(name)!r} is asked (SHA-256 of "
        f"the configs {begun.sha256[:12]} and {asked.sha256[:12]}): go on with "
        f"{folder / 'study.toml'}, or name a new folder"
    )


def _entries(plain: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(plain, dict) and plain:
        for key, value in plain.items():
            yield from _entries(value, f"{name}.{key}" if name else key)
    else:
        yield name, plain


def _registered(folder: Path) -> dict[str, Callable[[], str]]:
    return {
        "config": lambda: _of_file(folder / "study.toml"),
        "pilot": lambda: _of_run(folder / "pilot"),
        "demonstrations": lambda: _of_run(folder / "demonstrations" / "first"),
        "plan": lambda: _of_file(folder / "plan.json"),
    }


def _of_file(file: Path) -> str:
    with reading(file):
        return hashlib.sha256(file.read_bytes()).hexdigest()


def _of_values(config: StudyConfig) -> str:
    """What registrations of format 1 have of the config: its values, all settings of sampling among them."""
    plain = config.plain()
    plain["equipment"]["sampling"] = config.equipment["sampling"]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _of_run(folder: Path) -> str:
    """SHA-256 over the files of what was played; rewards of trainings are in the plan."""
    run, digest = open_run(folder), hashlib.sha256()
    files = [file for table in _TABLES for file in run.files(table)]
    for file in [folder / "recipe.toml", *sorted(files)]:
        digest.update(str(file.relative_to(folder)).encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _choice(config: StudyConfig, pilot: Pilot, budget: int, candidates: Sequence[dict[str, Any]]) -> Arm:
    """The plan's most expected candidate among those that the collection is large enough for."""
    rollouts, demos = count(config.collection.tasks), count(config.demonstrations.more)
    for told in candidates:
        arm = Arm.from_dict(told)
        (offer,) = offers(pilot, Purchase(float(budget), charged=False), [arm])
        enough = rollouts is None or offer.proposals <= LARGE_ENOUGH * rollouts * config.collection.n
        if enough and (demos is None or offer.demos <= LARGE_ENOUGH * demos):
            return arm
    return PURE_BC


def _predictions(
    pilot: Pilot, facts: Facts, trainings: Sequence[Training], cells: Sequence[SweepCell], *, seed: int
) -> dict[tuple[Arm, int], dict[str, float]]:
    """By arm and budget: pass@1 with its band, its lead on pure BC with its band, and both costs."""
    arms = list(dict.fromkeys([PURE_BC, *(cell.arm for cell in cells)]))
    budgets = sorted({cell.budget for cell in cells})
    draws = drawn(posterior(trainings, facts), arms, budgets, pilot=facts.pilot, seed=seed)
    J = expit(draws.logits)
    found = {}
    for b, budget in enumerate(budgets):
        low, high = band(J[:, :, b])
        lead = J[:, :, b] - J[:, :1, b]
        lead_low, lead_high = band(lead)
        each = offers(pilot, Purchase(float(budget), charged=False), arms)
        for a, arm in enumerate(arms):
            found[arm, budget] = {
                "pass_at_1": float(J[:, a, b].mean()),
                "low": float(low[a]),
                "high": float(high[a]),
                "over_bc": float(lead[:, a].mean()),
                "over_bc_low": float(lead_low[a]),
                "over_bc_high": float(lead_high[a]),
                "C_i": float(each[a].cost_inference),
                "C_tr": float(each[a].cost_training),
            }
    return found


def _primary(
    config: StudyConfig,
    choice: Arm,
    predicted: dict[tuple[Arm, int], dict[str, float]],
    trainings: Sequence[Training],
) -> dict[str, Any]:
    """The plan's choice against pure BC; against the best other arm where it is pure BC."""
    budget, sign = config.sweep.target, 1.0
    arm = choice
    if choice.r == 0:
        rest = [arm for arm in config.sweep.arms if arm.r]
        arm, sign = max(rest, key=lambda arm: predicted[arm, budget]["pass_at_1"], default=choice), -1.0
    lead = predicted[arm, budget]
    ends = sorted((sign * lead["over_bc_low"], sign * lead["over_bc_high"]))
    se, source = _expected_se(config, trainings)
    names = (label(arm), label(PURE_BC)) if sign < 0 else (label(PURE_BC), label(arm))
    return {
        "a": names[0],
        "b": names[1],
        "budget": budget,
        "expected": sign * lead["over_bc"],
        "low": ends[0],
        "high": ends[1],
        "seeds": config.sweep.decisive_seeds,
        "attempts": config.evaluation.attempts,
        "se": se,
        "se_from": source,
        "smallest_difference": DETECTABLE * se,
    }


def _expected_se(config: StudyConfig, trainings: Sequence[Training]) -> tuple[float, str]:
    """Standard error of the primary comparison: S seeds an arm, A attempts at each of G games.

    Two trainings of one form differ by v + 2 s^2: v by games and attempts, which falls with G A, and s^2 by
    the seed of data and training; both fall with S. What trainings of other forms differ by at each game
    beyond v is theirs at any seed, and falls with G alone.
    """
    S, A = config.sweep.decisive_seeds, config.evaluation.attempts
    alike, other = list[list[float]](), list[list[float]]()
    for a, b in combinations(trainings, 2):
        x, y = (dict(zip(t.tasks, np.divide(t.successes, t.attempts), strict=True)) for t in (a, b))
        d = [x[game] - y[game] for game in x if game in y]
        same = (a.arm.form, round(a.tokens)) == (b.arm.form, round(b.tokens))
        if len(d) > 1:
            (alike if same else other).append(d)

    def at_games(pairs: list[list[float]]) -> float:
        return float(np.mean([np.var(d, ddof=1) / len(d) for d in pairs])) if pairs else 0.0

    v = at_games(alike)
    if not v:
        games = config.evaluation.games or GUESSED_GAMES
        guess = GUESSED_SE * (GUESSED_GAMES / games / A / S) ** 0.5
        return guess, "a guess: no two small trainings of one form differ"
    between = float(np.mean([np.mean(d) ** 2 for d in alike]))
    tried, played = (float(np.mean([f(t.attempts) for t in trainings])) for f in (sum, len))
    games = config.evaluation.games or round(played)
    variance = (v * tried / (games * A) + max(between - v, 0.0)) / S
    variance += max(at_games(other) - v, 0.0) * played / games
    return variance**0.5, f"{len(alike)} pairs of small trainings of one form"


def _versions() -> dict[str, str]:
    known = {name: installed_version(name) for name in ("fewsteps", *PACKAGES)}
    found = {"python": platform.python_version()} | {name: known[name] for name in known if known[name]}
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return found | ({"commit": done.stdout.strip()} if done.returncode == 0 else {})


def _source() -> str:
    """SHA-256 over the project's own modules: what made the prediction, installed or not."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in ("occupancy", "simulate", "agentloop", "sft", "analysis"):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return digest.hexdigest()
