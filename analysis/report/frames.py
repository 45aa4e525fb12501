"""Tidy frames of run folders and trainings, for the figures: one row a point, errors clustered by task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.plan.handback import best_base, gains
from analysis.plan.pilot import Pilot
from analysis.plan.read import teacher_tokens
from occupancy import Trajectories, coverage, occupancy
from occupancy.record.errors import DataError
from occupancy.record.finish import retained_tokens
from occupancy.record.reading import reading
from occupancy.record.specs import Size, check_entries
from occupancy.runs import Run
from occupancy.statistics.by_turn import occupancy_by_turn
from occupancy.statistics.clusters import clustered_ratio
from occupancy.streaming.run_turns import COUNTED

SHOWN = 7
"""States that a figure names; the others are one."""
OTHERS = "others"
CALLED = r'<tool_call>\s*\{"name": "([^"]+)"'
"""The name of a turn's first tool call, as `occupancy.record.calls` writes it."""
FIRST = r"\s*(<[\w-]+>|\S+)"
"""A turn's first tag or word."""
BINS = 5


def hand_backs(pilot: Pilot) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Frames of `analysis.figures.pilot.handback_figure`: U_K by depth, and the teacher's success by t'.

    U_K is over the contexts of G(K), and U_0 needs hand-backs at k = 0; the teacher's success is of whole
    continuations.
    """
    contexts = pilot.contexts
    base = "handback" if best_base(pilot) == "handback" else "parent"
    start = contexts.student if base == "handback" else contexts.parent
    gain = gains(pilot, base=base)
    # U_0 cancels: what is averaged is the success after K turns, whichever base it was compared with.
    rewards = (gain.values + np.nan_to_num(start)[:, None]) * gain.weights
    values, errors = clustered_ratio(rewards, gain.weights, cluster=contexts.cluster)
    rows = [(K, float(u), float(se)) for K, u, se in zip(gain.K, values, errors, strict=True)]
    if base == "handback":
        known = np.isfinite(start)
        u_0, se = clustered_ratio(start[known], np.ones(known.sum()), cluster=contexts.cluster[known])
        rows.insert(0, (0.0, float(u_0), float(se)))
    depth = pd.DataFrame(rows, columns=["K", "value", "se"]).drop_duplicates("K").dropna()
    switch = pd.DataFrame(
        {"t": contexts.t_prime, "R": contexts.teacher, "cluster": contexts.cluster}
    ).dropna()
    bins = pd.qcut(switch["t"], min(BINS, switch["t"].nunique()), duplicates="drop")
    found = []
    for _, part in switch.groupby(bins, observed=True):
        value, se = clustered_ratio(part["R"], np.ones(len(part)), cluster=part["cluster"])
        ends = {"first": int(part["t"].min()), "last": int(part["t"].max())}
        found.append(ends | {"value": float(value), "se": float(se), "contexts": len(part)})
    return depth, pd.DataFrame(found)


def contexts_of(run: Run) -> tuple[Trajectories, list[str]]:
    """Contexts of rollouts, else of demonstrations, by what was done last, and the names of these states.

    The state of the context before turn t is the tool that turn t - 1 called first, else its first tag or
    word, or "start": a coarse abstraction that needs nothing of the environment. Episodes that ended in an
    error are left out.
    """
    episodes = run.read("episodes", columns=["episode_id", "cluster_id", "kind", "status"]).to_pandas()
    kind = "rollout" if (episodes["kind"] == "rollout").any() else "demo"
    chosen = episodes[(episodes["kind"] == kind) & episodes["status"].isin(COUNTED)]
    turns = run.read("turns", columns=["episode_id", "t", "text"]).to_pandas()
    turns = turns.merge(chosen, on="episode_id").sort_values(["episode_id", "t"])
    if turns.empty:
        raise DataError(f"{run.folder} has no whole rollout or demonstration: there are no contexts to count")
    done = turns["text"].str.rpartition("</think>")[2]
    called = done.str.extract(CALLED, expand=False)
    word = called.fillna(done.str.extract(FIRST, expand=False)).fillna("(empty)").str.slice(0, 24)
    last = ("after " + word).groupby(turns["episode_id"]).shift().fillna("start")
    common = [name for name in last.value_counts().index if name != OTHERS][:SHOWN]
    turns["state"] = last.map({name: at for at, name in enumerate(common)}).fillna(len(common)).astype(int)
    return _batch(turns, len(common) + 1), [*common, OTHERS]


def _batch(turns: pd.DataFrame, n_states: int) -> Trajectories:
    """Turns in order of episode_id and t, with cluster_id and state, as trajectories."""
    episodes = turns.groupby("episode_id")
    return Trajectories(
        np.concatenate([[0], episodes.size().cumsum()]),
        turns["state"].to_numpy(),
        pd.factorize(episodes["cluster_id"].first())[0],
        n_states=n_states,
    )


def conventions(batch: Trajectories, names: list[str]) -> pd.DataFrame:
    """Frame of `conventions_figure`: occupancies under pooled and trajectory-uniform weights."""
    parts = []
    for said, convention in (("pooled", "pooled"), ("trajectory-uniform", "trajectory")):
        law = occupancy(batch, convention=convention)
        se = 0.0 if law.standard_error is None else law.standard_error
        part = pd.DataFrame({"state": names, "convention": said, "probability": law.probability, "se": se})
        parts.append(part[part["probability"] > 0])
    return pd.concat(parts)


def by_turn(batch: Trajectories, names: list[str]) -> pd.DataFrame:
    """Frame of `by_turn_figure`."""
    found = occupancy_by_turn(batch)
    return pd.DataFrame(
        [
            {"turn": t + 1, "state": name, "probability": p, "alive": alive / len(batch)}
            for t, (row, alive) in enumerate(zip(found.probability, found.alive, strict=True))
            for name, p, all_turns in zip(names, row, found.counts.sum(axis=0), strict=True)
            if all_turns
        ]
    )


def covered(run: Run, *, seed: int = 0) -> pd.DataFrame:
    """Frame of `coverage_figure`: the student's contexts whose last observation a training set has met.

    Training sets are the contexts of the teacher's turns in demonstrations and in continuations, in a seeded
    order; the student's are those of its finished rollouts.
    """
    columns = ["episode_id", "cluster_id", "kind", "status", "parent"]
    episodes = run.read("episodes", columns=columns).to_pandas()
    turns = run.read("turns", columns=["episode_id", "t", "author", "observation_hash"]).to_pandas()
    turns = turns.merge(episodes, on="episode_id").sort_values(["episode_id", "t"])
    shown = turns.set_index(["episode_id", "t"])["observation_hash"]
    first = turns["episode_id"].ne(turns["episode_id"].shift())
    # A continuation stores its own turns only: what its first one saw is its parent's.
    before = turns["episode_id"].where(~first, turns["parent"])
    turns["seen"] = shown.reindex(pd.MultiIndex.from_arrays([before, turns["t"] - 1])).to_numpy()
    turns = turns.dropna(subset=["seen"])
    turns["state"] = pd.factorize(turns["seen"])[0]
    own = turns[(turns["kind"] == "rollout") & turns["status"].isin(COUNTED)]
    rows = []
    for kind, source in (("demo", "demonstrations"), ("continuation", "continuations")):
        states = turns.loc[(turns["kind"] == kind) & (turns["author"] == "teacher"), "state"].to_numpy()
        if not len(states) or own.empty:
            continue
        order = np.random.default_rng(seed).permutation(states)
        batch = _batch(own, int(turns["state"].max()) + 1)
        for size in np.unique(np.geomspace(min(10, len(states)), len(states), 6).astype(int)):
            part = coverage(batch, order[:size], convention="pooled")
            se = 0.0 if part.standard_error is None else float(part.standard_error)
            rows.append({"source": source, "size": int(size), "covered": float(part.value), "se": se})
    return pd.DataFrame(rows, columns=["source", "size", "covered", "se"])


def spent(runs: dict[str, Run]) -> pd.DataFrame:
    """Frame of `spending_figure`: the teacher's tokens of each run by what became of them."""
    rows = []
    counts = ("output_tokens", "reasoning_tokens", "prompt_tokens", "cached_tokens")
    for name, run in runs.items():
        turns = run.read("turns", columns=["kind", "author", "text", *counts]).to_pandas()
        taught = turns[turns["author"] == "teacher"]
        output = int(taught["output_tokens"].sum())
        texts = zip(taught["text"], taught["output_tokens"], taught["reasoning_tokens"], strict=True)
        in_text = pd.Series([retained_tokens(*row) for row in texts], index=taught.index, dtype=float)
        kept = int(in_text.sum())
        used = int(sum(run.column("traces", "C_tr")))
        # A pilot keeps its demonstrations as episodes, without traces.
        shown = int(in_text[taught["kind"] == "demo"].sum()) if run.info.get("kind") == "pilot" else 0
        prompt, cached = taught["prompt_tokens"].sum(), taught["cached_tokens"].sum()
        uses = {
            "trained on": used,
            "a pilot's demonstrations": shown,
            "rejected": max(0, kept - used - shown),
            "not in a text": output - kept,
            "failed or lost": max(0, sum(teacher_tokens(run.folder)) - output),
            "prefix, from a cache": int(cached),
            "prefix, read again": int(prompt - cached),
        }
        rows += [{"run": name, "use": use, "tokens": tokens} for use, tokens in uses.items()]
    return pd.DataFrame(rows)


def losses(folders: dict[str, Path]) -> pd.DataFrame:
    """Frame of `loss_figure`, from the log.jsonl of trainings; held-out loss of the base has no step."""
    rows: list[dict[str, Any]] = []
    for name, folder in folders.items():
        file, own = folder / "log.jsonl", list[dict[str, Any]]()
        with reading(file):
            entries = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for entry in entries:
            check_entries(entry, {}, of=f"a line of {file}")
            if "loss" in entry:
                check_entries(entry, {"step": Size, "loss": float}, of=f"a line of {file}")
                step = {"training": name, "step": entry["step"], "loss": entry["loss"], "held_out": np.nan}
                own.append(step)
            elif own and entry.get("held_out") is not None:
                check_entries(entry["held_out"], {"nll": float}, of=f"held_out in a line of {file}")
                own[-1]["held_out"] = entry["held_out"]["nll"]
        rows += own
    return pd.DataFrame(rows, columns=["training", "step", "loss", "held_out"])
