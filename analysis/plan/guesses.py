"""What nobody knows before a pilot: guesses with a source each, or measured in an earlier run of any kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentloop.run.episode import NO_DATA
from occupancy.importers.rows import WORDS
from occupancy.record.errors import DataError
from occupancy.record.recipe import INF
from occupancy.record.specs import Count, NotNegative, Positive, Share, check
from occupancy.runs import open_run

IN_WORDS = "words counted in"


@dataclass(frozen=True)
class Guesses:
    """What is not known before a pilot; each is printed with the answer."""

    turn_tokens: Positive = 150.0
    """Teacher output tokens a turn, reasoning included."""
    turns: Positive = 10.0
    """Turns of a demonstration."""
    continuation_turns: Positive | None = None
    """Teacher turns of a continuation; by default turns (1 - student_pass / 2)."""
    student_pass: Share = 0.5
    """pass@1 of the student."""
    teacher_pass: Share = 0.9
    icc: Share = 0.3
    """Intraclass correlation of the student's outcome by task: the fraction of its variance between tasks."""
    prompt_tokens: NotNegative = 2000.0
    """Prompt of a teacher turn; for money only, and none of it cached."""
    T_max: Count | None = None
    """None: as the environment has it."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each comes from, if it is not the default."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def counted_words(self) -> bool:
        """Whether turn_tokens are words: the run they were measured in has no token usage."""
        return self.sources.get("turn_tokens", "").startswith(IN_WORDS)

    @property
    def demo(self) -> float:
        """Turns of a demonstration within the horizon."""
        return min(self.turns, self.T_max or math.inf)

    @property
    def continuation(self) -> float:
        """Teacher turns of a continuation.

        A rollout that succeeds has half of the work left at a turn drawn uniformly, one that fails all of it.
        """
        if self.continuation_turns is not None:
            return min(self.continuation_turns, self.T_max or math.inf)
        return self.demo * (1 - self.student_pass / 2)

    def plain(self) -> dict[str, dict[str, Any]]:
        """Every guess with its source."""
        own = {name: value for name, value in asdict(self).items() if name != "sources"}
        own["continuation_turns"] = self.continuation
        derived = "turns (1 - student_pass / 2)"
        default = {"continuation_turns": derived} if self.continuation_turns is None else {}
        if self.demo < self.turns:
            own["turns"], default["turns"] = self.demo, "default, cut at T_max"
        return {
            name: {"value": value, "source": self.sources.get(name, default.get(name, "default"))}
            for name, value in own.items()
        }


def from_run(folder: str | Path, guesses: Guesses) -> tuple[Guesses, dict[str, Any]]:
    """Guesses of an earlier run of any kind, where none was given, and its names."""
    run = open_run(folder)
    columns = ["kind", "teacher_turns", "R", "status"]
    episodes = run.read("episodes", columns=columns).to_pandas()
    turns = run.read("turns", columns=["author", "output_tokens", "prompt_tokens", "counter"]).to_pandas()
    if episodes.empty:
        raise DataError(f"{folder} holds no episode: nothing can be measured in it; leave it out")
    taught = turns[turns["author"] == "teacher"]
    data = episodes[~episodes["status"].isin(NO_DATA)]
    rollouts, evaluated, demos, whole = (
        data[data["kind"] == kind] for kind in ("rollout", "evaluation", "demo", "continuation")
    )
    found = {
        "turn_tokens": taught["output_tokens"].mean(),
        "prompt_tokens": taught["prompt_tokens"].mean(),
        "turns": demos["teacher_turns"].mean(),
        "continuation_turns": whole["teacher_turns"].mean() if run.recipe.K == INF else math.nan,
    }
    measured: dict[str, Any] = {"T_max": run.recipe.T_max}
    measured |= {name: float(mean) for name, mean in found.items() if math.isfinite(mean)}
    measured = {name: value for name, value in measured.items() if name not in guesses.sources}
    sources = dict.fromkeys(measured, f"measured in {folder}")
    rates = {"student_pass": evaluated if rollouts.empty else rollouts, "teacher_pass": demos}
    for name, rows in rates.items():
        if rows.empty or name in guesses.sources:
            continue
        R = rows["R"].dropna()
        won, n = int(R.ge(run.recipe.success_at).sum()), len(R)
        if not n:
            sources[name] = f"default: {folder} has no rewards"
        elif 0 < won < n:
            measured[name], sources[name] = won / n, f"measured in {folder}"
        else:  # a standard error of 0 would claim to be certain
            measured[name] = (won + 0.5) / (n + 1)
            sources[name] = f"{won} of {n} in {folder}, moved inwards by half an episode"
    sources |= guesses.sources
    if "turn_tokens" in measured and taught["counter"].eq(WORDS).any():
        sources["turn_tokens"] = f"{IN_WORDS} {folder}, which has no usage: give --turn-tokens"
    # What an importer says for want of a name is nothing that a command can open.
    names = {name: value for name, value in run.info.items() if not str(value).startswith("imported")}
    names["success_at"] = run.recipe.success_at
    return replace(guesses, **measured, sources=sources), names
