"""Harbor: our sandbox as its environment, our agent in it, and its environments as ours.

The tests that are marked slow run Harbor itself, from .venv-harbor (`make harbor`) or FEWSTEPS_HARBOR,
without a container engine. The others play through a program that looks like it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from terminal_machine import finished, host_image
from waiting import HANG_S

from agentloop.environments.terminal.benchmark import open_terminal
from agentloop.environments.terminal.harbor.trajectory import find_recorded, recorded_policy
from agentloop.environments.terminal.tasks.task import GradeFailed
from agentloop.environments.terminal.terminus.protocol import turn_text
from agentloop.types import Ask, EnvironmentFailed, Message, PolicyFailed
from analysis.cli import main
from occupancy.record.errors import InputError
from occupancy.runs import open_run

ROOT = Path(__file__).parents[2]
PLUGIN = "agentloop.environments.terminal.harbor"
CHECK = (
    'if grep -qx hello out.txt && [ "$GREETING" = "hello you" ]; then echo 1; else echo 0; fi '
    "> /logs/verifier/reward.txt\n"
)


def make_task(place: Path, *, solution: str = "echo hello > out.txt", agent_s: float = 60) -> Path:
    for name in ("environment", "tests", "solution"):
        (place / name).mkdir(parents=True)
    (place / "task.toml").write_text(
        f'version = "1.0"\n[agent]\ntimeout_sec = {agent_s}\n[verifier]\ntimeout_sec = 30.0\n'
    )
    (place / "instruction.md").write_text(f"Write hello to out.txt ({place.name}).")
    (place / "environment" / "Dockerfile").write_text(
        'FROM debian:12\nWORKDIR /app\nENV GREETING="hello you"\n'
    )
    (place / "tests" / "test.sh").write_text(CHECK)
    (place / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solution}\n")
    return place


@pytest.fixture(scope="session")
def harbor() -> str:
    """The program harbor."""
    program = os.environ.get("FEWSTEPS_HARBOR") or str(ROOT / ".venv-harbor" / "bin" / "harbor")
    if not Path(program).exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Harbor: make harbor installs it")
    host_image()
    return program


def trial(program: str, task: Path, jobs: Path, agent: str, **options: object) -> dict[str, Any]:
    """The result of one trial by `harbor run` in the local sandbox."""
    command = [program, "run", "-p", str(task), "-a", agent, "--env", f"{PLUGIN}.environment:LocalSandbox"]
    command += ["--jobs-dir", str(jobs), "-n", "1", "-y", "-q"]
    for name, value in options.items():
        command += ["--ak", f"{name}={value}"]
    variables = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "HARBOR_TELEMETRY": "off"}
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = jobs.glob("*/*/result.json")
    result: dict[str, Any] = json.loads(file.read_text())
    return result


@pytest.mark.slow
def test_harbor_run_makes_our_episodes(harbor: str, tmp_path: Path) -> None:
    task, agent = make_task(tmp_path / "hello"), f"{PLUGIN}.agent:StudentThenTeacher"
    alone = trial(harbor, task, tmp_path / "student", agent, student="hello_policies:student", mode="settled")
    assert alone["exception_info"] is None, alone["exception_info"]
    assert alone["verifier_result"]["rewards"] == {"reward": 0.0}
    taught = trial(
        harbor,
        task,
        tmp_path / "teacher",
        agent,
        prefix=tmp_path / "student",
        switch="uniform",
        seed=1,
        K=2,
        teacher="hello_policies:teacher",
        mode="settled",
    )
    assert taught["exception_info"] is None, taught["exception_info"]
    assert taught["verifier_result"]["rewards"] == {"reward": 1.0}
    out = tmp_path / "run"
    assert main(["import", str(tmp_path / "student"), str(tmp_path / "teacher"), "--out", str(out)]) == 0
    run = open_run(out)
    rollout, continuation = sorted(run.read("episodes").to_pylist(), key=lambda row: -len(row["kind"]))[::-1]
    assert (rollout["kind"], rollout["R"], rollout["length"]) == ("rollout", 0, 4)
    assert (continuation["kind"], continuation["R"]) == ("continuation", 1)
    assert continuation["parent"] == rollout["episode_id"]
    turns = [row for row in run.read("turns").to_pylist() if row["episode_id"] == continuation["episode_id"]]
    assert {row["author"] for row in turns} == {"teacher"}
    copied = sum(
        row["output_tokens"]
        for row in run.read("turns").to_pylist()
        if row["episode_id"] == rollout["episode_id"] and row["t"] < continuation["switch_turn"]
    )
    assert all(row["counter"] == "hello_policies:teacher" for row in turns)
    counted = copied + sum(row["output_tokens"] for row in turns)
    assert taught["agent_result"]["n_output_tokens"] == counted


@pytest.mark.slow
def test_what_an_agent_prepares_for_harbors_verifier_is_not_used(harbor: str, tmp_path: Path) -> None:
    forged = (
        "echo 1 > /logs/verifier/reward.txt; cd /; rm -rf /root /tests; ln -s /app /root; ln -s /app /tests\n"
        "echo 'trap \"echo 1 > /logs/verifier/reward.txt\" EXIT' | tee /app/.profile > /app/.bash_profile\n"
        "(while :; do sleep .05; echo 1 > /logs/verifier/reward.txt; done) & disown"
    )
    result = trial(harbor, make_task(tmp_path / "forged", solution=forged), tmp_path / "jobs", "oracle")
    assert result["verifier_result"]["rewards"] == {"reward": 0.0}
    honest = trial(harbor, make_task(tmp_path / "honest"), tmp_path / "more", "oracle")
    assert honest["verifier_result"]["rewards"] == {"reward": 1.0}


@pytest.mark.slow
def test_harbors_own_terminus_plays_through_the_switching_endpoint(
    harbor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job of one task and two attempts: the student's rollout, then the teacher's continuation."""
    variables = {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
    for name, value in variables.items() | {("PYTHONPATH", f"{ROOT}:{ROOT / 'tests'}")}:
        monkeypatch.setenv(name, value)
    task, jobs, out = make_task(tmp_path / "hello"), tmp_path / "jobs", tmp_path / "run"
    job = [harbor, "run", "-p", str(task), "-k", "2", "-n", "2", "-a", "terminus-2", "-m", "openai/fewsteps"]
    job += ["--ak", "api_base={url}/v1", "--ak", 'session_id_headers=["X-Session-ID"]']
    job += ["--ak", "enable_summarize=false", "--jobs-dir", str(jobs), "-y", "-q"]
    job += ["--env", f"{PLUGIN}.environment:LocalSandbox"]
    command = ["serve", str(out), "--student=hello_policies:student", "--teacher=hello_policies:teacher"]
    command += [
        "--set=K=inf",
        "--set=T_max=8",
        "--seed=1",
        "--tasks=1",
        "--port=0",
        f"--rewards=harbor:{jobs}",
    ]
    assert main([*command, f"--play={shlex.join(job)}"]) == 0
    run = open_run(out)
    found = {row["kind"]: row for row in run.read("episodes").to_pylist()}
    assert {(kind, row["status"], row["R"]) for kind, row in found.items()} == {
        ("rollout", "finished", 0.0),
        ("continuation", "finished", 1.0),
    }
    assert "Write hello to out.txt" in found["rollout"]["prompt"]
    taught = [row for row in run.read("turns").to_pylist() if row["kind"] == "continuation"]
    assert {row["author"] for row in taught} == {"teacher"}


def collect(tasks: Path, out: Path, environment: str, *more: str) -> dict[str, Any]:
    settings = [f"tasks={tasks}", f"harbor={environment}", "turns=6", *more]
    arguments = ["collect", "--env", "terminal", "--tasks", "test", "--set", "K=2", "--out", str(out)]
    for setting in settings:
        arguments += ["--env-set", setting]
    policies = ["--student", "hello_policies:student", "--teacher", "hello_policies:teacher"]
    assert main([*arguments, *policies]) == 0
    episodes = open_run(out).read("episodes").to_pylist()
    return {row["kind"]: row for row in episodes}


@pytest.mark.slow
def test_environments_of_harbor_are_a_backend_of_ours(
    harbor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWSTEPS_HARBOR", harbor)
    make_task(tmp_path / "tasks" / "hello")
    found = collect(tmp_path / "tasks", tmp_path / "run", f"{PLUGIN}.environment:LocalSandbox")
    assert (found["rollout"]["status"], found["rollout"]["R"]) == ("finished", 0)
    assert (found["continuation"]["status"], found["continuation"]["R"]) == ("finished", 1)
    assert "harbor-0.26.0 in agentloop" in found["rollout"]["environment"]


@pytest.mark.slow
def test_harbors_time_limit_and_the_reward_are_independent(
    harbor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWSTEPS_HARBOR", harbor)
    make_task(tmp_path / "tasks" / "slow", agent_s=15)
    opened = open_terminal(tasks=str(tmp_path / "tasks"), harbor=f"{PLUGIN}.environment:LocalSandbox")

    async def play() -> None:
        async with opened.open(opened.tasks("test")[0]) as env:
            await env.reset(0)
            reply = await env.step(turn_text("a", "p", [("echo hello > out.txt; sleep 3600\n", 60)]))
            assert (reply.done, reply.reward, reply.parse_status) == (True, 1.0, "gone")

    finished(play)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one task, and a program in place of Harbor's whose result is FAKE_RESULT."""
    host_image()
    program = tmp_path / "harbor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests" / "fake_harbor.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("FEWSTEPS_HARBOR", str(program))
    monkeypatch.setenv("FAKE_RESULT", "{}")
    make_task(tmp_path / "tasks" / "hello")
    return tmp_path / "tasks"


def test_turns_are_played_through_a_socket(fake: Path, tmp_path: Path) -> None:
    found = collect(fake, tmp_path / "run", "docker")
    assert found["rollout"]["environment"].startswith("tasks-")
    assert "harbor-0.26.0 in docker turns=6 mode=settled" in found["rollout"]["environment"]
    assert (found["rollout"]["R"], found["continuation"]["R"]) == (0, 1)
    turns = open_run(tmp_path / "run").read("turns").to_pylist()
    assert any("echo hello > out.txt" in row["observation"] for row in turns)
    assert all(row["state_id"] is None or row["state_id"] < 0 for row in turns)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ('{"verifier_result": null}', "no reward: the trial has no reward"),
        ('{"verifier_result": {"rewards": {"reward": NaN}}}', "expected a finite number"),
        ('{"verifier_result": {"rewards": {"reward": 2}}}', "from 0 to 1"),
        ('{"verifier_result": {"rewards": {"speed": 1}}}', "no reward"),
        (
            '{"verifier_result": null, "exception_info": {"exception_type": "VerifierTimeoutError"}}',
            "VerifierTimeoutError",
        ),
    ],
)
def test_a_reward_that_harbor_lacks_is_an_error(
    fake: Path, monkeypatch: pytest.MonkeyPatch, result: str, told: str
) -> None:
    monkeypatch.setenv("FAKE_RESULT", result)
    opened = open_terminal(tasks=str(fake), harbor="docker")

    async def play() -> None:
        async with opened.open(opened.tasks("test")[0]) as env:
            await env.reset(0)
            await env.step(turn_text("a", "p", [], complete=True))
            with pytest.raises(GradeFailed, match=told):
                await env.step(turn_text("a", "p", [], complete=True))

    finished(play)


def test_a_container_that_does_not_start_says_why(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_terminal(tasks=str(fake), harbor="docker")
    monkeypatch.setenv("FAKE_RESULT", "crash")
    opened = open_terminal(tasks=str(fake), harbor="docker")

    async def play() -> None:
        async with opened.open(opened.tasks("test")[0]) as env:
            with pytest.raises(EnvironmentFailed, match="no daemon is running"):
                await env.reset(0)

    finished(play)


def test_what_harbor_cannot_play_is_refused(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="plays folders of tasks"):
        open_terminal(harbor="docker")
    with pytest.raises(InputError, match="plays folders of tasks"):
        open_terminal(tasks=str(fake), harbor="docker", network="build")
    (fake / "old").mkdir()
    (fake / "old" / "task.yaml").write_text("instruction: x\n")
    (fake / "old" / "run-tests.sh").write_text("true\n")
    with pytest.raises(InputError, match="harbor task migrate"):
        open_terminal(tasks=str(fake), harbor="docker")
    monkeypatch.setenv("FEWSTEPS_HARBOR", str(fake / "none"))
    with pytest.raises(InputError, match=r"is no program: .* FEWSTEPS_HARBOR"):
        open_terminal(tasks=str(fake), harbor="docker")


def test_a_recorded_prefix_is_played_again_and_checked(tmp_path: Path) -> None:
    step = {
        "source": "agent",
        "message": "one",
        "extra": {"author": "student"},
        "observation": {"results": [{"content": "seen 12:00"}]},
    }
    agent = {"name": "fewsteps", "extra": {"instruction": "do"}}
    document = {"schema_version": "ATIF-v1.7", "agent": agent, "steps": [step, {**step, "message": "two"}]}
    (tmp_path / "trajectory.json").write_text(json.dumps(document))
    steps = find_recorded(tmp_path, "do")
    policy = recorded_policy(steps)

    class Env:
        def normalise(self, text: str) -> str:
            return text.split(maxsplit=1)[0]

    async def asked(t: int, seen: str) -> str:
        context = [Message("user", seen, "environment")]
        return (await policy(Ask(context, t, 0, Env()))).text  # type: ignore[arg-type]

    assert finished(lambda: asked(1, "anything")) == "one"
    assert finished(lambda: asked(2, "seen 13:00")) == "two"
    for t, seen, told in ((2, "other", "something else"), (3, "seen", "was not recorded")):
        with pytest.raises(PolicyFailed, match=told):
            finished(lambda t=t, seen=seen: asked(t, seen))
    with pytest.raises(InputError, match="0 trajectories"):
        find_recorded(tmp_path, "another")
    (tmp_path / "trajectory.json").write_text(json.dumps(document).replace("student", "teacher"))
    with pytest.raises(InputError, match="student played alone"):
        find_recorded(tmp_path, "do")
    for strange in ({**document, "schema_version": "ATIF-v9"}, {**document, "steps": [{"source": "agent"}]}):
        (tmp_path / "trajectory.json").write_text(json.dumps(strange))
        with pytest.raises(InputError, match="0 trajectories"):
            find_recorded(tmp_path, "do")
