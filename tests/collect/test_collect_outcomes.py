"""What an episode came to is said once, and a trace says what was said, word for word."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from toy_runs import rows, run_of
from toy_world import Corridor, Corridors, drunk, expert

from agentloop.run.summary import cut_turns, summarise
from agentloop.types import Answer, Ask, Environment, Policy, Reply, Task
from analysis.cli import main
from occupancy.record.errors import RunError
from occupancy.record.recipe import preset
from occupancy.runs import create_run
from occupancy.streaming.estimate import estimate_stream
from occupancy.streaming.run_turns import open_run_turns


class Counting(Corridor):
    """Steps are counted, and no turn that ends the walk can be parsed."""

    steps = 0

    async def step(self, text: str) -> Reply:
        type(self).steps += 1
        reply = await super().step(text)
        return replace(reply, parse_status="odd" if reply.done else "ok")


class Threes(Corridors):
    """Every corridor has three steps, and an episode three turns."""

    T_max = 3

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        yield Counting(3)


@pytest.mark.parametrize("end_on", [(), ("any",)])
def test_a_finished_episode_is_finished_whatever_else_is_true_of_it(
    tmp_path: Path, end_on: tuple[str, ...]
) -> None:
    """It ends in its last turn, in the teacher's last turn, and by a turn that cannot be parsed."""
    recipe = preset("op-short", K=1, n=1, T_max=3, switch={"law": "fixed", "nu": [0, 0, 1]})
    run = run_of(tmp_path / "run", recipe, student=expert, worlds=Threes(), end_on=end_on)
    ends = {(e["kind"], e["status"], e["R"], e["length"]) for e in rows(run, "episodes")}
    assert ends == {(kind, "finished", 1.0, 3) for kind in ("rollout", "continuation")}


def test_a_turn_that_was_cut_is_told_from_the_horizon_and_never_played(tmp_path: Path) -> None:
    async def cut(ask: Ask) -> Answer:
        return replace(await expert(ask), finish_reason="length" if ask.t == 3 else "stop")

    Counting.steps = 0
    run = run_of(tmp_path / "run", preset("op-short", K=1, T_max=3), student=cut, worlds=Threes())
    rollouts = [e for e in rows(run, "episodes") if e["kind"] == "rollout"]
    assert {(e["status"], e["length"]) for e in rollouts} == {("turn_length", 3)}
    last = [t for t in rows(run, "turns") if (t["kind"], t["t"]) == ("rollout", 3)]
    assert {t["finish_reason"] for t in last} == {"length"}
    continued = [e for e in rows(run, "episodes") if e["kind"] == "continuation"]
    replayed = sum(e["switch_turn"] - 1 for e in continued)
    assert Counting.steps == 2 * len(rollouts) + replayed + len(continued)
    (told,) = summarise(run)["warnings"]
    assert f"{len(rollouts)} of {len(rollouts)} rollouts ended in a turn that was cut" in told
    assert cut_turns("attempts", {"finished": 8, "turn_length": 2}) == []
    assert "3 of 10 attempts" in cut_turns("attempts", {"finished": 7, "turn_length": 3})[0]


def test_a_trace_holds_the_turns_that_were_played_and_no_other_word(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-short", K=3, n=2, T_max=12))
    episodes = {e["episode_id"]: e for e in rows(run, "episodes")}
    turns = {(t["episode_id"], t["t"]): t for t in rows(run, "turns")}
    for trace in rows(run, "traces"):
        episode = episodes[trace["episode_id"]]
        messages = json.loads(trace["messages"])
        prompt = json.loads(episodes[episode["parent"]]["prompt"])
        said = [(m["author"], m["content"]) for m in prompt]
        for t in range(1, episode["length"] + 1):
            whose = episode["parent"] if t < episode["switch_turn"] else episode["episode_id"]
            turn = turns[whose, t]
            said += [(turn["author"], turn["text"]), ("environment", turn["observation"])]
        assert [(m["author"], m["content"]) for m in messages] == said[:-1]


def test_what_a_filter_takes_away_is_shown_by_where_the_prefixes_ended(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-critical", n=3, T_max=12), student=drunk)
    shown = summarise(run)["prefixes"]
    proposals = rows(run, "proposals")
    outcomes = {p["outcome"] for p in proposals}
    assert outcomes >= {"accepted", "prefix_filtered"}
    assert set(shown) == outcomes | {"all"}
    for outcome, found in shown.items():
        own = [p for p in proposals if outcome in ("all", p["outcome"])]
        assert found == {
            "proposals": len(own),
            "t_prime": fmean(p["t_prime"] for p in own),
            "T": fmean(p["T"] for p in own),
        }
    assert shown["accepted"]["T"] > shown["prefix_filtered"]["T"], "failed rollouts are the long ones"


def test_every_turn_of_every_episode_has_a_seed_of_its_own(tmp_path: Path) -> None:
    """Equal seeds would give equal turns, and n proposals would be one."""
    seeds: list[int] = []

    def noting(policy: Policy) -> Policy:
        async def play(ask: Ask) -> Answer:
            seeds.append(ask.seed)
            return await policy(ask)

        return play

    recipe = preset("op-short", K="inf", n=2, T_max=12)
    run = run_of(tmp_path / "run", recipe, student=noting(drunk), teacher=noting(expert), pilot=True)
    assert len(seeds) == len(rows(run, "turns")) > 300
    assert len(set(seeds)) == len(seeds)


def test_a_run_that_stops_before_its_first_unit_shows_no_empty_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = ["--student", "drunk", "--teacher", "expert", "--turn-tokens", "30", "--budget", "5"]
    where = ["--env", "toy_world:open_corridors", "--tasks", "4", "--out", str(tmp_path / "run")]
    assert main(["collect", *where, *who]) == 3
    shown = capsys.readouterr().out
    assert "no episode was finished yet" in shown
    assert "episodes of" not in shown


def test_contexts_of_episodes_that_failed_or_were_capped_count_in_occupancies(tmp_path: Path) -> None:
    async def cut(ask: Ask) -> Answer:
        answer = await drunk(ask)
        return replace(answer, finish_reason="length") if ask.t == 4 else answer

    run = run_of(tmp_path / "run", preset("op-short", K=1, n=2, T_max=12), student=cut)
    for kind, status in (("rollout", "turn_length"), ("continuation", "capped")):
        of_kind = [e for e in rows(run, "episodes") if e["kind"] == kind]
        assert status in {e["status"] for e in of_kind}
        turns = open_run_turns(run.folder, kind=kind)
        assert turns.n_left_out == 0
        assert estimate_stream(turns.stream).tally.n_trajectories == len(of_kind)


class Stated(Corridors):
    """Corridors that tell their state from the start; `drifts`: another one at each reset."""

    def __init__(self, *, drifts: bool = False) -> None:
        super().__init__()
        self.resets, self.drifts = 0, drifts

    def change(self, corridor: Any) -> None:
        reset = corridor.reset

        async def stated(seed: int) -> Reply:
            self.resets += self.drifts
            return replace(await reset(seed), state_id=100 + self.resets)

        corridor.reset = stated


def test_the_state_before_the_first_turn_is_stored_and_compared(tmp_path: Path) -> None:
    recipe = preset("op-short", K=1, n=2, T_max=12)
    run = run_of(tmp_path / "run", recipe, worlds=Stated())
    states = {(t["t"] == 1, t["state_id"]) for t in rows(run, "turns")}
    assert {state for first, state in states if first} == {100}
    assert None not in {state for _, state in states}
    assert main(["occupancy", str(run.folder), "--columns", "state=state_id"]) == 0
    with pytest.raises(RunError, match="replay left the recording at turn 0: expected the state"):
        run_of(tmp_path / "drifts", recipe, worlds=Stated(drifts=True))


def test_a_column_that_the_turns_of_a_run_do_not_have_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run", preset("op-short", K=1, T_max=12))
    for columns, told in (
        ("state=nope", "has no column 'nope', only episode_id"),
        ("length=T", "has no column 'T', only episode_id"),
        ("trajectory=t", "the rows of trajectory 1 are in"),
    ):
        assert main(["occupancy", str(run.folder), "--columns", columns]) == 2
        error = capsys.readouterr().err
        assert (error.count("\n"), told in error) == (1, True)


def test_states_that_are_visited_equally_often_come_in_an_order_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are written as tasks are finished, which differs from one run of the same command to the next."""
    run = run_of(tmp_path / "run", preset("op-short", T_max=12))
    copy = create_run(tmp_path / "copy", run.recipe, dict(run.info))
    for row in reversed(run.read("episodes").to_pylist()):
        name = row["episode_id"]
        turns = [turn for turn in run.read("turns").to_pylist() if turn["episode_id"] == name]
        copy.commit({"episodes": [row], "turns": turns})
    found = []
    for folder in (run.folder, copy.folder):
        assert main(["occupancy", str(folder), "--top", "5", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["conventions"])
    assert found[0] == found[1]
