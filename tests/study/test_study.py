"""A study in the laboratory: every stage survives a vanished machine, and the prediction is not changed."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agentloop.environments.task_specs import parse_spec
from analysis.cli import main
from analysis.study.config import read_study
from analysis.study.jobs import Job, Train, Workshop
from analysis.study.laboratory import Laboratory, open_workshop
from analysis.study.stages import STAGES
from occupancy.record.errors import RunError
from occupancy.runs import open_run
from simulate.pilots.trainer import WorldTrainer
from simulate.worlds.worldfile import load_world

CONFIG = """
name = "tiny"
T_max = 30
teacher = "teacher"
workshop = "{workshop}"
[equipment]
world = "short/7"
[demonstrations]
first = "train:10"
more = "train:10-40"
parts = 2
[pilot]
tasks = "train:40-64"
demo_tasks = 12
replicates = 1
[trainings]
tasks = "held_out:60"
count = 3
[collection]
tasks = "train:100-220"
parts = 2
[sweep]
budgets = [6000, 12000]
arms = [{{ recipe = "op-short", K = [1, 3], r = 0.5 }}, {{ recipe = "op-critical", r = 1.0 }}]
rivals = ["op-short K=3 r=0.5"]
decisive_seeds = 2
fractions = [0.25]
[evaluation]
splits = ["seen:30", "unseen:30"]
[seconds]
sweep = 1
collection = 10
"""


class Dying(Laboratory):
    """A workshop on a machine that vanishes after some jobs."""

    left: float = float("inf")
    jobs: list[Job] = []  # noqa: RUF012 - shared by all that are opened

    async def do(self, job: Job) -> Path:
        if Dying.left <= 0:
            raise RunError("the machine is gone")
        Dying.left -= not job.out.exists()
        Dying.jobs.append(job)
        return await super().do(job)


@pytest.fixture(autouse=True)
def workshop(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(equipment: Mapping[str, Any], study: Path, *, gpus: int | None) -> Workshop:
        return Dying(open_workshop(equipment, study, gpus=gpus).world)

    module: Any = types.ModuleType("dying_workshop")
    module.opened = opened
    monkeypatch.setitem(sys.modules, "dying_workshop", module)
    Dying.left, Dying.jobs = float("inf"), []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(CONFIG.format(workshop="dying_workshop:opened"), "utf-8")
    return file


def study(config: Path, folder: Path, *more: str) -> int:
    return main(["study", str(config), "--out", str(folder), *more])


def told(folder: Path) -> dict[str, Any]:
    """The verdict without what is another one each time: dates, seconds, hashes of zipped tables."""
    found: dict[str, Any] = json.loads((folder / "verdict.json").read_text("utf-8"))
    for one in found["ranking"]:
        one.pop("seconds")
    return {k: v for k, v in found.items() if k not in ("registered", "seconds", "sha256", "machines")}


def test_a_study_goes_from_demonstrations_to_a_verdict(whole: Path) -> None:
    found = told(whole)
    assert found["cells"]["evaluated"] == found["cells"]["registered"]
    assert {one["verdict"] for one in found["claims"]} <= {
        "holds",
        "does not hold",
        "cannot tell",
        "not measured",
    }
    assert {one["by"] for one in found["ranking"]} == {"the plan", "one run at 0.25 of the budget"}
    assert found["primary"]["measured"]["tasks"] == 60
    own = found["regret"]["12000"]
    assert 0 <= own["low"] <= own["regret"] <= own["high"]
    assert all(abs(arm["C_i"] - arm["budget"]) < 0.3 * arm["budget"] for arm in found["arms"])
    page = (whole / "verdict.md").read_text("utf-8")
    assert "## The paper's claims" in page
    assert "nan" not in page
    parts = [len(list((place / "parts").iterdir())) for place in whole.glob("cells/*/")]
    assert set(parts) == {1}, "an evaluation is kept as one part"
    assert sum(file.stat().st_size for place in whole.glob("cells/*/") for file in place.rglob("*")) < 500_000


def test_demonstrations_teach_pi_1(whole: Path) -> None:
    """D_BC holds the demonstrations as traces, and nothing else."""
    run = open_run(whole / "demonstrations" / "first")
    assert run.read("traces")["episode_id"].to_pylist() == run.read("episodes")["episode_id"].to_pylist()
    assert set(run.read("episodes")["kind"].to_pylist()) == {"demo"}
    world = load_world("short/7")
    assert abs(WorldTrainer(world).law([run.folder]) - world.base).max() > 0.1


def test_a_machine_may_vanish_after_any_job_and_another_goes_on_elsewhere(
    config: Path, tmp_path: Path, whole: Path
) -> None:
    place, turns = tmp_path / "at-0", 0
    while True:
        # One job is finished, or three; the weights are lost, or not; the place is always a new one.
        Dying.left = 1 + 2 * (turns % 2)
        code = study(config, place)
        if code == 0:
            break
        assert code == 1
        turns += 1
        elsewhere = tmp_path / f"at-{turns}"
        shutil.copytree(place, elsewhere, ignore=shutil.ignore_patterns("work" if turns % 3 else ".nothing"))
        shutil.rmtree(place)
        place = elsewhere
    assert turns > 12
    assert told(place) == told(whole)
    trained = sum(isinstance(job, Train) for job in Dying.jobs)
    assert trained > 1, "pi_1 was lost and trained again"
    names = [job.out.name for job in Dying.jobs if not isinstance(job, Train)]
    assert len(names) == len(set(names)), "and nothing that was finished was done again"


def test_every_stage_can_be_the_last_and_is_not_repeated(config: Path, tmp_path: Path, whole: Path) -> None:
    for stage in STAGES:
        for repeated in (False, True):
            done = len(Dying.jobs)
            assert study(config, tmp_path / "study", "--stop-after", stage) == 0
            new = [job for job in Dying.jobs[done:] if not isinstance(job, Train)]
            assert not (repeated and new)
    assert told(tmp_path / "study") == told(whole)
    assert study(config, tmp_path / "study", "--stop-after", "supper") == 2


def test_where_time_runs_out_cells_are_cut_from_the_end(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    assert study(config, folder, "--stop-after", "registration") == 0
    now = [0.0]

    async def slow(self: Laboratory, job: Job) -> Path:
        now[0] += 10.0
        return await Laboratory.do(self, job)

    monkeypatch.setattr(Dying, "do", slow)
    monkeypatch.setattr("analysis.study.work.monotonic", lambda: now[0])
    assert study(config, folder, "--minutes", "1e-9") == 3
    assert "the same command with more --minutes goes on" in capsys.readouterr().err
    assert study(config, folder, "--minutes", "0.5") == 3
    assert "no verdict yet" in capsys.readouterr().err
    assert study(config, folder, "--minutes", "2") == 3
    assert "cells at the end of the order are cut" in capsys.readouterr().err
    found = told(folder)
    cells = json.loads((folder / "registration.json").read_text("utf-8"))["cells"]
    order = [cell["name"] for cell in cells if cell["r_tokens"]]
    missing = [one["cell"] for one in found["cells"]["missing"] if one["cell"] in order]
    assert 0 < len(missing) < len(order)
    assert missing == order[-len(missing) :], "cells that need no collection do not wait for it"
    assert study(config, folder) == 0
    assert not told(folder)["cells"]["missing"]


def test_what_is_registered_is_not_changed(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    assert study(config, folder, "--stop-after", "registration") == 0
    registration = folder / "registration.json"
    begun = registration.read_bytes()
    capsys.readouterr()

    def refused(said: str, *more: str) -> None:
        assert study(config, folder, *more) == 2
        error = capsys.readouterr().err
        assert said in error, error
        assert len(error.splitlines()) == 1

    plan, turns = folder / "plan.json", next(folder.glob("pilot/parts/*/turns.parquet"))
    kept = {file: file.read_bytes() for file in (plan, turns)}
    plan.write_bytes(kept[plan].replace(b"0", b"1", 1))
    refused(f"the plan of {folder} has SHA-256")
    plan.write_bytes(kept[plan])
    pq.write_table(pq.read_table(turns), turns, compression="none")
    refused(f"the pilot of {folder} has SHA-256")
    turns.write_bytes(kept[turns])
    registration.write_bytes(begun.replace(b"pass_at_1", b"pass_at_2", 1))
    refused("was registered: restore the file")
    registration.write_bytes(begun)
    text = config.read_text("utf-8")
    config.write_text(text.replace("12000", "13000"), "utf-8")
    refused(
        "was begun with sweep.budgets = (6000, 12000), and (6000, 13000) is asked (SHA-256 of the configs"
    )
    config.write_text(text.replace("sweep = 1", "sweep = 2"), "utf-8")
    assert study(config, folder) == 0, "guessed seconds are not what was registered"
    assert registration.read_bytes() == begun
    assert study(config, folder) == 0
    assert registration.read_bytes() == begun


def test_a_dry_run_says_what_is_left_and_does_nothing(
    config: Path, tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(config, tmp_path / "study", "--dry-run", "--json") == 0
    left = {one["stage"]: one for one in json.loads(capsys.readouterr().out)["left"]}
    assert (left["demonstrations"]["jobs"], left["trainings"]["jobs"]) == (3, 3)
    assert left["collection"]["source"] == "a guess of the config"
    assert not (tmp_path / "study").exists()
    assert not Dying.jobs
    assert study(config, tmp_path / "study", "--dry-run") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{sum(one['jobs'] for one in left.values())} jobs are left: about ")
    assert study(config, whole, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((whole / "verdict.json").read_text("utf-8"))
    assert study(config, whole, "--dry-run", "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["seconds"] == 0
    assert "finished jobs" in plain["left"][-1]["source"]


def test_a_dry_run_looks_for_the_base_and_counts_a_cpu_as_one_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld.toml"
    base, seconds = tmp_path / "base", {}
    for gpus in ("0", "1"):
        arguments = ("--dry-run", "--json", "--gpus", gpus, "--base", str(base))
        assert study(shipped, tmp_path / "study", *arguments) == 2
        told = capsys.readouterr()
        assert "holds no config.json" in told.err
        seconds[gpus] = json.loads(told.out)["seconds"]
    assert seconds["0"] > seconds["1"]
    base.mkdir()
    (base / "config.json").write_text("{}")
    assert study(shipped, tmp_path / "study", "--dry-run", "--base", str(base)) == 0
    assert "at a time (1 GPU: --gpus N for more)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("T_max = 30", "T_max = 30\nT_mix = 1", "unknown entry 'T_mix'"),
        ("count = 3", "count = -3", "count=-3"),
        ('tasks = "held_out:60"', "", "lacks the entry 'tasks'"),
        ("budgets = [6000, 12000]", "budgets = [12000, 6000]", "rising teacher tokens"),
        ("op-short K=3 r=0.5", "op-short K=4 r=0.5", "is no arm"),
        ("fractions = [0.25]", "fractions = [1.25]", "shares between 0 and 1"),
        ('more = "train:10-40"', 'more = "train"', "expected split:N or split:A-B"),
        ("K = [1, 3]", "k = [1, 3]", "expected recipe, and K and r"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_in_one_line(
    was: str, now: str, said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config.read_text("utf-8")
    assert was in text
    config.write_text(text.replace(was, now), "utf-8")
    assert study(config, config.with_name("study")) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_failed_job_stops_the_study_in_one_line(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Dying.left = 4
    assert study(config, tmp_path / "study") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "fewsteps study: the machine is gone"


def test_a_cell_that_fails_does_not_keep_the_others_from_a_verdict(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Laboratory.do

    async def failing(self: Laboratory, job: Job) -> Path:
        if "op-critical" in job.out.name:
            raise RunError("out of memory")
        return await whole(self, job)

    monkeypatch.setattr(Laboratory, "do", failing)
    assert study(config, tmp_path / "study", "--gpus", "9") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "fewsteps study: out of memory"
    missing = [one["cell"] for one in told(tmp_path / "study")["cells"]["missing"]]
    assert missing
    assert all("op-critical" in name for name in missing)


SPLITS = ["train", "dev", "held_out", "valid_seen", "valid_unseen", "test", "seen", "unseen"]


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "benchmarks" / "studies").glob("*.toml"))
)
def test_the_studies_of_the_repository_can_be_read_and_use_no_task_twice(file: Path) -> None:
    config = read_study(file)
    specs = (config.demonstrations.first, config.demonstrations.more, config.pilot.tasks)
    slices = [parse_spec(spec, splits=SPLITS) for spec in specs]
    slices += [parse_spec(spec, splits=SPLITS) for spec in (config.trainings.tasks, config.collection.tasks)]
    used = [(part.split, task) for part in slices for task in range(part.start, part.stop or 0)]
    assert len(used) == len(set(used))
    for part in (parse_spec(spec, splits=SPLITS) for spec in config.evaluation.splits):
        own = [task for split, task in used if split == part.split]
        assert not any(part.start <= task < (part.stop or task + 1) for task in own)


def test_a_study_has_one_hash_however_its_numbers_are_written(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld.toml").read_text("utf-8")
    for old, new in (("held_out = 0.0", "held_out = 0"), ("r = 1.0", "r = 1")):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "study.toml").write_text(text, "utf-8")
    published = Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld.toml"
    assert read_study(tmp_path / "study.toml").sha256 == read_study(published).sha256
