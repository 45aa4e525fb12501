"""How long contexts are for the student: what its provider counted of the prompts that it read in rollouts.

A training row is a context and its continuation, so its length is the prompt before the first teacher turn,
the teacher's turns, and for each turn between what the environment and the template add.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.plan.pilot import Floats, Lengths


def lengths_of(continuations: pd.DataFrame, turns: pd.DataFrame) -> Lengths:
    """continuations: [C] rows of `episodes`; turns: rows of `turns`, the student's rollouts among them."""
    own = turns[turns["kind"] == "rollout"].sort_values(["episode_id", "t"], kind="stable")
    prompt = own.set_index(["episode_id", "t"])["prompt_tokens"].astype(float)
    where = pd.MultiIndex.from_frame(continuations[["parent", "switch_turn"]])
    follows = own["episode_id"].eq(own["episode_id"].shift()).to_numpy(bool)
    before = (prompt.to_numpy() + own["output_tokens"].to_numpy(float))[:-1]
    grown = prompt.to_numpy() - np.append(np.nan, before)[: len(own)]
    return Lengths(
        prefix=np.asarray(prompt.reindex(where), np.float64),
        start=_mean(prompt.to_numpy()[own["t"].to_numpy() == 1]),
        step=_mean(grown[follows]),
    )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan
