"""Small trainings on cuts of a pilot: kept, never repeated, and only believed where they are evidence."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pilots
import pytest
from toy_runs import run_of
from toy_world import expert
from waiting import HANG_S

from agentloop.ledger.report import account_of
from agentloop.types import Answer, Ask, CallFailed, Usage
from analysis.cli import main
from analysis.curves.acquisition import FIRST, Option
from analysis.curves.arms import Arm, arms_of
from analysis.curves.evidence import Training
from analysis.plan.answer import sentences
from analysis.plan.facts import facts_of
from analysis.plan.kept import kept_trainings
from analysis.plan.planner import plan
from analysis.plan.purchase import plan_file
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.trainer import Bench, Effort, Rewards, named_trainer, train_more
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.recipe import INF, Recipe, preset
from occupancy.runs import Run, create_run, open_run

GOOD = {f"new-{q}": [1.0, float(q % 2)] for q in range(40)}


def bench_of(run: Run, answer: Any = GOOD, name: str = "mine:train") -> tuple[Bench, list[Any]]:
    asked: list[Any] = []

    def train(folders: list[Path], seed: int) -> Rewards:
        asked.append((folders, seed))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return Bench(run, train, name), asked


OPTION = Option(Arm("op-short", 2.0, 1.0), 3000.0, 1)


def test_a_training_is_kept_and_never_repeated(run: Run) -> None:
    bench, asked = bench_of(run)
    made = bench.train(OPTION)
    (((cell,), seed),) = asked
    assert seed == 1
    assert open_run(cell).recipe.K == 2
    assert made.tokens == open_run(cell).info["cut"]["continuation_tokens"] <= 3000
    assert made.pass_at_1 == pytest.approx(0.75)
    again = Bench(open_run(run.folder), bench.trainer, "mine:train")
    kept = again.train(OPTION)
    assert len(asked) == 1
    assert (kept.arm, kept.tokens, kept.pass_at_1) == (made.arm, made.tokens, made.pass_at_1)
    assert [t.arm for t in kept_trainings(run, trainer="mine:train").values()] == [OPTION.arm]
    assert not kept_trainings(run, trainer="another:one")
    first = again.options([OPTION.arm])[0]
    again.train(first)
    assert first not in again.options([OPTION.arm])


def test_data_that_are_paid_for_are_trained_on_and_counted(run: Run, tmp_path: Path) -> None:
    first = pilots.write_pilot(tmp_path / "D_BC", pilots.A, tasks=26, seed=9).folder
    bench, asked = bench_of(run)
    alone = bench.train(OPTION)
    found = plan(run.folder, budget=1e5, already=[run.folder, first], bench=bench, effort=Effort(2))
    paid = sum(teacher_tokens(first))
    assert [folders[1:] for folders, _ in asked[1:]] == [[first.resolve()]]
    assert [t["sunk_tokens"] for t in found.trainings] == [0, paid]
    assert found.pilot["beside_tokens"] == paid
    assert not found.pilot["charged"]
    assert plan_file(found, run.folder).beside == (str(first.resolve()),)
    again = plan(run.folder, budget=1e5)
    assert again.pilot["beside_tokens"] == paid, (
        "the final student is trained as those were that were measured"
    )
    assert "name their run in `plan --already`" in "".join(sentences(again))
    assert "1 of the trainings had 0 of such tokens instead" in "".join(sentences(found))
    with pytest.raises(InputError, match=f"made on {paid:,} teacher tokens of other runs too, as D_BC: name"):
        plan(run.folder, budget=1e5, bench=bench, effort=Effort(4))
    assert len(asked) == 2, "refused before a training"
    same = replace(bench, beside=(first,)).train(OPTION)
    assert (alone.sunk_tokens, same.sunk_tokens, len(asked)) == (0, paid, 3)
    shutil.copytree(first, tmp_path / "moved")
    replace(bench, beside=(tmp_path / "moved",)).train(OPTION)
    assert len(asked) == 3, "a copy is the same data"
    told, other = open_run(first), create_run(tmp_path / "other", run.recipe, open_run(first).info)
    turns = [turn | {"text": "left"} for turn in told.read("turns").to_pylist()]
    other.commit({"episodes": told.read("episodes").to_pylist(), "turns": turns})
    assert sum(teacher_tokens(other.folder)) == paid
    replace(bench, beside=(other.folder,)).train(OPTION)
    assert len(asked) == 4, "as many tokens are not the same data"
    lucky = replace(bench, beside=(first,), name="lucky", trainer=lambda *_: GOOD | {"task-025": [1.0]})
    with pytest.raises(DataError, match="1 tasks that the student was trained on"):
        lucky.train(OPTION)
    for both in ((first, other.folder), (other.folder, first)):
        replace(bench, beside=both).train(OPTION)
    assert len(asked) == 5, "the order in which runs are named makes no other data"


def test_failed_calls_that_were_billed_are_part_of_what_a_pilot_cost(tmp_path: Path) -> None:
    """A cut is charged with them too: its training is one of this pilot."""

    async def billed(ask: Ask) -> Answer:
        if ask.seed % 9 == 0:
            raise CallFailed("cut off", billed="yes", usage=Usage(output=7, counter="toy"))
        return await expert(ask)

    whole: dict[str, Any] = {"pilot": True, "demo_tasks": 6, "handback": (0,), "replicates": 1}
    pilot = run_of(tmp_path / "pilot", preset("op-short", K="inf", T_max=12), teacher=billed, **whole)
    C_i, in_turns = account_of(pilot)["C_i"], account_of(pilot)["tables"]["in_turns"]
    assert C_i > in_turns, "the test needs failures"
    assert sum(teacher_tokens(pilot.folder)) == read_pilot(pilot.folder).tokens == C_i
    made = bench_of(pilot)[0].train(Option(Arm("pilot", INF, 0.5, "all"), float(C_i), 0))
    assert made.tokens == C_i
    assert [training.tokens for training in kept_trainings(pilot).values()] == [C_i]


def test_a_damaged_ledger_is_one_line(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("pure-bc", T_max=12), tasks="60")
    file = run.folder / "ledger.sqlite"
    whole, told = file.read_bytes(), list[str]()
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[: 4096 * page] + b"\xff" * 4096 + whole[4096 * (page + 1) :])
        try:
            teacher_tokens(run.folder)
        except RunError as error:
            told.append(str(error))
    assert any("the ledger cannot be read" in line for line in told)


def test_pass_at_1_is_success_and_not_the_mean_reward(run: Run) -> None:
    """As `evaluate` and `compare` have it: rewards below the threshold are failures."""
    partly = {f"new-{q}": [0.9, 1.0, 0.4, 0.0] for q in range(10)}
    made = bench_of(run, partly)[0].train(OPTION)
    kept = kept_trainings(run, trainer="mine:train")
    assert made.pass_at_1 == 0.25
    assert [training.pass_at_1 for training in kept.values()] == [0.25]


def test_a_plan_without_a_trainer_reads_what_was_kept_and_the_pilot_as_before(run: Run) -> None:
    guess, before = plan(run.folder, budget=1e5), read_pilot(run.folder)
    bench_of(run)[0].train(OPTION)
    bench_of(run, name="another:one")[0].train(replace(OPTION, seed=3))
    assert facts_of(read_pilot(run.folder)) == facts_of(before)
    said: list[str] = []
    found = plan(run.folder, budget=1e5, progress=said.append)
    assert said == [f"small trainings kept in {run.folder}: 2 used (another:one, mine:train)"]
    assert len(found.trainings) == 2
    assert (found.calibrated, guess.calibrated) == (True, False)
    assert found.to_dict()["pilot"] == guess.to_dict()["pilot"]
    said.clear()
    own = plan(run.folder, budget=1e5, bench=bench_of(run)[0], effort=Effort(0), progress=said.append)
    assert said == [
        f"small trainings kept in {run.folder}: 1 used (mine:train), 1 of another trainer not used "
        f"(another:one)"
    ]
    assert len(own.trainings) == 1


def damaged(run: Run, **changes: Any) -> Run:
    """The run with a kept training that says something else, or has other attempts."""
    bench_of(run)[0].train(OPTION)
    (row,) = run.read("trainings").to_pylist()
    attempts = run.read("evaluations").to_pylist()
    shutil.rmtree(run.folder / "parts" / "000001")
    if "data" in changes:
        row["data"] = changes["data"]
    elif told := changes.get("told"):
        row["data"] = json.dumps(json.loads(row["data"]) | told)
    attempts = [attempt | changes.get("attempt", {}) for attempt in attempts][: changes.get("attempts")]
    for _ in range(changes.get("times", 1)):
        run.commit({"trainings": [row], "evaluations": attempts})
    return run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": ""}, "data of the training .* cannot be read"),
        ({"data": '{"arm": '}, "cannot be read"),
        ({"data": "[1]"}, "expected a JSON object"),
        ({"data": "{}"}, "has arm=None"),
        ({"data": "[" * 100_000}, "nested too deep"),
        ({"told": {"arm": "op-short"}}, "has arm='op-short'"),
        ({"told": {"arm": {"recipe": "op-short"}}}, "has r_tokens=None"),
        ({"told": {"arm": Arm("op-short", 2.0, 1.0).to_dict() | {"K": "x"}}}, "K='x'"),
        ({"told": {"arm": Arm("op-short", 2.0, 1.0).to_dict() | {"recipe": "leap"}}}, "arm 'leap'"),
        ({"told": {"demo_tokens": float("nan")}}, "has demo_tokens=nan"),
        ({"told": {"continuation_tokens": "many"}}, "has continuation_tokens='many'"),
        ({"told": {"continuation_tokens": 0, "demo_tokens": 0}}, "0 teacher tokens"),
        ({"told": {"continuation_tokens": 1e9}}, "of another pilot"),
        ({"told": {"pilot": {"student": "gpt"}}}, "of another pilot"),
        ({"times": 2}, "there twice"),
        ({"attempts": 0}, "rewards of 0 tasks"),
        ({"attempts": 2}, "rewards of 1 tasks"),
        ({"attempt": {"task_id": "task-001"}}, "1 tasks that the student was trained on"),
    ],
)
def test_a_damaged_or_foreign_kept_training_is_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    damaged(run, **changes)
    assert main(["plan", str(run.folder), "--budget", "1e5"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.search(message, said)
    assert str(run.folder) in said, "it says where"


def test_a_plan_trains_as_often_as_it_may_and_reads_what_was_kept(run: Run) -> None:
    bench, asked = bench_of(run)
    said: list[str] = []
    found = plan(run.folder, budget=1e5, bench=bench, effort=Effort(3), progress=said.append)
    assert len(asked) == len(found.trainings) == sum(": pass@1" in line for line in said) == 3
    assert said[0].startswith("training 1 of at most 3 begins: ")
    assert said[1].startswith("training 1 of at most 3: ")
    assert found.calibrated
    again = plan(run.folder, budget=2e5, bench=bench, effort=Effort(3))
    assert len(asked) == 3, "another budget uses the same trainings"
    made, kept = ({(t["name"], t["seed"]) for t in one.trainings} for one in (found, again))
    assert made == kept


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "rewards of 0 tasks"),
        ({"new-1": [1.0]}, "rewards of 1 tasks"),
        ({"new-1": [], "new-2": [1.0]}, "expected a list of rewards"),
        ({"new-1": [1.5], "new-2": [1.0]}, "reward 1.5 for task 'new-1'"),
        ({"new-1": [float("nan")], "new-2": [1.0]}, "reward nan"),
        ({"new-1": ["won"], "new-2": [1.0]}, "reward 'won'"),
        ({"new-1": None, "new-2": [1.0]}, "returned None for task"),
        ({"task-001": [1.0], "new-2": [1.0]}, "1 tasks that the student was trained on"),
        (None, "returned a NoneType"),
        ("/nowhere", "no run folder"),
    ],
)
def test_what_is_no_evidence_is_refused_and_nothing_trained_is_lost(
    run: Run, answer: Any, message: str
) -> None:
    good, _ = bench_of(run)
    good.train(replace(OPTION, seed=0))
    bad, _ = bench_of(run, answer)
    with pytest.raises(DataError, match=message):
        bad.train(OPTION)
    assert len(kept_trainings(run)) == 1


@pytest.mark.parametrize("error", [ValueError("out of\nmemory"), SystemExit(3)])
def test_a_trainer_that_raises_is_one_line(run: Run, error: BaseException) -> None:
    bench, _ = bench_of(run, error)
    with pytest.raises(RunError, match=rf"mine:train on op-short K=2 r=1 .* raised {type(error).__name__}"):
        bench.train(OPTION)


def test_evaluation_folders_are_read_and_none_serves_twice(run: Run, tmp_path: Path) -> None:
    rows = [
        {
            "training_id": "x",
            "task_id": f"new-{q}",
            "cluster_id": f"new-{q}",
            "attempt": 0,
            "score": 1.0,
            "status": s,
        }
        for q, s in enumerate(["finished", "finished", "environment_error"])
    ]
    info = {"environment": "toy 1"}
    create_run(tmp_path / "evaluation", Recipe("evaluation"), info).commit({"evaluations": rows})
    bench, _ = bench_of(run, tmp_path / "evaluation")
    assert sum(bench.train(OPTION).attempts) == 2, "an attempt that ended in an error is no data"
    with pytest.raises(DataError, match="for an earlier training too"):
        bench.train(replace(OPTION, seed=2))
    create_run(tmp_path / "other", Recipe("evaluation"), {"environment": "x"}).commit({"evaluations": rows})
    with pytest.raises(DataError, match="evaluate there"):
        bench_of(run, tmp_path / "other")[0].train(replace(OPTION, seed=2))
    with pytest.raises(DataError, match="the pilot itself"):
        bench_of(run, run.folder)[0].train(replace(OPTION, seed=3))
    create_run(tmp_path / "empty", Recipe("evaluation"), info)
    with pytest.raises(DataError, match="holds no evaluation"):
        bench_of(run, tmp_path / "empty")[0].train(replace(OPTION, seed=3))


def test_the_command_finds_a_trainer_in_the_working_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = "{f'new-{q}': [float(q % 3 == 0)] for q in range(30)}"
    text = f"def train(folders, seed):\n    print('epoch 1')\n    return {answer}\n"
    (tmp_path / "own_trainer.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    given = ["plan", str(run.folder), "--budget", "1e5", "--trainer", "own_trainer:train", "--trainings", "2"]
    assert main([*given, "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["trainings"]) == 2
    assert "training 2 of at most 2" in err
    assert err.count("epoch 1") == 2, "what a trainer prints is no part of the JSON"
    assert main([*given[:-3], "own_trainer:nothing"]) == 2
    with pytest.raises(InputError, match="expected package"):
        named_trainer("own_trainer")


def test_efforts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="--trainings -1"):
        Effort(-1)
    with pytest.raises(InputError, match="--gpu-minutes 0"):
        Effort(1, 0.0)


def test_cuts_too_small_for_an_episode_are_not_trained_on(run: Run) -> None:
    bench, _ = bench_of(run)
    assert bench.is_empty(replace(OPTION, budget=5.0))
    assert not any(map(bench.is_empty, bench.options([Arm("oec")]))), "each seed draws other switch times"
    assert not bench.is_empty(OPTION)
    assert not bench.is_empty(Option(Arm("pilot", INF, 0.5), 1.0, 0))


@pytest.mark.parametrize("r", [0.25, 0.5, 0.75])
def test_the_largest_mixed_cut_uses_up_one_of_its_parts(run: Run, r: float) -> None:
    bench, _ = bench_of(run)
    demos, continued, both = (
        bench.most(arm) for arm in (Arm("pure-bc", r=0.0), OPTION.arm, replace(OPTION.arm, r=r))
    )
    assert max((1 - r) * both / demos, r * both / continued) == pytest.approx(1)


def test_several_trainings_are_distinct_and_made_at_the_same_time(run: Run) -> None:
    barrier = Barrier(4, timeout=HANG_S)

    def train(folders: list[Path], seed: int) -> Rewards:
        barrier.wait()
        return GOOD

    bench = Bench(run, train, "mine:train")
    made = trained(bench, Effort(8, at_once=4))
    assert len({(t.arm.form, t.tokens, t.seed) for t in made}) == 8
    assert {t.arm.form for t in made[: len(FIRST)]} == {arm.form for arm in FIRST}
    again = Bench(open_run(run.folder), train, "mine:train")
    assert len(trained(again, Effort(8, at_once=4))) == 8, "nothing is trained twice"


def test_where_one_of_several_trainings_fails_the_others_are_kept(run: Run) -> None:
    def train(folders: list[Path], seed: int) -> Rewards:
        if "traces" not in open_run(folders[0]).info["cut"]:
            return GOOD
        raise ValueError("out of memory")

    bench = Bench(run, train, "mine:train")
    with pytest.raises(RunError, match="out of memory"):
        trained(bench, Effort(3, at_once=3))
    assert len(kept_trainings(run)) == 2


def trained(bench: Bench, effort: Effort) -> list[Training]:
    pilot = read_pilot(bench.run.folder)
    arms = arms_of(pilot.recipe.T_max)
    quiet = lambda line: None  # noqa: E731
    return train_more([], bench, effort, facts=facts_of(pilot), arms=arms, tokens=9000.0, progress=quiet)
