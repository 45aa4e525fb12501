"""Lengths under the student's tokenizer, and what training rows are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pilots
import pytest

from analysis.plan.costs import costs
from analysis.plan.offers import Purchase
from analysis.plan.planner import plan_pilot
from analysis.plan.read import lengths_of, read_pilot
from occupancy.runs import create_run


def rollout(name: str, prompts: list[float], output: list[int]) -> list[dict[str, object]]:
    return [
        {"kind": "rollout", "episode_id": name, "t": t, "prompt_tokens": prompt, "output_tokens": own}
        for t, (prompt, own) in enumerate(zip(prompts, output, strict=True), 1)
    ]


def test_prompts_grow_by_turns_and_what_is_around_them() -> None:
    turns = pd.DataFrame([*rollout("a", [100, 130, 165], [10, 5, 7]), *rollout("b", [120, 150], [20, 1])])
    found = lengths_of(pd.DataFrame({"parent": ["a", "b"], "switch_turn": [3, 1]}), turns)
    assert found.prefix.tolist() == [165, 120]
    assert found.start == 110
    assert found.step == pytest.approx((20 + 30 + 10) / 3)


def test_unknown_prompts_stay_unknown() -> None:
    turns = pd.DataFrame(rollout("a", [np.nan, np.nan], [10, 5]))
    found = lengths_of(pd.DataFrame({"parent": ["a"], "switch_turn": [2]}), turns)
    assert np.isnan([found.prefix[0], found.start, found.step]).all()


def test_a_training_row_is_prefix_turns_and_what_is_between_them(tmp_path: Path) -> None:
    """A pilot whose prompts start at 50 tokens and grow by the turn and 7 more."""
    bare = pilots.write_pilot(tmp_path / "bare", pilots.A, tasks=24)
    rows = {name: bare.read(name).to_pylist() for name in ("episodes", "turns")}
    prompt = {}
    for turn in sorted(rows["turns"], key=lambda row: (row["episode_id"], row["t"])):
        if turn["kind"] == "rollout":
            at = (turn["episode_id"], turn["t"])
            prompt.setdefault(at, 50)
            turn["prompt_tokens"] = prompt[at]
            prompt[turn["episode_id"], turn["t"] + 1] = prompt[at] + turn["output_tokens"] + 7
    run = create_run(tmp_path / "counted", bare.recipe, bare.info)
    run.commit(rows)
    pilot = read_pilot(run.folder)
    found, turns = costs(pilot), pilot.contexts.turns
    assert (pilot.lengths.start, pilot.lengths.step) == (50, 7)
    for K in (1, 3, pilot.recipe.T_max):
        whole = 0.0
        for c in range(len(pilot.contexts)):
            own = turns.student[turns.offsets[c] : turns.offsets[c + 1]][:K]
            whole += pilot.lengths.prefix[c] + own.sum() + 7 * (len(own) - 1)
        assert found.sequence[K - 1] == pytest.approx(whole / len(pilot.contexts))
    planned = plan_pilot(pilot, Purchase(1e7)).candidates
    bought = next(c for c in planned if c.recipe == "op-short" and c.r_tokens == 1 and c.K == 3)
    assert bought.sequence_tokens == pytest.approx(bought.contexts * found.sequence[2])
    blind = plan_pilot(read_pilot(bare.folder), Purchase(1e7)).candidates[0]
    assert np.isnan(blind.sequence_tokens)
