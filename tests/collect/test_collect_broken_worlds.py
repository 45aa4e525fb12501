"""A world that breaks, lies or does not open is data with a reason, and never takes other work with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import Corridor, Corridors, drunk, expert

from agentloop.run.summary import summarise
from agentloop.types import Answer, Ask, Environment, EnvironmentFailed, Reply, Task
from occupancy.record.errors import RunError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)


async def cut_off(ask: Ask) -> Answer:
    """An expert whose world dies while it asks it."""
    if ask.t in (0, 4):
        raise EnvironmentFailed("the worker\ndied")
    return await expert(ask)


def test_a_world_that_dies_under_a_question_keeps_what_was_played(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", RECIPE, teacher=cut_off)
    broken = [e for e in rows(run, "episodes") if e["status"] == "environment_error"]
    assert broken
    assert all(e["error"] == "the worker died" and e["length"] == 3 and e["R"] is None for e in broken)
    assert len(rows(run, "proposals")) == 16
    failed = [a for a in attempts(run) if a["state"] == "failed"]
    assert len(failed) == len(broken)
    assert {(a["failure"], a["billed"], a["charged_tokens"]) for a in failed} == {("environment", "no", 0)}
    assert {a["state"] for a in attempts(run)} == {"failed", "settled"}


def test_a_question_for_the_switch_time_may_fail_like_a_turn(tmp_path: Path) -> None:
    recipe = preset("leap", n=2, T_max=6)
    run = run_of(tmp_path / "run", recipe, teacher=cut_off)
    assert set(summarise(run)["proposals"]) == {"environment_error", "prefix_filtered"}
    with pytest.raises(RunError, match=r"teacher failed in all .*run the same command again"):
        run_of(tmp_path / "other", recipe, teacher=lambda ask: 1 / 0)
    assert "teacher_failed" not in summarise(run_of(tmp_path / "other", recipe))["proposals"]


@pytest.mark.parametrize("R", [100.0, -0.5, float("nan"), None])
def test_a_reward_outside_0_1_is_an_error_of_the_world(
    tmp_path: Path, R: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Corridor.step

    async def lying(self: Corridor, text: str) -> Reply:
        reply = await step(self, text)
        return Reply(reply.observation, reply.done, R if reply.done and self.length == 4 else reply.reward)

    monkeypatch.setattr(Corridor, "step", lying)
    episodes = rows(run_of(tmp_path / "run", RECIPE), "episodes")
    refused = [e for e in episodes if e["status"] == "environment_error"]
    assert refused
    assert all(e["R"] is None and f"reward {R!r}" in e["error"] for e in refused)
    assert all(e["R"] is None or 0 <= e["R"] <= 1 for e in episodes)


def test_a_score_beside_an_error_is_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that scores the walk, goes on, and breaks: the episode is an error, in no filter a success."""
    step = Corridor.step

    async def breaking(self: Corridor, text: str) -> Reply:
        if self.length == 4 and self.place == 4:
            raise EnvironmentFailed("the score is in, the server is gone")
        reply = await step(self, text)
        return replace(reply, done=reply.done and self.length != 4)

    monkeypatch.setattr(Corridor, "step", breaking)
    run = run_of(tmp_path / "run", preset("op-success", n=2, T_max=12))
    scored = [e for e in rows(run, "episodes") if "score is in" in e["error"]]
    assert scored
    assert {(e["status"], e["R"]) for e in scored} == {("environment_error", None)}
    kept = {t["episode_id"] for t in rows(run, "traces")}
    assert kept
    assert not kept & {e["episode_id"] for e in scored}


def test_a_world_that_does_not_reset_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reset = Corridor.reset

    async def refusing(self: Corridor, seed: int) -> Reply:
        if self.length == 3:
            raise EnvironmentFailed("no room")
        return await reset(self, seed)

    monkeypatch.setattr(Corridor, "reset", refusing)
    run = run_of(tmp_path / "run", RECIPE, worlds=Corridors())
    outcomes = {p["task_id"]: p["outcome"] for p in rows(run, "proposals")}
    assert outcomes["corridor/1"] == "no_data"
    assert outcomes["corridor/0"] == "accepted"


class Closed(Corridors):
    """The tasks in `shut` do not open."""

    shut: frozenset[int] = frozenset()

    def open(self, task: Task) -> AbstractAsyncContextManager[Environment]:
        if int(task.task_id.split("/")[1]) in self.shut:
            raise EnvironmentFailed("no room")
        return super().open(task)


class Flaky(Corridors):
    """The tasks that are named open, and fail at their reset."""

    def __init__(self, *broken: int) -> None:
        super().__init__()
        self.broken = {f"corridor/{i}" for i in broken}

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        async with super().open(task) as env:
            yield Broken() if task.task_id in self.broken else env


class Broken(Corridor):
    def __init__(self) -> None:
        super().__init__(2)

    async def reset(self, seed: int) -> Reply:
        raise EnvironmentFailed("no room")


def test_a_run_where_nothing_opens_fails_and_is_tried_again(tmp_path: Path) -> None:
    worlds = Closed()
    worlds.shut = frozenset(range(8))
    with pytest.raises(RunError, match=r"opens no task any more \(no room\)"):
        run_of(tmp_path / "run", RECIPE, worlds=worlds)
    assert not rows(open_run(tmp_path / "run"), "episodes")
    worlds.shut = frozenset()
    run = run_of(tmp_path / "run", RECIPE, worlds=worlds)
    assert rows(run, "proposals") == rows(run_of(tmp_path / "whole", RECIPE), "proposals")


def test_a_world_that_is_lost_half_way_makes_no_data_of_the_rest(tmp_path: Path) -> None:
    worlds = Closed()
    worlds.shut = frozenset(range(4, 40))
    with pytest.raises(RunError, match="opens no task any more"):
        run_of(tmp_path / "run", RECIPE, worlds=worlds, tasks="40")
    played = {e["task_id"] for e in rows(open_run(tmp_path / "run"), "episodes")}
    assert played, "what was finished is kept"
    assert played <= {f"corridor/{i}" for i in range(4)}
    worlds.shut = frozenset([7])
    run = run_of(tmp_path / "run", RECIPE, worlds=worlds, tasks="40")
    outcomes = [p["outcome"] for p in rows(run, "proposals")]
    assert (len(outcomes), outcomes.count("no_data")) == (80, 2), "one task that does not open is data"


def test_what_did_not_open_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", RECIPE, tasks="14", worlds=Flaky(2, 4))
    assert [p["outcome"] for p in rows(run, "proposals")].count("no_data") == 4
    for _ in range(2):
        run = run_of(tmp_path / "run", RECIPE, tasks="14", worlds=Flaky(2, 4))
        assert len(rows(run, "proposals")) == len(rows(run, "episodes")) - 24 == 28, "none is there twice"
    run = run_of(tmp_path / "run", RECIPE, tasks="14")
    whole = run_of(tmp_path / "whole", RECIPE, tasks="14")
    same(run, whole)


def test_many_that_never_open_are_no_lost_world_when_tried_again(tmp_path: Path) -> None:
    shut = Flaky(*range(12, 40))
    for _ in range(2):
        # Interleaved with tasks that open, 12 of 24 are data; alone at the resume they are still.
        run = run_of(tmp_path / "run", RECIPE, tasks="24", worlds=Flaky(*range(0, 24, 2)))
        assert [p["outcome"] for p in rows(run, "proposals")].count("no_data") == 24
    with pytest.raises(RunError, match="opens no task any more"):
        run_of(tmp_path / "lost", RECIPE, tasks="40", worlds=shut)


def test_a_run_where_every_episode_breaks_fails(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="failed in all 16 episodes"):
        run_of(tmp_path / "run", RECIPE, worlds=Corridors(fails_at=1))


def test_what_others_have_finished_is_kept_when_one_fails(tmp_path: Path) -> None:
    async def teacher(ask: Ask) -> Answer:
        if ask.order == 9:
            raise RunError("the disk of somebody else")
        return await expert(ask)

    with pytest.raises(RunError, match="somebody else"):
        run_of(tmp_path / "run", RECIPE, teacher=teacher, worlds=Corridors(workers=1))
    assert len(rows(open_run(tmp_path / "run"), "proposals")) == 9


def test_a_run_whose_every_continuation_leaves_its_recording_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, played = Corridor.step, [0]

    async def moody(self: Corridor, text: str) -> Reply:
        played[0] += 1
        return replace(await step(self, text), observation=f"the same words, then step {played[0]}")

    monkeypatch.setattr(Corridor, "step", moody)
    # The switch is always after a turn, so that there is something to replay.
    recipe = replace(RECIPE, switch={"law": "fixed", "nu": [0.0, 1.0]})
    with pytest.raises(RunError, match=r"the replay failed in all \d+ episodes") as failed:
        run_of(tmp_path / "run", recipe)
    assert "words, then step" in str(failed.value), "the texts are shown, not their hashes"


def test_a_world_that_never_opens_is_tried_again_in_the_same_folder(tmp_path: Path) -> None:
    class Closed(Corridors):
        def open(self, task: Task) -> AbstractAsyncContextManager[Environment]:
            raise EnvironmentFailed("no licence")

    for _ in range(2):
        with pytest.raises(RunError, match="run the same command again"):
            run_of(tmp_path / "run", RECIPE, worlds=Closed(), tasks="2")
    assert rows(run_of(tmp_path / "run", RECIPE, tasks="2"), "traces")


async def broken(ask: Ask) -> Answer:
    raise ValueError("no weights")


@pytest.mark.parametrize("who", ["teacher", "student"])
def test_a_model_that_failed_in_every_first_call_is_tried_again_in_the_same_folder(
    tmp_path: Path, who: str
) -> None:
    whole = run_of(tmp_path / "whole", RECIPE, tasks="4")
    for _ in range(2):
        with pytest.raises(RunError, match=rf"the {who} failed in all .*run the same command again"):
            run_of(tmp_path / "run", RECIPE, tasks="4", **{who: broken})
    run = run_of(tmp_path / "run", RECIPE, tasks="4")
    same(run, whole, calls=False)

    async def once(ask: Ask) -> Answer:
        return await (drunk(ask) if ask.t == 1 else broken(ask))

    for _ in range(2):
        with pytest.raises(RunError, match=r"student failed in all .*collect into a new folder"):
            run_of(tmp_path / "begun", RECIPE, tasks="4", student=once)
