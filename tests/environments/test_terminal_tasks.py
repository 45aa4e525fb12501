"""Tasks from plain language to bash: references solve all, doing nothing solves none; Algorithm 1 on them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import pytest
from terminal_machine import finished, host_image, together

from agentloop.environments.terminal import episode
from agentloop.environments.terminal.benchmark import Terminal, open_terminal
from agentloop.environments.terminal.comparing import comparable_text
from agentloop.environments.terminal.sandbox.changes import state_hash
from agentloop.environments.terminal.scripted.student import StudentSettings, without_a_part
from agentloop.environments.terminal.tasks.nl2bash import expected_of, normalised, solves, typed
from agentloop.environments.terminal.tasks.task import Expected
from agentloop.environments.terminal.terminus.protocol import turn_text
from agentloop.environments.terminal.terminus.screen import SETTLED
from agentloop.policies.scripted import settings_from
from agentloop.run.episode import EpisodeSettings, play, start
from agentloop.run.replay import replay
from agentloop.types import Author, Policy, Task
from analysis.cli import main
from benchmarks import terminal_sandbox
from occupancy.record.errors import InputError

NOTHING = Expected({}, None)
AT_ONCE = 6


@pytest.fixture
def benchmark(data_dir: Path) -> Terminal:
    host_image()
    return open_terminal(workers=AT_ONCE)


async def played(
    benchmark: Terminal, task: Task, policy: Policy, *, seed: int = 0
) -> tuple[float | None, int]:
    """Reward and length of one episode."""
    how = EpisodeSettings(Author.STUDENT, 99, benchmark.T_max, lambda t: seed * 1000 + t)
    async with benchmark.open(task) as env:
        done = await play(env, policy, await start(env, seed=0), how)
    return done.reward, done.length


def test_tasks_are_split_by_cluster(benchmark: Terminal) -> None:
    tasks = benchmark.tasks("all")
    assert len(tasks) == 142
    train, test = benchmark.tasks("train"), benchmark.tasks("test")
    assert (len(train), len(test)) == (94, 48)
    assert not {t.cluster_id for t in train} & {t.cluster_id for t in test}
    # One reference command in other words is one cluster.
    assert len({t.cluster_id for t in tasks}) < len(tasks)
    assert [t.task_id for t in benchmark.tasks("train:5", seed=1)] == [
        t.task_id for t in benchmark.tasks("train:5", seed=1)
    ]
    with pytest.raises(InputError, match="expected one of train, test, all"):
        benchmark.tasks("valid")
    with pytest.raises(InputError, match="test has 48"):
        benchmark.tasks("test:49")


@pytest.mark.slow
def test_references_solve_all_and_doing_nothing_solves_none(benchmark: Terminal) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> tuple[str, float, bool]:
        async with free:
            opened = benchmark.task_set.open(task.task_id)
            assert opened.expected is not None
            expected = await opened.expected()
            async with opened.open(SETTLED) as place:
                await place.screen.type(typed(opened.reference), 0)
                if not place.screen.at_prompt():
                    await place.screen.type("C-d", 0)
                reward = await place.grade()
            return task.task_id, reward, solves(NOTHING, expected)

    async def all_of_them() -> list[tuple[str, float, bool]]:
        return await together(one(task) for task in benchmark.tasks("all"))

    results = finished(all_of_them)
    assert [task_id for task_id, reward, _ in results if reward != 1] == []
    assert [task_id for task_id, _, idle in results if idle] == []


def test_an_output_that_tells_its_time_is_right_at_other_times_too() -> None:
    def printed(text: str | None) -> Expected:
        return Expected({}, text)

    at = 1_000_000 * 60.0
    now, later = (time.strftime("%H:%M", time.gmtime(at + 60 * m)) for m in (0, 7))
    listing = "total 4\nproc 90 {time}\netc Nov 28 {old}\nend"
    one = printed(listing.format(time=now, old="20:03"))
    expected = expected_of(one, one, began=at + 1, ended=at + 2)
    assert solves(printed(listing.format(time=later, old="20:03")), expected)
    assert not solves(printed(listing.format(time=later, old="20:04")), expected)
    assert not solves(printed(""), expected)
    # The second run ended in the next minute, and what follows is compared as a whole again.
    late = expected_of(one, one, began=at - 59, ended=at + 1)
    assert late.stable == ("end", "etc Nov 28 20:03", "total 4")
    assert expected_of(one, one, began=at + 600, ended=at + 601) == one
    other = printed("total 4\nend")
    assert expected_of(one, other, began=at + 600, ended=at + 601).stable == ("end", "total 4")
    assert expected_of(printed(None), printed(None), began=at, ended=at) == printed(None)
    # Where every line tells it, something has to be printed all the same.
    only = expected_of(printed(now), printed(now), began=at, ended=at)
    assert (solves(printed(later), only), solves(printed(""), only)) == (True, False)


def test_what_counts(benchmark: Terminal) -> None:
    turns = {
        "nothing": [("", False)],
        "the right files": [("find /workspace -type f -size +1k -delete\n", True)],
        "and a scratch file": [("touch /tmp/x; find /workspace -type f -size +1k -delete; ls\n", True)],
        "and one more": [("touch /x; find /workspace -type f -size +1k -delete\n", False)],
        "too many": [("rm -r /workspace\n", False)],
    }

    async def one(task_id: str, keys: str) -> float | None:
        (task,) = (t for t in benchmark.tasks("all") if t.task_id == task_id)
        async with benchmark.open(task) as env:
            await env.reset(0)
            await env.step(turn_text("a", "p", [(keys, 0.1)], complete=True))
            reply = await env.step(turn_text("a", "p", [], complete=True))
        assert reply.done
        return reply.reward

    async def all_of_them() -> None:
        for what, [(keys, right)] in turns.items():
            assert await one("fs3-007", keys) == float(right), what
        assert await one("fs1-020", "find /testbed -name '*.c' | xargs cat | wc -l\n") == 1
        assert await one("fs1-020", "find /testbed -name '*.c' | xargs cat | wc -l; ls\n") == 0
        assert await one("fs1-020", "echo '  5 '\n") == 1
        # A link out of the work folder is a link and nothing else; the checker follows none.
        assert await one("fs3-007", "rm -rf /workspace && ln -s / /workspace\n") == 0

    finished(all_of_them)


def test_the_last_turn_is_graded(benchmark: Terminal) -> None:
    short = open_terminal(turns=2)
    (task,) = (t for t in short.tasks("all") if t.task_id == "fs1-020")

    async def one() -> None:
        async with short.open(task) as env:
            await env.reset(0)
            keys = [("find /testbed -name '*.c' | xargs cat | wc -l\n", 0.1)]
            assert not (await env.step(turn_text("a", "p", keys))).done
            reply = await env.step("no JSON at all")
            assert (reply.done, reply.reward, reply.parse_status) == (True, 1.0, "invalid")
            with pytest.raises(InputError, match="after the end"):
                await env.step("again")

    finished(one)


def test_a_state_that_cannot_be_read_is_not_the_first_one(
    benchmark: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(sandbox: object) -> dict[str, str]:
        raise FileNotFoundError

    async def one() -> None:
        async with benchmark.open(benchmark.tasks("all")[0]) as env:
            assert (await env.reset(0)).state_id == state_hash(())
            monkeypatch.setattr(episode, "changes", changing)
            assert (await env.step(turn_text("a", "p", []))).state_id is None

    finished(one)


def test_confirmation_survives_garbage_and_not_other_turns(benchmark: Terminal) -> None:
    (task,) = benchmark.tasks("all")[:1]
    done, other = turn_text("a", "p", [], complete=True), turn_text("a", "p", [])

    async def ends(*texts: str) -> list[bool]:
        async with benchmark.open(task) as env:
            await env.reset(0)
            return [(await env.step(text)).done for text in texts]

    async def all_of_them() -> None:
        assert await ends(done, "garbage", done) == [False, False, True]
        assert await ends(done, other, done, done) == [False, False, False, True]
        gone = turn_text("a", "p", [("exit\n", 0.1)])
        assert await ends(gone) == [True]

    finished(all_of_them)


def test_scripted_policies(benchmark: Terminal) -> None:
    tasks = benchmark.tasks("train:8", seed=3)
    teacher, student = benchmark.policy("expert"), benchmark.policy("scripted:blunder=0.6,hasty=0.6")
    assert teacher is not None
    assert student is not None

    async def all_of_them() -> None:
        teachers = await together(played(benchmark, task, teacher) for task in tasks)
        assert [reward for reward, _ in teachers] == [1.0] * len(tasks)
        assert all(3 <= length <= 6 for _, length in teachers)
        students = await together(played(benchmark, task, student) for task in tasks)
        again = await together(played(benchmark, task, student) for task in tasks)
        assert students == again
        assert 0 < sum(reward or 0 for reward, _ in students) < len(tasks)

    finished(all_of_them)


def test_replay_sees_the_same(benchmark: Terminal) -> None:
    student = benchmark.policy("scripted:blunder=0.4,stray=0.3,malformed=0.2")
    assert student is not None

    async def one(task: Task, seed: int) -> int:
        how = EpisodeSettings(Author.STUDENT, 4, benchmark.T_max, lambda t: seed * 1000 + t)
        async with benchmark.open(task) as env:
            recorded = (await play(env, student, await start(env, seed=0), how)).history
        async with benchmark.open(task) as env:
            await replay(env, recorded, seed=0)
            reply = await env.reset(0)
            for turn in recorded.turns:
                reply = await env.step(turn.answer.text)
                assert reply.state_id == turn.reply.state_id
        return len(recorded.turns)

    async def all_of_them() -> list[int]:
        tasks = benchmark.tasks("train:6", seed=5)
        return await together(one(task, seed) for seed, task in enumerate(tasks))

    assert sum(finished(all_of_them)) > 12


@pytest.mark.parametrize(
    ("once", "again"),
    [
        ("drwxr-xr-x  96 root root 0 Nov 29 06:38 proc", "drwxr-xr-x 104 root root 0 Nov 29 06:59 proc"),
        (
            "lrwxrwxrwx  1 root   root       7 Nov 29 06:38 bin",
            "lrwxrwxrwx   1 root   root       7 Nov 29 06:38 bin",
        ),
        ("1795934283", "1795934322.25"),
        ("real\t0m0.005s", "real\t1m0.012s"),
        ("== 2 passed in 0.12s ==", "== 2 passed in 0.30s =="),
        ("<object object at 0x7fa889574190>", "<object object at 0x7f1a4b0c0190>"),
        ("up 1 day, load average: 4.84, 9.32, 10.12", "up 1 day, load average: 0.18, 8.83, 9.92"),
        ("Device: 0,53    Inode: 16040831    Links: 1", "Device: 0,57    Inode: 31    Links: 1"),
        (
            "root           1  0.0  0.0   2592  1708 ?        SN   06:38   0:00 /bin/sh",
            "root           1  2.4  0.1   2592   992 ?        RN   06:39   0:00 /bin/sh",
        ),
        ("made /tmp/tmp.Xa81kk and /tmp/tmpq_1x0z", "made /tmp/tmp.l0WWas and /tmp/tmpzz1x0z"),
    ],
)
def test_what_differs_from_one_play_to_the_next_is_not_compared(once: str, again: str) -> None:
    assert comparable_text(once) == comparable_text(again)
    assert comparable_text(f"{once} more") != comparable_text(again)


def test_a_replay_may_draw_other_names_and_compile_at_another_time(benchmark: Terminal) -> None:
    async def states(minute: int) -> list[int | None]:
        async with benchmark.open(benchmark.tasks("all")[0]) as env:
            found = [(await env.reset(0)).state_id]
            for line in (
                "mktemp",
                f"mkdir m; echo x=1 > m/a.py; touch -d '10:{minute}' m/a.py; python3 -c 'import m.a'",
                "vi -c q ~/.note; echo y=2 >> m/a.py",
            ):
                keys = [(f"{line}\n", 0.1)]
                found.append((await env.step(turn_text("a", "p", keys))).state_id)
        return found

    async def both() -> None:
        once, again = [await states(minute) for minute in (10, 20)]
        assert once == again
        assert len(set(once)) == 4

    finished(both)


@pytest.mark.slow
def test_algorithm_1_end_to_end(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host_image()
    out = tmp_path / "run"
    command = ["collect", "--env", "terminal", "--student", "scripted:blunder=0.4", "--teacher", "expert"]
    command += ["--tasks", "train:20", "--set", "K=3", "--workers", str(AT_ONCE), "--json", "--out", str(out)]
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["status"] == "finished"
    assert summary["proposals"] == {"accepted": 20}
    assert summary["episodes"]["continuation"]["success"] > 0.5
    assert set(summary["episodes"]["continuation"]["status"]) <= {"finished", "capped"}
    assert summary["C_tr"] == summary["C_i"] > 0
    # The same command goes on where it was stopped: nothing is bought twice.
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["C_i"] == summary["C_i"]


def test_settings_are_checked(data_dir: Path) -> None:
    host_image()
    with pytest.raises(InputError, match="mode='fast'"):
        open_terminal(mode="fast")
    with pytest.raises(InputError, match="turns=0"):
        open_terminal(turns=0)
    with pytest.raises(InputError, match="no /usr/bin/bash in it"):
        open_terminal(image="/proc")
    with pytest.raises(InputError, match="blunder"):
        settings_from("scripted:blunder=2", StudentSettings)
    with pytest.raises(InputError):
        settings_from("scripted:nonsense=2", StudentSettings)
    assert settings_from("scripted:memory=1", StudentSettings) == StudentSettings(memory=1)


def test_outputs_are_compared_without_what_nobody_means() -> None:
    assert normalised("a   b\r\n\n  c\t d \n") == "a b\nc d"
    assert normalised("sh\n├─tmux: server -S /run/terminal/socket\n│   └─(sh)\nf(x)\n") == "sh\nf(x)"


def test_a_command_without_a_part_is_still_one_line() -> None:
    rng = random.Random(0)
    for command in ("find /a -name '*.c' | xargs cat | wc -l", "ls", "echo $(date) (x)", "a 'b c' d"):
        for _ in range(50):
            shorter = without_a_part(command, rng)
            assert shorter.strip()
            assert shorter.count("'") % 2 == 0


def test_the_benchmark_counts_no_leak(data_dir: Path) -> None:
    layers = host_image().layers
    many = finished(lambda: terminal_sandbox.many(layers, starts=24, at_once=8))
    assert many["worked"] == 24
    assert set(many["left"].values()) == {0}
    times = finished(lambda: terminal_sandbox.times(layers, repeats=2))
    assert set(times) >= {"start", "command", "fork"}
