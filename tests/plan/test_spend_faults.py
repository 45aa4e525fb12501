"""What is damaged, lost or of another purchase in a folder of `spend`: one line, and nothing is bought."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import killed_spend
import pytest
from test_spend import Market, shop
from test_spend import rounds_of as trained_rounds

from agentloop.run.plan_file import read_plan
from analysis.cli import main
from analysis.curves.arms import arms_of
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.trainer import Effort
from analysis.spend.buyer import ProductBuyer
from analysis.spend.rounds import Rounds, spend
from occupancy.record.errors import DataError, RunError
from occupancy.record.recipe import preset
from occupancy.runs import Run, create_run, only_writer, open_run


def rounds_of(recorded: Run, folder: Path, market: Market) -> Rounds:
    return trained_rounds(recorded, folder, market, effort=Effort(0))


class Closing(Market):
    """Its trainer fails on the final student, so that everything before has been done."""

    def train(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
        if len(folders) > 1:
            raise ValueError("closed")
        return super().train(folders, seed)


@pytest.fixture(scope="module")
def both() -> Any:
    """Every arm buys demonstrations and continuations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "analysis.spend.rounds.arms_of", lambda T, **more: [a for a in arms_of(T) if a.r == 0.5]
        )
        yield


@pytest.fixture(scope="module")
def bought(recorded: Run, both: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A purchase before its last step."""
    folder = tmp_path_factory.mktemp("bought") / "out"
    with pytest.raises(RunError, match="closed"):
        spend(rounds_of(recorded, folder, Closing()))
    for source in folder.glob("*-source"):
        shutil.rmtree(source)
    return folder


def edited(**changes: Any) -> Callable[[Path], object]:
    """spend.json with other entries; those of steps are named STEP__ENTRY."""

    def damage(folder: Path) -> None:
        state = json.loads((folder / "spend.json").read_text())
        for name, value in changes.items():
            step, _, entry = name.partition("__")
            of = state["steps"][step.replace("_", " ")] if entry else state
            of[entry or name] = value
        (folder / "spend.json").write_text(json.dumps(state))

    return damage


def holds(name: str, text: str | bytes | None) -> Callable[[Path], object]:
    """A file with other bytes; None: it is lost, or a folder of that name."""

    def damage(folder: Path) -> None:
        (file,) = folder.glob(name)
        if text is not None:
            file.write_bytes(text.encode() if isinstance(text, str) else text)
        elif file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()

    return damage


def half(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (file,) = folder.glob(name)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return damage


def without_step(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        state = json.loads((folder / "spend.json").read_text())
        del state["steps"][name]
        (folder / "spend.json").write_text(json.dumps(state))

    return damage


def swapped(one: str, other: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        shutil.rmtree(folder / one)
        shutil.copytree(folder / other, folder / one)

    return damage


ARM = {"recipe": "op-short", "K": 3, "r_tokens": 0.5, "pilot_traces": "success"}
DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (holds("spend.json", None), "and no spend.json: restore it"),
    (holds("spend.json", ""), "spend.json cannot be read"),
    (half("spend.json"), "spend.json cannot be read"),
    (holds("spend.json", b"\xff\xfe"), "spend.json cannot be read"),
    (holds("spend.json", "[" * 100_000), "nested too deep"),
    (holds("spend.json", "[]"), "expected a JSON object"),
    (holds("spend.json", "NaN"), "expected a JSON object"),
    (holds("spend.json", "{}"), "has steps=None"),
    (edited(steps=[]), r"has steps=\[\]"),
    (edited(steps={"final student": {}}), "has the step 'final student', where 'plan' comes"),
    (edited(spent=float("nan")), "has spent=nan"),
    (edited(spent=0.0), "its steps have cost"),
    (edited(budget=1.0), r"of another purchase \(budget=1.0"),
    (edited(pilot="/elsewhere"), r"of another purchase \(pilot='/elsewhere'"),
    (edited(pilot_tokens=7), r"of another purchase \(pilot_tokens=7"),
    (edited(pool=9), r"of another purchase \(pool=9"),
    (edited(seed="0"), r"of another purchase \(seed='0'"),
    (edited(plan__price="free"), "step 'plan' of .* has price='free'"),
    (edited(plan__price=5.0), "step 'plan' of .* has price=5, and nothing in"),
    (edited(plan__clear="no"), "has clear='no'"),
    (edited(decide__pass_at_1=float("nan")), "has pass_at_1=nan"),
    (edited(decide__low=None), "has low=None"),
    (edited(decide__more="all"), "has more='all'"),
    (edited(decide__more=9.0), "has the step 'demonstrations', where 'second purchase' comes"),
    (edited(decide__arm="op-short"), "has arm='op-short'"),
    (edited(decide__arm={}), "has recipe=None"),
    (edited(decide__arm=ARM | {"K": []}), r"K=\[\]"),
    (edited(decide__arm=ARM | {"recipe": "leap"}), "arm 'leap'"),
    (edited(decide__arm=ARM | {"r_tokens": float("inf")}), "has r_tokens=inf"),
    (edited(demonstrations__price=0.0), "has price=0, and demos in .* cost"),
    (edited(first_purchase__said=3), "has said=3"),
    (without_step("decide"), "has the step 'demonstrations', where 'decide' comes"),
    (without_step("plan"), "has the step 'first purchase', where 'plan' comes"),
    (holds("first-contexts", None), "first-demos and first-contexts in .* cost"),
    (holds("demos/run.json", None), "demos in .* cost 0 teacher tokens"),
    (holds("demos/run.json", ""), "demos/run.json cannot be read"),
    (holds("demos/run.json", "[1]"), "expected a JSON object"),
    (half("demos/recipe.toml"), "demos/recipe.toml"),
    (half("contexts/parts/000000/turns.parquet"), "turns.parquet cannot be read"),
    (holds("contexts/parts/000000", None), "contexts in .* cost 0 teacher tokens"),
    (holds("contexts/parts/000000/part.json", "{}"), "part=None: expected a whole number"),
    (swapped("demos", "first-demos"), "demos in .* cost"),
    (holds("contexts/run.json", "NaN"), "expected a JSON object"),
]
"""What is done to a folder, and what the line says."""


def refused(recorded: Run, folder: Path, message: str) -> None:
    """The purchase does not go on: one line, nothing is bought, and the record stays as it is."""
    market, file = Market(), folder / "spend.json"
    before = file.read_bytes() if file.exists() else None
    with pytest.raises(DataError, match=message) as error:
        spend(rounds_of(recorded, folder, market))
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    assert not market.asked
    assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[message for _, message in DAMAGES])
def test_a_damaged_record_or_purchase_is_one_line(
    recorded: Run, bought: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(bought, folder)
    damage(folder)
    refused(recorded, folder, message)


DERIVED: list[tuple[Callable[[Path], object], str]] = [
    (holds("pool/run.json", ""), "run.json cannot be read .* it is made again"),
    (holds("pool/run.json", None), "has no run.json.* it is made again"),
    (holds("pool/parts/000001", None), "pool holds .* teacher tokens, and what it is made of"),
    (swapped("pool", "first-demos"), "pool holds .* teacher tokens, and what it is made of"),
]


@pytest.mark.parametrize(("damage", "message"), DERIVED, ids=[message for _, message in DERIVED])
def test_what_is_made_of_purchases_is_checked_before_it_is_trained_on(
    recorded: Run, bought: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(bought, folder)
    for step in ("decide", "demonstrations", "continuations"):
        without_step(step)(folder)
    state = json.loads((folder / "spend.json").read_text())
    edited(spent=sum(step["price"] for step in state["steps"].values()))(folder)
    damage(folder)
    refused(recorded, folder, message)
    shutil.rmtree(folder / "pool")
    market = Closing()
    with pytest.raises(RunError, match="closed"):
        spend(rounds_of(recorded, folder, market))
    assert not market.asked, "what was bought is not bought again"
    assert list(json.loads((folder / "spend.json").read_text())["steps"])[-1] == "continuations"


def test_one_process_spends_in_a_folder(recorded: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    market = Market()
    with only_writer(tmp_path / "out"), pytest.raises(RunError, match="being written by another process"):
        spend(rounds_of(recorded, tmp_path / "out", market))
    assert not market.asked
    assert market.trained == 0


def test_a_folder_of_something_else_is_not_written_into(recorded: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused(recorded, tmp_path, "holds 'notes.txt' and no spend.json")
    (tmp_path / "spend.json").mkdir()
    with pytest.raises(DataError, match=r"spend\.json cannot be read"):
        spend(rounds_of(recorded, tmp_path, Market()))


def test_a_purchase_of_another_recipe_is_not_taken_for_the_one_asked(recorded: Run, tmp_path: Path) -> None:
    class Wrong(Market):
        def buy(self, recipe: Any, budget: float, seed: int, out: Path, demonstrations: list[Path]) -> None:
            super().buy(replace(recipe, T_max=recipe.T_max - 1), budget, seed, out, demonstrations)

    with pytest.raises(DataError, match="first-demos was bought as pure-bc"):
        spend(rounds_of(recorded, tmp_path / "out", Wrong()))


PLANS: dict[str, tuple[str, str]] = {
    "budget": ("nan", "budget=nan"),
    "axis": ('"training"', "rounds are bought on the inference axis"),
    "pilot": ('"/nowhere"', "no run folder"),
    "pilot_charged": ('"yes"', "pilot_charged='yes'"),
    "pilot_traces": ('"most"', "pilot_traces='most'"),
    "r_tokens": ("7.0", "r_tokens=7.0"),
    "pool": ("0", "pool=0"),
    "T_max": ("5", "has T_max=5, and its pilot"),
    "success_at": ("0.5", "has success_at=0.5, and its pilot"),
    "student": ('"another"', "has student='another', and its pilot"),
    "teacher": ('"another"', "has teacher='another', and its pilot"),
    "beside": ("3", "beside=3"),
    "environment": ('"another"', "has environment='another', and its pilot"),
    "recipe": ('"leap"', "'leap'"),
    "K": ("[]", "K=()"),
}
"""Entry of the plan's file, its value, and what the line says."""


def test_a_damaged_plan_or_one_of_another_pilot_is_one_line(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    market = shop(monkeypatch)
    good, plan, out = tmp_path / "good.toml", tmp_path / "PLAN.toml", tmp_path / "out"
    budget = str(4 * sum(teacher_tokens(recorded.folder)))
    assert main(["plan", str(recorded.folder), "--budget", budget, "--out", str(good)]) == 0
    lines = good.read_text().splitlines()
    texts = {}
    for name, (value, said) in PLANS.items():
        other = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in lines]
        texts[name] = "\n".join(other), said
    texts |= {
        "empty": ("", "no plan of this version"),
        "truncated": (good.read_text()[: len(good.read_text()) // 2], "PLAN.toml"),
        "deep": ("a = " + "[" * 100_000, "nested too deep"),
    }
    seams = ["--buyer", "toy_shop:buy", "--trainer", "toy_shop:train", "--trainings", "1"]
    for name, (text, said) in texts.items():
        plan.write_text(text)
        capsys.readouterr()
        assert main(["spend", str(plan), "--out", str(out), *seams]) == 2, name
        (line,) = capsys.readouterr().err.splitlines()
        assert said.replace("\\", "") in line, name
        assert not out.exists(), name
    assert not market.asked


def test_a_pilot_whose_models_are_behind_servers_can_be_spent_on(
    recorded: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run has a model's name, a plan its address too."""
    names, plan = {"pi_1": "openai:small", "expert": "openai:big"}, tmp_path / "PLAN.toml"
    at = {"made_with": {"student_server": "http://here:1/v1", "teacher_server": "http://there:1/v1"}}
    info = recorded.info | {"student": "openai:small", "teacher": "openai:big"} | at
    run = create_run(tmp_path / "pilot", recorded.recipe, info).folder
    tables = {table: recorded.read(table).to_pylist() for table in ("episodes", "turns", "proposals")}
    columns = ("policy", "prefix_policy", "teacher")
    for row in tables["episodes"]:
        row |= {column: names.get(row[column], row[column]) for column in columns}
    open_run(run).commit(tables)
    budget = str(4 * sum(teacher_tokens(run)))
    assert main(["plan", str(run), "--budget", budget, "--out", str(plan)]) == 0
    assert read_plan(plan).student == "openai:small@http://here:1/v1"
    capsys.readouterr()
    seams = ["--trainer", "pilots:write_pilot", "--out", str(tmp_path / "out")]
    assert main(["spend", str(plan), *seams]) == 2
    assert "--trainer alone" in capsys.readouterr().err, "the plan is one of this pilot"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pilot in streets and its plan."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(killed_spend.__file__).parent)
        killed_spend.prepare(folder)
    return folder


def buyer_of(prepared: Path, folder: Path) -> tuple[ProductBuyer, Path]:
    plan = read_plan(prepared / "PLAN.toml")
    school: Any = killed_spend.School(folder, ends=True)
    (folder / "out").mkdir()
    return ProductBuyer(plan, read_pilot(plan.pilot), school), folder / "out" / "first-demos"


@pytest.mark.parametrize("name", ["pure-bc", "op-short", "op-success"])
def test_a_purchase_has_proposals_for_three_times_its_budget(
    name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(killed_spend.__file__).parent)
    buyer, out = buyer_of(prepared, tmp_path)
    asked: list[Any] = []

    def train(self: Any, folders: list[Path], student: Path, *, seed: int, log: Path) -> str:
        return f"{student.name} of {folders[0].name}, {log.name}"

    monkeypatch.setattr(killed_spend.School, "train", train)

    async def collected(self: ProductBuyer, *given: Any) -> None:
        asked.append(given)

    monkeypatch.setattr(ProductBuyer, "_collect", collected)
    recipe = preset(name, T_max=buyer.pilot.recipe.T_max, **({"K": 1} if name == "op-short" else {}))
    buyer(recipe, 50_000.5, 7, out, [])
    buyer(recipe, 1.0, 7, out, [prepared / "pilot"])
    (folder, settings, limits, student), (_, fewest, _, trained) = asked
    tasks = out.with_suffix(".tasks").read_text().split()
    rows = open_run(buyer.plan.pilot).read("turns").to_pandas().query("author == 'teacher'")
    each = rows[rows["kind"] == ("demo" if name == "pure-bc" else "continuation")]
    if name == "op-short":
        each = each[each["t"] == each.groupby("episode_id")["t"].transform("min")]
    tokens = each["output_tokens"].sum() / each["episode_id"].nunique()
    assert settings.recipe.n == math.ceil(3 * 50_000.5 / (tokens * len(tasks)))
    assert fewest.recipe.n == 1, "at least one"
    assert replace(settings.recipe, n=recipe.n) == recipe
    assert (folder, limits.budget, limits.turn_tokens) == (out, 50_000, buyer.plan.turn_tokens)
    assert (settings.seed, settings.tasks) == (7, f"@{out.with_suffix('.tasks')}")
    assert (student, trained) == ("drunk", "pi_1 of pilot, first-demos.log")
    assert settings.teacher == "killed_spend:slow_expert"


def test_the_tasks_of_a_purchase_are_those_that_were_drawn(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(killed_spend.__file__).parent)
    (buyer, out), plan = buyer_of(prepared, tmp_path), read_plan(prepared / "PLAN.toml")
    file, tasks = out.with_suffix(".tasks"), buyer._tasks(out, 1)
    own = open_run(plan.pilot).read("episodes")["task_id"][0].as_py()
    assert tasks == buyer._tasks(out, 1)
    other = buyer._tasks(out.with_name("other"), 2)
    assert (sorted(other), other != tasks) == (sorted(tasks), True), "a seed draws their order"
    pilot = open_run(plan.pilot)
    earlier = pilot.read("episodes").to_pylist()[0] | {"task_id": tasks[0]}
    create_run(out.with_name("earlier"), pilot.recipe, pilot.info).commit({"episodes": [earlier]})
    assert sorted(buyer._tasks(out.with_name("demos"), 1)) == sorted(tasks[1:]), "none is bought on twice"
    for text in ("", "\n", "\n".join([*tasks, "valid/1"]), own, "[]", "NaN"):
        file.write_text(text)
        with pytest.raises(DataError, match="holds no tasks, or others than first-demos can be bought on"):
            buyer._tasks(out, 1)
    file.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"first-demos\.tasks cannot be read"):
        buyer._tasks(out, 1)
    file.unlink()
    out.mkdir()
    with pytest.raises(DataError, match=r"first-demos\.tasks is missing"):
        buyer._tasks(out, 1)
