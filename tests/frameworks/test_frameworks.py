"""Unmodified frameworks through collect, plan and train: inspect_ai, verifiers and OpenEnv, each from PyPI.

They run in the environments of `make frameworks`, since their pins conflict with ours and with each other's.
Their games are played by scripts, so that nothing but the frameworks is tried.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
from tiny_model import save_tiny_model
from toy_runs import rows
from waiting import HANG_S, held_port, until_answered

from analysis.cli import main
from occupancy.runs import Run, open_run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRAMEWORKS = Path(os.environ.get("FEWSTEPS_FRAMEWORKS") or ROOT / ".venv-frameworks")
PILOT = ["--pilot", "--handback=0,1", "--replicates=1", "--demo-tasks=4"]
EPISODES = 5
"""Of each task: rollout, continuation, demonstration and two hand-backs at most."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FRAMEWORKS.is_dir(), reason="no frameworks: run `make frameworks`"),
]


def program(environment: str, name: str) -> str:
    return str(FRAMEWORKS / environment / "bin" / name)


def said_by(environment: str, code: str) -> list[str]:
    """Lines that a framework's Python prints."""
    command = [program(environment, "python"), "-c", code]
    return subprocess.run(
        command, check=True, timeout=HANG_S, capture_output=True, text=True
    ).stdout.splitlines()


@contextmanager
def running(command: list[str], health: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers at `health`; it is stopped at the end."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=HERE)
    try:
        until_answered(health, process)
        yield process
    finally:
        process.terminate()
        process.wait(HANG_S)


def played(run: Path, player: str, tasks: int, command: list[str], *more: str) -> None:
    """A pilot that a framework's own command has played."""
    sys.path.append(str(HERE))
    serve = ["serve", str(run), f"--student=players:{player}_student", f"--teacher=players:{player}_teacher"]
    serve += [*PILOT, f"--tasks={tasks}", "--set=T_max=8", "--port=0", *more]
    assert main([*serve, f"--play={shlex.join(command)}"]) == 0


def planned_and_trained(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The pilot in the planner's and the trainer's hands."""
    plan = tmp_path / "plan.toml"
    capsys.readouterr()
    assert main(["plan", str(folder), "--budget=5k", "--pool=50", "--json", "--out", str(plan)]) == 0
    assert json.loads(capsys.readouterr().out)["recommended"]
    base = save_tiny_model(tmp_path / "base", max_position_embeddings=2048)
    small = ["precision=fp32", "epochs=1", "batch=4", "row_tokens=2048", "lr=0.01"]
    command = [
        "train",
        str(folder),
        "--base",
        str(base),
        "--preset",
        "hotpotqa",
        "--out",
        str(tmp_path / "pi"),
    ]
    assert main([*command, "--json", *[x for setting in small for x in ("--set", setting)]]) == 0
    capsys.readouterr()
    return open_run(folder)


def whole_pilot(run: Run, tasks: int) -> Counter[str]:
    """How episodes ended; the pilot has what a plan needs of each task."""
    episodes = rows(run, "episodes")
    kinds = Counter(row["kind"] for row in episodes)
    assert (kinds["rollout"], kinds["demo"]) == (tasks, min(tasks, 4))
    assert kinds["continuation"] >= tasks - 1
    assert kinds["handback"] > 0
    authors = {row["author"] for row in rows(run, "turns")}
    assert authors == {"student", "teacher"}
    return Counter(row["status"] for row in episodes)


def evaluated(run: Path, tasks: int, *more: str) -> None:
    """Samples of the inspect task, five epochs."""
    command = [program("inspect", "python"), "-m", "agentloop.serve.inspect_cli", "eval"]
    command += ["inspect_task.py", "--model=fewsteps/run", f"--epochs={EPISODES}", f"--limit={tasks}"]
    command += ["--display=plain", f"--log-dir={run.with_name('logs')}", *more]
    with chdir(HERE):  # inspect_ai takes relative paths alone
        played(run, "adding", tasks, ["env", f"PYTHONPATH={ROOT}", *command], "--harness=inspect/sums")


def test_an_inspect_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluated(tmp_path / "run", 4)
    run = planned_and_trained(tmp_path / "run", tmp_path, capsys)
    assert set(whole_pilot(run, 4)) == {"finished"}
    prompts = [json.loads(row["prompt"]) for row in rows(run, "episodes") if row["kind"] == "rollout"]
    assert all('"name": "add"' in prompt[0]["content"] for prompt in prompts)
    out = tmp_path / "log"
    assert main(["export", str(run.folder), "--format=inspect", f"--out={out}"]) == 0
    read = f"from inspect_ai.log import read_eval_log as r; print(len(r({str(out / 'log.json')!r}).samples))"
    assert said_by("inspect", read) == [str(len(rows(run, "episodes")))]


def test_an_inspect_task_through_the_responses_interface(tmp_path: Path) -> None:
    evaluated(tmp_path / "run", 2, "-M", "responses_api=true")
    assert set(whole_pilot(open_run(tmp_path / "run"), 2)) == {"finished"}


def test_a_verifiers_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TextArena's Hangman as verifiers has it, with words of ours: one command of its own."""
    words = tmp_path / "nltk" / "corpora" / "words"
    words.mkdir(parents=True)
    for name in ("en", "en-basic", "README"):
        (words / name).write_text("tea\naire\n")
    outputs, settings = tmp_path / "outputs", tmp_path / "eval.toml"
    settings.write_text(
        'model = "fewsteps"\npush = false\nnum_rollouts = 4\n'
        '[env.taskset]\nid = "textarena"\ngame = "Hangman-v0"\n'
        '[env.player.harness]\nid = "null"\n[env.player.runtime]\ntype = "subprocess"\n'
        "[select]\nlimit = 2\n"
    )
    path = f"{program('verifiers', '')}:{os.environ['PATH']}"
    command = ["env", f"NLTK_DATA={tmp_path / 'nltk'}", f"PATH={path}", program("verifiers", "vf-eval")]
    command += ["@", str(settings), "--no-rich", "--client.base-url", "{url}/v1"]
    command += ["--output-dir", str(outputs)]
    played(tmp_path / "run", "spelling", 2, command, f"--rewards=verifiers:{outputs}", "--handback=0")
    run = planned_and_trained(tmp_path / "run", tmp_path, capsys)
    assert set(whole_pilot(run, 2)) <= {"finished", "horizon"}
    (traces,) = outputs.rglob("traces.jsonl")
    assert main(["import", str(traces), "--author=student", "--out", str(tmp_path / "imported")]) == 0
    command = ["export", str(run.folder), "--format=verifiers", f"--model={tmp_path / 'base'}"]
    assert main([*command, f"--out={tmp_path / 'back'}"]) == 0
    read = (
        "import sys, pathlib\n"
        "from verifiers.v1.trace import WireTrace\n"
        "from verifiers.v1.utils.trace_store import read_episodes\n"
        f"for e in read_episodes(pathlib.Path({str(tmp_path / 'back')!r}), WireTrace):\n"
        "    [branch] = e.traces[0].branches\n"
        "    print(sum(branch.sampled_mask), e.traces[0].reward)"
    )
    rewards = {row["episode_id"]: row["R"] for row in rows(run, "episodes")}
    read_back = [line.split() for line in said_by("verifiers", read)]
    assert all(int(trained) > 0 for trained, _ in read_back)
    assert [float(R) for _, R in read_back] == [rewards[row["episode_id"]] for row in rows(run, "traces")]


def test_an_openenv_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A game behind OpenEnv's own server, as `--env openenv:URL`."""
    game = [program("verifiers", "python"), str(HERE / "openenv_game.py")]
    with held_port() as port, running([*game, str(port)], f"http://127.0.0.1:{port}/health"):
        address = f"http://127.0.0.1:{port}"
        who = ["--student=players:guessing_student", "--teacher=players:guessing_teacher"]
        command = ["collect", f"--env=openenv:{address}", "--tasks=seeds:4", *who, *PILOT, "--workers=4"]
        sys.path.append(str(HERE))
        assert main([*command, "--set=T_max=5", "--out", str(tmp_path / "run")]) == 0
    run = planned_and_trained(tmp_path / "run", tmp_path, capsys)
    assert set(whole_pilot(run, 4)) <= {"finished", "horizon"}
