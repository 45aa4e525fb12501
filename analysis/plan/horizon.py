"""A pilot as it would have been with a shorter horizon: what lies beyond turn N was never played.

An episode that is longer than N fails at N. A context beyond N, and every episode that begins there, is
left out; since t' was drawn from the whole rollout, contexts of long rollouts then count a little less than
in a pilot that had been collected with T_max = N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy.record.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def cut(
    episodes: pd.DataFrame, turns: pd.DataFrame, *, T_max: int, recorded: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `episodes` and `turns` within the first T_max turns; `recorded` is the pilot's own horizon."""
    if not 1 <= T_max <= recorded:
        raise InputError(
            f"T_max={T_max}: the pilot was recorded with T_max={recorded}, and what happens later is not in "
            f"it; expected 1 to {recorded}; for more, collect a pilot with --set T_max={T_max}"
        )
    first = turns.groupby("episode_id")["t"].min()
    begins = episodes["episode_id"].map(first).fillna(episodes["switch_turn"])
    episodes = episodes[begins <= T_max].copy()
    late = (episodes["length"] > T_max).to_numpy(bool)
    judged = late & episodes["R"].notna().to_numpy(bool)
    episodes.loc[judged, "R"] = 0.0
    episodes.loc[judged, "status"] = "horizon"
    episodes.loc[late, "length"] = T_max
    own = T_max - episodes["switch_turn"].clip(lower=1) + 1
    taught = episodes["kind"].isin(("continuation", "demo"))
    capped = episodes["teacher_turns"].clip(upper=own)
    episodes["teacher_turns"] = episodes["teacher_turns"].where(~taught, capped)
    kept = turns["episode_id"].isin(episodes["episode_id"]) & (turns["t"] <= T_max)
    return episodes, turns[kept].copy()
