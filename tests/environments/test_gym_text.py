"""Whatever has Gymnasium's reset and step is a benchmark whose tasks are seeds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import rows, run_of

from agentloop.environments.seeds import Scale, shown
from agentloop.policies.by_name import open_environments
from agentloop.types import Answer, Ask, EnvironmentFailed, Usage
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset


async def guesser(ask: Ask) -> Answer:
    low, high = 0, 9
    for said, hint in zip(ask.context[2::2], ask.context[3::2], strict=False):
        guess = int(said.content.split()[-1])
        low, high = (max(low, guess + 1), high) if hint.content == "low" else (low, min(high, guess - 1))
    return Answer(f"I say {(low + high) // 2}", Usage(3, "toy"))


async def lucky(ask: Ask) -> Answer:
    return Answer(f"I say {random.Random(ask.seed).randint(0, 11)}", Usage(3, "toy"))


def test_episodes_are_played_replayed_and_scored(tmp_path: Path) -> None:
    worlds = open_environments("gym:gym_games:Guess", workers=2, T_max="8")
    recipe = preset("op-short", K="inf", n=2, T_max=8)
    run = run_of(tmp_path, recipe, worlds=worlds, student=lucky, teacher=guesser, tasks="seeds:5")
    episodes = rows(run, "episodes")
    assert {row["status"] for row in episodes} == {"finished"}
    assert {row["R"] for row in episodes} == {0.0, 1.0}
    turns = rows(run, "turns")
    assert {"no_action", "ok"} == {row["parse_status"] for row in turns}
    assert any("0 to 9" in row["observation"] for row in turns)


def test_a_game_that_draws_at_random_is_a_desync(tmp_path: Path) -> None:
    worlds = open_environments("gym:gym_games:Random", T_max="8")
    with pytest.raises(Exception, match=r"Random|failed in all"):
        run_of(
            tmp_path,
            preset("op-short", T_max=8),
            worlds=worlds,
            student=lucky,
            teacher=guesser,
            tasks="seeds:2",
        )


def test_words_arrays_and_what_does_not_close() -> None:
    worlds = open_environments("gym:gym_games:Words")
    (task,) = worlds.tasks("seeds:7-8")
    said: list[Any] = []

    async def run() -> None:
        async with worlds.open(task) as env:
            first = await env.reset(1)
            said.extend(m.content for m in env.prompt(first))
            said.append((await env.step("<think>It is longer.</think> abc ")).observation)
            assert said[-1] == (await env.step(" abc ")).observation

    with pytest.raises(EnvironmentFailed, match="it does not close"):
        asyncio.run(run())
    assert said[:2] == ["Answer each message with your next action alone.", "Guess."]
    assert said[2].endswith('"seen": [0, 1]}')


def test_what_scores_mean_is_part_of_the_version() -> None:
    given: list[dict[str, str]] = [
        {},
        {"reward": "sum"},
        {"reward_at_1": "2"},
        {"reward_at_0": "-1"},
        {"system": "Go."},
    ]
    versions = [open_environments("gym:gym_games:Words", **settings).version for settings in given]
    assert versions[0] == "gym:gym_games:Words reward=last"
    assert len(set(versions)) == len(given)


def test_seeds_rewards_and_observations(tmp_path: Path) -> None:
    worlds = open_environments("gym:gym_games:Words")
    assert [task.task_id for task in worlds.tasks("seeds:2-4")] == ["seeds/2", "seeds/3"]
    (file := tmp_path / "ids").write_text("seeds/9\nseeds/0\n")
    assert [task.task_id for task in worlds.tasks(f"@{file}")] == ["seeds/9", "seeds/0"]
    file.write_text("seeds/-1\n")
    with pytest.raises(InputError, match=r"'seeds/-1': expected seeds/N"):
        worlds.tasks(f"@{file}")
    assert Scale("sum", -1, 3).R([1, -1, 1]) == 0.5
    assert Scale("max").R([0, 1, 0]) == 1
    # A threshold of 1 is met by what is 1 but for rounding, and nothing is above it.
    tenths = float(np.float32(0.1))
    assert Scale("sum").R([0.1] * 10) == Scale("sum").R([1 / 49] * 49) == Scale("sum").R([tenths] * 10) == 1
    assert Scale("sum", 0, 0.3).R([0.1] * 3) == Scale("last", 0, 0.1).R([tenths]) == 1
    with pytest.raises(InputError, match="at most 1,000,000 seeds"):
        worlds.tasks("seeds:10000000000")
    assert shown({"a": 1, "b": object}).startswith('{"a": 1, "b": "<class')
    with pytest.raises(InputError, match="two rewards"):
        Scale(reward_at_0=1)
    with pytest.raises(EnvironmentFailed, match="no step"):
        Scale().R([])
    with pytest.raises(InputError, match="cannot be imported"):
        open_environments("gym:gym_games:Nothing")


def test_calls_run_one_after_another_and_in_one_thread() -> None:
    worlds = open_environments("gym:gym_games:Slow")
    (task,) = worlds.tasks("seeds:1")

    async def play() -> Any:
        async with worlds.open(task) as env:
            await env.reset(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await env.step("3")
            return await env.reset(0)

    assert asyncio.run(play()).observation == "Guess."
