"""Task folders of Terminal-Bench and Harbor: built, played, and verified in a fork that nobody prepared."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from terminal_machine import finished, host_image, together

from agentloop.environments.terminal import episode
from agentloop.environments.terminal.benchmark import Terminal, open_terminal
from agentloop.environments.terminal.tasks.folders import read_task
from agentloop.environments.terminal.tasks.task import GradeFailed
from agentloop.environments.terminal.tasks.verifier import pytest_reward
from agentloop.environments.terminal.terminus.protocol import turn_text
from agentloop.environments.terminal.terminus.screen import Screen
from agentloop.types import Status
from occupancy.record.errors import DataError, InputError

REWARD = "echo {} > /logs/verifier/reward.txt\n"
RIGHT = "if grep -qx hello /app/out.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
SUMMARY = """if [ -f "$TEST_DIR/run-tests.sh" ] && grep -qx hello /app/out.txt
then echo "PASSED ../tests/test_outputs.py::test_out"
else echo "FAILED ../tests/test_outputs.py::test_out - AssertionError"; fi
"""


def harbor(place: Path, *, test: str = RIGHT, docker: str = "", toml: str = "") -> Path:
    for name in ("environment", "tests"):
        (place / name).mkdir(parents=True)
    (place / "instruction.md").write_text("Write hello to out.txt.")
    (place / "task.toml").write_text(toml or "[verifier]\ntimeout_sec = 20.0\n[agent]\ntimeout_sec = 60\n")
    (place / "tests" / "test.sh").write_text(test)
    if docker:
        (place / "environment" / "Dockerfile").write_text(docker)
    return place


def terminal_bench(place: Path, *, test: str = SUMMARY) -> Path:
    (place / "tests").mkdir(parents=True)
    (place / "task.yaml").write_text(
        "instruction: |-\n  Write hello to out.txt.\nparser_name: pytest\ndifficulty: easy\n"
        "max_agent_timeout_sec: 60.0\nmax_test_timeout_sec: 20\n"
    )
    (place / "run-tests.sh").write_text(test)
    (place / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app\n")
    return place


def benchmark(place: Path, **settings: object) -> Terminal:
    host_image()
    return open_terminal(tasks=str(place), **settings)  # type: ignore[arg-type]


async def reward(opened: Terminal, task_id: str, *lines: str) -> float | None:
    (task,) = (task for task in opened.tasks("test") if task.task_id == task_id)
    async with opened.open(task) as env:
        await env.reset(0)
        keys = [(f"{line}\n", 0.1) for line in lines]
        reply = await env.step(turn_text("a", "p", keys, complete=True))
        # An agent that has broken its own terminal is graded at once.
        return (reply if reply.done else await env.step(turn_text("a", "p", [], complete=True))).reward


def graded(opened: Terminal, task_id: str, *lines: str) -> float | None:
    return finished(lambda: reward(opened, task_id, *lines))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("make", [harbor, terminal_bench])
def test_both_formats_are_verified(make: Callable[[Path], Path], tmp_path: Path, cache: Path) -> None:
    make(tmp_path / "tasks" / "hello")
    opened = benchmark(tmp_path / "tasks")
    assert graded(opened, "hello", "echo hello > out.txt") == 1
    assert graded(opened, "hello", "echo bye > out.txt") == 0
    assert graded(opened, "hello") == 0


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("true\n", "neither reward.json nor reward.txt"),
        (REWARD.format("''"), "expected a number"),
        (REWARD.format("nan"), "expected a finite number"),
        (REWARD.format("inf"), "expected a finite number"),
        (REWARD.format("7"), "from 0 to 1"),
        (REWARD.format("yes"), "expected a number"),
        ("echo '{\"reward\": true}' > /logs/verifier/reward.json\n", "expected a finite number"),
        ('echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json\n', "expected a finite number"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > /logs/verifier/reward.json\n", "expected a number"),
        ("ln -s /tests/test.sh /logs/verifier/reward.txt\n", "neither"),
        ("sleep 60\n", "was ended, after 1 s"),
    ],
)
def test_no_reward_is_an_error(test: str, told: str, tmp_path: Path, cache: Path) -> None:
    harbor(tmp_path / "tasks" / "bad", test=test, toml="[verifier]\ntimeout_sec = 1\n")
    with pytest.raises(GradeFailed, match=told):
        graded(benchmark(tmp_path / "tasks"), "bad")
    assert GradeFailed.status is Status.ENVIRONMENT_ERROR


def test_json_comes_before_text(tmp_path: Path, cache: Path) -> None:
    harbor(
        tmp_path / "tasks" / "two",
        test=REWARD.format(0) + """echo '{"reward": 0.25, "x": 1}' > /logs/verifier/reward.json""",
    )
    assert graded(benchmark(tmp_path / "tasks"), "two") == 0.25


ONE = "echo 1 > /logs/verifier/reward.txt"
WRITES = "mkdir -p /app; echo hello > /app/out.txt"
FORGERIES = {
    "a reward of its own": f"mkdir -p /logs/verifier; {ONE}",
    "other tests": f"mkdir -p /tests; echo '{ONE}' > /tests/test.sh",
    "another shell": "rm /bin; mkdir /bin; "
    f"printf '#!/usr/bin/dash\\n{ONE}\\n' > /bin/bash; chmod 755 /bin/bash",
    "a profile": f"echo '{WRITES}' > ~/.profile; cp ~/.profile ~/.bash_profile; "
    "cp ~/.profile /etc/profile.d/x.sh; cp ~/.profile /etc/profile",
    "a preloaded library": "echo /app/x.so > /etc/ld.so.preload",
    "a later write": "(until [ -e /tests ]; do sleep .01; done; echo hello > /app/out.txt) & disown",
    "a link": "rm -rf /logs; ln -s /app /logs; mkdir -p /app/verifier; echo 1 > /app/verifier/reward.txt",
    "a link for the home folder": "cd /; rm -rf /root; ln -s /app /root; "
    f"echo 'trap \"{ONE}\" EXIT' | tee /app/.profile > /app/.bash_profile",
    "links to nothing": "cd /; for n in etc tests logs root; do rm -rf /$n; ln -s /x /$n; done",
    "deep folders": 'python3 -c \'import os\nfor i in range(1500): os.mkdir("d"); os.chdir("d")\'',
    "links for folders": "cd /; rm -rf /etc /tests; ln -s /app /etc; ln -s /app /tests; "
    f"echo '{ONE}' > /app/test.sh",
}


def test_nothing_that_the_agent_prepared_is_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, mkdtemp = [], tempfile.mkdtemp

    def noted(*given: str, **more: str) -> str:
        made.append(Path(mkdtemp(*given, **more)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    harbor(tmp_path / "tasks" / "forged")
    opened = benchmark(tmp_path / "tasks")
    for name, line in FORGERIES.items():
        assert graded(opened, "forged", line) == 0, name
    assert [folder for folder in made if folder.name.startswith("fewsteps-verify-")]
    assert not [folder for folder in made if folder.exists()]
    assert graded(opened, "forged", "echo hello > /app/out.txt") == 1


DESTROYED = {
    "no process left": "for i in $(seq 400); do sleep 1000 & done",
    "no file left": "rm -rf --no-preserve-root / 2>/dev/null",
    "no working folder": "cd /; rm -rf /app; ln -s /none /app",
    "no process at all": "kill -9 -1",
}


@pytest.mark.slow
def test_an_agent_that_destroys_its_sandbox_has_failed(tmp_path: Path, cache: Path) -> None:
    harbor(tmp_path / "tasks" / "destroyed")
    opened = benchmark(tmp_path / "tasks", workers=len(DESTROYED))

    async def all_of_them() -> list[float | None]:
        return await together(reward(opened, "destroyed", line) for line in DESTROYED.values())

    assert dict(zip(DESTROYED, finished(all_of_them), strict=True)) == dict.fromkeys(DESTROYED, 0.0)


def test_a_verifiers_programs_and_settings_are_the_tasks_own(tmp_path: Path, cache: Path) -> None:
    docker = """FROM a
WORKDIR /opt/own
ENV PATH="/opt/tool/bin:/opt/own/bin:$PATH"
RUN mkdir -p /opt/tool/bin /opt/tool/lib && echo own > /opt/tool/lib/data
RUN printf '#!/bin/sh\\ncat /opt/tool/lib/data\\n' > /opt/tool/bin/tool && chmod 755 /opt/tool/bin/tool
"""
    check = """own=$(tool); done=$(cat /opt/own/bin/made)
cd /; for f in pytest.ini conftest.py pyproject.toml var/lib/dpkg/info/x; do [ -e $f ] && own=forged; done
[ "$own $done" = "own work" ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
    harbor(tmp_path / "tasks" / "path", docker=docker, test=check)
    opened = benchmark(tmp_path / "tasks")
    works = "mkdir bin; echo work > bin/made"
    assert graded(opened, "path", works) == 1
    forged = "echo x > /opt/tool/lib/data; printf '#!/bin/sh\\necho own\\n' > /opt/tool/bin/tool; "
    forged += "touch /pytest.ini /conftest.py /pyproject.toml; mkdir -p /var/lib/dpkg/info; "
    assert graded(opened, "path", f"{forged} touch /var/lib/dpkg/info/x; {works}") == 1
    assert graded(opened, "path", "mkdir bin; echo idle > bin/made") == 0


def test_versions_are_part_of_a_run(tmp_path: Path, cache: Path) -> None:
    place = harbor(tmp_path / "tasks" / "one")
    first = benchmark(tmp_path / "tasks", benchmark="terminal-bench@2.0").version
    assert first.startswith("terminal-bench@2.0-")
    (place / "instruction.md").write_text("Write hello to out.txt!")
    second = benchmark(tmp_path / "tasks", benchmark="terminal-bench@2.0").version
    assert first != second
    assert "not comparable" in benchmark(tmp_path / "tasks", timeout_factor=2.0).version


def test_time_limit_and_reward_are_independent(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbor(tmp_path / "tasks" / "slow", toml="[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 600\n")
    opened, typed, now = benchmark(tmp_path / "tasks"), Screen.type, 0.0

    async def slow(self: Screen, keys: str, seconds: float) -> None:
        nonlocal now
        now += 61
        await typed(self, keys, seconds)

    monkeypatch.setattr(Screen, "type", slow)
    monkeypatch.setattr(episode, "time", SimpleNamespace(monotonic=lambda: now))

    async def play() -> None:
        async with opened.open(opened.tasks("test")[0]) as env:
            await env.reset(0)
            keys = [("echo hello > out.txt\n", 1), ("echo late > out.txt\n", 1)]
            reply = await env.step(turn_text("a", "p", keys))
            assert not reply.done
            reply = await env.step(turn_text("a", "p", []))
            assert (reply.done, reply.reward) == (True, 1.0)

    finished(play)


def test_short_summaries() -> None:
    assert pytest_reward("PASSED t.py::a\nSKIPPED [1] t.py:3: no\nXFAIL t.py::b - why\n") == 1
    for bad in ("FAILED", "ERROR", "XPASS"):
        assert pytest_reward(f"PASSED t.py::a\n{bad} t.py::b\n") == 0
    forged = "PASSED t.py::a\n== short test summary info ==\nFAILED t.py::a - no\nPASSED t.py::a\n"
    assert pytest_reward(forged) == 0
    said = "FAILED to connect\n== short test summary info ==\nPASSED t.py::a\n"
    assert pytest_reward(said) == 1
    with pytest.raises(GradeFailed, match="no test"):
        pytest_reward("collected 0 items\n")


def test_folders_that_are_no_tasks_are_refused(tmp_path: Path, cache: Path) -> None:
    host_image()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no folder with a task\.yaml"):
        open_terminal(tasks=str(tmp_path / "empty"))
    with pytest.raises(InputError, match="or a folder of tasks"):
        open_terminal(tasks=str(tmp_path / "none"))
    for name, text, told in (
        ("a", "instruction: [", "expected YAML"),
        ("b", "x: 1", "no instruction"),
        ("c", "instruction: x\nparser_name: other", "not supported"),
        ("d", "instruction: x\nmax_agent_timeout_sec: .inf", "expected seconds"),
        ("e", "instruction: x", "needs its verifier"),
        ("f", "- 1", "expected a mapping"),
        ("h", "descriptions: [1, {key: base}]", "no instruction"),
        ("i", "descriptions: 5", "no instruction"),
        ("j", "[" * 5000, "j/task.yaml.*expected YAML"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.yaml").write_text(text)
        with pytest.raises(DataError, match=told):
            read_task(tmp_path / name)
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "task.toml").write_text("[")
    with pytest.raises(DataError, match=r"expected a task\.toml"):
        read_task(tmp_path / "g")
    (tmp_path / "g" / "task.toml").write_text("agent = 5")
    (tmp_path / "g" / "instruction.md").write_text("do it")
    with pytest.raises(DataError, match="5 where a table with timeout_sec is expected"):
        read_task(tmp_path / "g")


def test_builds_and_verifiers_may_have_a_network(tmp_path: Path, cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach = f"if (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; then echo 1; else echo 0; fi"
        harbor(
            tmp_path / "tasks" / "net",
            docker=f"FROM a\nWORKDIR /app\nRUN ({reach}) > /app/built\n",
            test=f"[ $(cat /app/built)$(cat /app/agent)$({reach}) = $(cat /tests/want) ] && "
            + REWARD.format(1),
        )
        for network, want in (("", "000"), ("build", "100"), ("build,verifier", "101")):
            (tmp_path / "tasks" / "net" / "tests" / "want").write_text(want)
            opened = benchmark(tmp_path / "tasks", network=network)
            assert graded(opened, "net", f"({reach}) > /app/agent") == 1
            assert ("network" in opened.version) == bool(network)
    (tmp_path / "dev.txt").write_text("net\n")
    assert [task.task_id for task in opened.tasks(f"@{tmp_path / 'dev.txt'}")] == ["net"]
    with pytest.raises(InputError, match="expected build, verifier"):
        benchmark(tmp_path / "tasks", network="agent")


def test_settings_that_only_harbor_has_are_refused_by_name(tmp_path: Path, cache: Path) -> None:
    plain = "[agent]\nuser = 'root'\n[environment]\ngpus = 0\nworkdir = '/srv/place'\n"
    place = harbor(
        tmp_path / "tasks" / "plain", toml=plain, test=f"[ $PWD = /srv/place ] && {REWARD.format(1)}"
    )
    assert place.is_dir()
    assert graded(benchmark(tmp_path / "tasks"), "plain") == 1
    for name, toml in (
        ("verifier.env", "[verifier]\nenv = {KEY = '${KEY}'}\n"),
        ("environment.gpus", "[environment]\ngpus = 1\n"),
        ("agent.user", "[agent]\nuser = 'agent'\n"),
    ):
        harbor(tmp_path / name / "task", toml=toml)
        with pytest.raises(InputError, match=f"{name} is not supported here"):
            graded(benchmark(tmp_path / name), "task")


def test_the_settings_are_kept(tmp_path: Path) -> None:
    folder = read_task(harbor(tmp_path / "t", toml='[metadata]\ndifficulty = "hard"\n'))
    assert json.loads(json.dumps(dict(folder.settings))) == {"metadata": {"difficulty": "hard"}}
    assert folder.agent_s == folder.verifier_s == 900
