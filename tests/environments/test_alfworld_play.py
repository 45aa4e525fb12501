"""Real games through worker processes: play, replay, expert, odd text."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloop.environments.alfworld.expert import scripted_expert
from agentloop.environments.alfworld.pool import Alfworld, AlfworldGame, open_alfworld
from agentloop.environments.alfworld.student import StudentSettings, scripted_student
from agentloop.run.episode import Episode, EpisodeSettings, History, play, start
from agentloop.run.replay import ReplayDesync, replay
from agentloop.types import Ask, Author, Policy, Status, Task
from occupancy.record.errors import InputError

pytestmark = pytest.mark.alfworld

PAPER = (
    "valid_seen/pick_and_place_simple-ToiletPaper-None-ToiletPaperHanger-406/trial_T20190908_122858_883968"
)
Body = Callable[[AlfworldGame], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", params=["2.1.1"])
def world(data_dir: Path, request: pytest.FixtureRequest) -> Iterator[Alfworld]:
    pool = open_alfworld(grammar=request.param, workers=1)
    yield pool
    asyncio.run(pool.close())


def game(name: str = PAPER) -> Task:
    return Task(name, name, "valid_seen")


def inside(world: Alfworld, body: Body, task: Task | None = None) -> None:
    async def opened() -> None:
        async with world.open(task or game()) as env:
            await body(env)

    asyncio.run(opened())


async def episode(
    env: AlfworldGame,
    policy: Policy,
    begin: History,
    *,
    most: int = 50,
    seed: int = 0,
    author: Author = Author.STUDENT,
) -> Episode:
    how = EpisodeSettings(author=author, most=most, T_max=50, seeds=lambda t: 1000 * seed + t)
    return await play(env, policy, begin, how)


async def wandering(ask: Ask) -> Any:
    """A random admissible command, as an answer of the expert's form."""
    answer = await scripted_expert()(ask)
    return replace(answer, text=random.Random(ask.seed).choice(await ask.env.ask("admissible")))


@pytest.mark.parametrize(("world", "verb"), [("2.1.1", "put"), ("2.1.2", "move")], indirect=["world"])
def test_the_expert_wins_in_both_grammars(world: Alfworld, verb: str) -> None:
    async def body(env: AlfworldGame) -> None:
        played = await episode(env, scripted_expert(), await start(env, seed=0))
        assert (played.status, played.reward) == (Status.FINISHED, 1.0)
        assert played.history.turns[0].answer.text == "look"
        assert played.history.turns[-1].answer.text.startswith(f"{verb} toiletpaper")
        assert {turn.answer.usage.counter for turn in played.history.turns} == {"words-and-marks"}

    inside(world, body)
    assert (
        world.version == f"alfworld 0.4.2, textworld 1.7.0, grammar {'2.1.1' if verb == 'put' else '2.1.2'}"
    )


def test_every_reset_gives_the_same_first_observation(world: Alfworld) -> None:
    async def body(env: AlfworldGame) -> None:
        first = await env.reset(0)
        assert await env.reset(1) == first
        await env.step("look")
        assert await env.reset(0) == first
        assert first.observation.startswith("You are in the middle of a room.")
        assert first.observation.endswith("Your task is to: put a toiletpaper in toiletpaperhanger.")
        system, user = env.prompt(first)
        assert "put X in/on Y" in system.content
        assert user.content == first.observation

    inside(world, body)


@pytest.mark.parametrize("seed", range(3))
def test_a_prefix_replays_in_another_process(world: Alfworld, seed: int) -> None:
    recorded: list[History] = []

    async def record(env: AlfworldGame) -> None:
        recorded.append((await episode(env, wandering, await start(env, seed=0), most=10, seed=seed)).history)
        recorded.append(History(()))

    async def again(env: AlfworldGame) -> None:
        reply = await replay(env, recorded[0], seed=0)
        assert reply == recorded[0].turns[-1].reply

    async def elsewhere() -> None:
        other = open_alfworld(workers=1)
        try:
            async with other.open(game()) as env:
                await again(env)
        finally:
            await other.close()

    inside(world, record)
    inside(world, again)
    if seed == 0:
        asyncio.run(elsewhere())


@pytest.mark.parametrize("at", [0, 2, 4])
def test_an_altered_observation_is_a_desync_at_its_turn(world: Alfworld, at: int) -> None:
    async def body(env: AlfworldGame) -> None:
        history = (await episode(env, scripted_expert(), await start(env, seed=0), most=4)).history
        if at:
            turns = list(history.turns)
            turns[at - 1] = replace(
                turns[at - 1], reply=replace(turns[at - 1].reply, observation="another world")
            )
            altered = replace(history, turns=tuple(turns))
        else:
            altered = replace(history, prompt=(*history.prompt[:1], replace(history.prompt[1], content="?")))
        with pytest.raises(ReplayDesync, match=f"at turn {at}") as caught:
            await replay(env, altered, seed=0)
        assert caught.value.turn == at
        if at:
            assert caught.value.expected == "another world"

    inside(world, body)


def test_the_student_is_a_function_of_context_and_seed(world: Alfworld) -> None:
    student = scripted_student(StudentSettings(lapse=0.3, wrong=0.2, loop=0.2))

    async def body(env: AlfworldGame) -> None:
        begin = await start(env, seed=0)
        first = await episode(env, student, begin, most=12, seed=1)
        assert await episode(env, student, await start(env, seed=0), most=12, seed=1) == first
        assert await episode(env, student, await start(env, seed=0), most=12, seed=2) != first
        prefix = first.history.before(6)
        await replay(env, prefix, seed=0)
        assert await episode(env, student, prefix, most=7, seed=1) == first

    inside(world, body)


def test_the_expert_says_the_same_after_a_replay_as_live(world: Alfworld) -> None:
    async def body(env: AlfworldGame) -> None:
        history = (await episode(env, wandering, await start(env, seed=0), most=8)).history
        live = await env.ask("expert")
        await replay(env, history, seed=0)
        assert await env.ask("expert") == await env.ask("expert") == live

    inside(world, body)


UNCACHED = """
import json, sys
from agentloop.environments.alfworld.game import Player
from agentloop.environments.alfworld.games import Catalogue
from agentloop.environments.alfworld.sources import find_source

_, name, commands = sys.argv  # now: the planner's translation overwrites it
player = Player()
player.load(Catalogue(find_source(), grammar="2.1.1").game(name))
seen = [player.reset(0).observation]
for command in json.loads(commands):
    seen.append([player.ask("expert"), player.ask("admissible"), player.step(command).observation])
print(json.dumps(seen))
"""


def test_caches_change_nothing_that_is_seen(world: Alfworld) -> None:
    seen: list[object] = []
    commands: list[str] = []

    async def body(env: AlfworldGame) -> None:
        seen.append((await env.reset(0)).observation)
        for t in range(10):
            expert, admissible = await env.ask("expert"), await env.ask("admissible")
            commands.append(random.Random(t).choice([expert, *admissible]))
            seen.append([expert, admissible, (await env.step(commands[-1])).observation])

    inside(world, body)
    plain = subprocess.run(
        [sys.executable, "-c", UNCACHED, PAPER, json.dumps(commands)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout) == seen


HOSTILE = [
    "",
    "\x00",
    "look\x00",
    "a" * 1_000_000,
    "look\n" * 10_000,
    "\u2028look",
    "go to \ud800 1",
    "🧻 toiletpaper 1",
    "put {0} in/on {r}",
    "%s%n%s",
    "__import__('os')._exit(1)",
    "(look)",
    "Action: Action: look",
]


def test_hostile_text_is_answered_like_any_other(world: Alfworld) -> None:
    async def body(env: AlfworldGame) -> None:
        await env.reset(0)
        process = env.worker.pid
        for text in HOSTILE:
            reply = await env.step(text)
            assert not reply.done, text[:40]
            assert (reply.parse_status == "ok") <= (reply.observation != "Nothing happens."), text[:40]
        assert (await env.step("look")).parse_status == "ok"
        assert env.worker.pid == process

    inside(world, body)


def test_odd_turns_are_recorded_and_played(world: Alfworld) -> None:
    async def body(env: AlfworldGame) -> None:
        await env.reset(0)
        said = [await env.step(text) for text in ("", "I look.\nlook", "Thought: hm\nAction: look", "dance")]
        assert [r.parse_status for r in said] == ["empty", "multiline", "ok", "not_admissible"]
        assert (
            said[1].observation
            == said[2].observation
            == "You are in the middle of a room. Looking quickly around you, you see nothing."
        )
        assert said[0].observation == said[3].observation == "Nothing happens."

    inside(world, body)


def test_an_unknown_question_is_refused_and_harms_nothing(world: Alfworld) -> None:
    async def body(env: AlfworldGame) -> None:
        await env.reset(0)
        with pytest.raises(InputError, match="expected 'expert' or 'admissible'"):
            await env.ask("walkthrough")
        assert "look" in await env.ask("admissible")

    inside(world, body)


def test_where_the_expert_fails_the_teacher_fails_and_the_student_goes_on(
    world: Alfworld, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = replace(
        world._catalogue.game(PAPER), params={"object_target": "Unicorn", "parent_target": "Toilet"}
    )
    monkeypatch.setattr(world._catalogue, "game", lambda _: told)

    async def body(env: AlfworldGame) -> None:
        teacher = await episode(env, scripted_expert(), await start(env, seed=0), author=Author.TEACHER)
        assert teacher.status is Status.TEACHER_FAILED
        assert [turn.answer.text for turn in teacher.history.turns] == ["look"]
        assert "failed at turn 2: KeyError" in teacher.error
        student = await episode(env, scripted_student(StudentSettings()), await start(env, seed=0), most=4)
        assert student.length == 4

    inside(world, body)
