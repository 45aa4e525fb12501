"""The record of a purchase in rounds, OUT/spend.json: checked against what was bought, and written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agentloop.ledger.store import Ledger
from analysis.curves.arms import Arm
from analysis.plan.read import teacher_tokens
from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.reading import read_json
from occupancy.record.specs import NotNegative, Share, check_entries

State = dict[str, Any]
FILE = "spend.json"
PURCHASES = {
    "first purchase": ("first-demos", "first-contexts"),
    "second purchase": ("second-demos", "second-contexts"),
    "demonstrations": ("demos",),
    "continuations": ("contexts",),
}
"""Run folders that each step buys."""
KEEP_OPEN = ("first purchase", "second purchase")
"""Purchases that every arm can be cut from."""
_DECISIONS = ("decide again", "decide", "plan")
_BEGUN = ("lock", f".{FILE}.draft")
"""What a kill before the record is written leaves behind."""
_STATE: dict[str, Any] = {"steps": Mapping[str, Any], "spent": NotNegative}
_STEP: dict[str, Any] = {"price": NotNegative, "said": str}
_DECISION = {"arm": Mapping[str, Any], "clear": bool, "pass_at_1": Share, "low": Share, "high": Share}
_FINAL = {"folders": tuple[str, ...], "pass_at_1": Share, "se": NotNegative}
_MORE: dict[str, dict[str, Any]] = dict.fromkeys(_DECISIONS, _DECISION) | {"final student": _FINAL}
"""Entries of single steps, beside those of all."""


def begin(folder: Path, asked: Mapping[str, Any]) -> State:
    """The record of a folder, new or begun.

    Args:
        folder: of all purchases; it exists, and this process is its only writer.
        asked: settings of the purchase, plain values.

    Raises:
        DataError: the folder holds something else, or the record is damaged, of another purchase, or does
            not agree with what was bought.
    """
    file = folder / FILE
    others = sorted(item.name for item in folder.iterdir() if item.name not in (*_BEGUN, FILE))
    state = recorded(folder) if file.exists() else {}
    if state and (state["steps"] or others):  # else nothing was bought yet
        for name, value in asked.items():
            if state.get(name) != value:
                raise DataError(
                    f"{file} is of another purchase ({name}={state.get(name)!r}, and {value!r} was asked): "
                    f"go on with the same settings, or name a new folder"
                )
        return state
    if others:
        raise DataError(f"{folder} holds {others[0]!r} and no {FILE}: restore it, or name a new folder")
    state = {**asked, "spent": 0.0, "steps": {}}
    _write(folder, state)
    return state


def recorded(folder: Path) -> State:
    """The record of a begun folder; DataError where it is damaged, or does not agree with what was bought."""
    state: State = read_json(folder / FILE, then="restore it, or name a new folder")
    check_entries(state, _STATE, of=str(folder / FILE))
    _check_steps(folder, state)
    return state


HEADS = ("step", "teacher tokens", "what came of it")


def rows_of(state: State) -> list[tuple[str, str, str]]:
    """The finished steps as rows under HEADS."""
    return [(name, f"{step['price']:,.0f}", step["said"]) for name, step in state["steps"].items()]


def steps_of(state: State) -> Iterator[str]:
    """Names of the steps in their order; what follows a step is known once that is done."""
    yield "plan"
    if not state["steps"]["plan"]["clear"]:
        yield "first purchase"
        yield "decide"
        if state["steps"]["decide"].get("more"):
            yield "second purchase"
            yield "decide again"
    if winner(state).r < 1:
        yield "demonstrations"
    if winner(state).r:
        yield "continuations"
    yield "final student"


def decision(state: State) -> State:
    """The last one."""
    found: State = next(state["steps"][name] for name in _DECISIONS if name in state["steps"])
    return found


def winner(state: State) -> Arm:
    """The arm that the last decision chose."""
    return Arm.from_dict(decision(state)["arm"])


def done(folder: Path, state: State, name: str, step: State) -> None:
    """Add a finished step to the record, on the disk too."""
    state["steps"][name] = step
    state["spent"] = spent(state)
    _write(folder, state)


def spent(state: State) -> float:
    """Teacher tokens of all finished steps."""
    return float(sum(step["price"] for step in state["steps"].values()))


def charged(folder: Path) -> float:
    """Teacher tokens that a purchase has cost at most, lost calls included; 0 before it begins."""
    if not (folder / "run.json").exists():
        return 0.0
    bought, file = sum(teacher_tokens(folder)), folder / "ledger.sqlite"
    if not file.exists():
        return float(bought)
    try:
        with closing(Ledger(file, read_only=True)) as ledger:
            return float(max(ledger.charged("inference"), bought))
    except RunError as error:
        raise DataError(str(error)) from error


def _write(folder: Path, state: State) -> None:
    write_whole(folder / FILE, json.dumps(state, indent=2) + "\n")


def _check_steps(folder: Path, state: State) -> None:
    file, steps = folder / FILE, state["steps"]
    found, missing = [], ""
    for name in steps_of(state):
        if name not in steps:
            missing = name
            break
        _check_step(folder, name, steps[name])
        found.append(name)
    if more := [name for name in steps if name not in found]:
        raise DataError(
            f"{file} has the step {more[0]!r}, where {missing or 'no further one'!r} comes: restore it, or "
            f"name a new folder"
        )
    if state["spent"] != spent(state):
        raise DataError(
            f"{file} has spent={state['spent']}, and its steps have cost {spent(state)}: restore it"
        )


def _check_step(folder: Path, name: str, step: Any) -> None:
    where = f"step {name!r} of {folder / FILE}"
    check_entries(step, _STEP | _MORE.get(name, {}), of=where)
    if step.get("more") is not None:
        check_entries(step, {"more": NotNegative, "demonstrations": Share}, of=where)
    if "arm" in _MORE.get(name, {}):
        try:
            Arm.from_dict(step["arm"])
        except InputError as error:
            raise DataError(f"{where}: {error}") from error
    bought = PURCHASES.get(name, ())
    cost = sum(charged(folder / each) for each in bought)
    if step["price"] != cost:
        raise DataError(
            f"{where} has price={step['price']:,.0f}, and {' and '.join(bought) or 'nothing'} in {folder} "
            f"cost {cost:,.0f} teacher tokens: restore what was changed"
        )
