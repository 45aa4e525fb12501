"""Task specs, and games rebuilt from both kinds of folder."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.environments.alfworld.games import Catalogue
from agentloop.environments.alfworld.sources import Downloaded, Packed, Record, find_source
from agentloop.environments.task_specs import Slice, parse_spec
from occupancy.record.errors import DataError, InputError

KIND = "pick_and_place_simple"


class Shelf:
    """A source of 30 games without text."""

    def splits(self) -> list[str]:
        return ["train", "valid_seen"]

    def index(self, split: str) -> dict[str, str]:
        return {f"{split}/task/trial_{i:02}": KIND for i in range(30)}

    def read(self, split: str, ids: Collection[str]) -> Iterator[Record]:
        return iter(())

    def logic(self, record: Record) -> tuple[str, str]:
        return "", ""


@pytest.fixture
def shelf() -> Catalogue:
    return Catalogue(Shelf(), grammar="2.1.1")


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("valid_seen", Slice("valid_seen")),
        ("train:60", Slice("train", 0, 60)),
        ("train:60-120", Slice("train", 60, 120)),
    ],
)
def test_specs_are_read(spec: str, part: Slice) -> None:
    assert parse_spec(spec, splits=["train", "valid_seen"]) == part


@pytest.mark.parametrize(
    "spec", ["", "train:", "train:x", "train:-3", "train:1-2-3", "a b", "train:5-", f"train:{'9' * 5000}"]
)
def test_a_spec_that_is_none_is_refused_with_the_forms(spec: str) -> None:
    with pytest.raises(InputError, match=r"expected a split"):
        parse_spec(spec, splits=["train", "valid_seen"])


@pytest.mark.parametrize("spec", ["train:0", "train:9-9", "train:9-3"])
def test_an_empty_spec_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match="at least one"):
        parse_spec(spec, splits=["train", "valid_seen"])


def test_more_tasks_than_there_are_is_an_error_with_both_numbers(shelf: Catalogue) -> None:
    with pytest.raises(InputError, match=r"up to task 31: train has 30"):
        shelf.tasks("train:31")


def test_an_unknown_split_is_refused_with_the_known_ones(shelf: Catalogue) -> None:
    with pytest.raises(InputError, match=r"'test:3'.*train, valid_seen"):
        shelf.tasks("test:3")


@given(seed=st.integers(0, 99), a=st.integers(1, 15), b=st.integers(1, 15))
def test_a_draw_is_without_replacement_and_its_slices_are_disjoint(seed: int, a: int, b: int) -> None:
    shelf = Catalogue(Shelf(), grammar="2.1.1")
    whole = shelf.tasks(f"train:{a + b}", seed=seed)
    assert len({task.task_id for task in whole}) == a + b
    assert [*shelf.tasks(f"train:{a}", seed=seed), *shelf.tasks(f"train:{a}-{a + b}", seed=seed)] == whole


def test_another_seed_draws_other_games(shelf: Catalogue) -> None:
    assert shelf.tasks("train:10", seed=0) != shelf.tasks("train:10", seed=1)


def test_a_task_is_its_game(shelf: Catalogue) -> None:
    (task, *_) = shelf.tasks("valid_seen")
    assert task.task_id == task.cluster_id == "valid_seen/task/trial_00"
    assert (task.split, task.kind) == ("valid_seen", KIND)


def test_a_file_names_tasks_and_every_mistake_in_it_is_told(shelf: Catalogue, tmp_path: Path) -> None:
    file = tmp_path / "ids"
    file.write_text("train/task/trial_03\n\n valid_seen/task/trial_01 \n")
    assert [t.task_id for t in shelf.tasks(f"@{file}")] == ["train/task/trial_03", "valid_seen/task/trial_01"]
    for text, told in [("", "is empty"), ("a\na\n", "more than once"), ("train/no/such\n", "is no game")]:
        file.write_text(text)
        with pytest.raises(InputError, match=told):
            shelf.tasks(f"@{file}")
    with pytest.raises(InputError, match="cannot be read"):
        shelf.tasks(f"@{tmp_path / 'missing'}")


def test_a_game_that_vanished_is_an_error(shelf: Catalogue) -> None:
    with pytest.raises(DataError, match="not there now"):
        shelf.game("train/task/trial_00")


@pytest.mark.parametrize("setting", [None, "", "."])
def test_missing_data_says_how_to_get_them(
    setting: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEWSTEPS_DATA", raising=False)
    if setting is not None:
        monkeypatch.setenv("FEWSTEPS_DATA", setting)
    with pytest.raises(InputError, match=r"FEWSTEPS_DATA.*alfworld-download"):
        find_source()


def test_packed_splits_are_the_official_ones(data_dir: Path) -> None:
    source = Packed(data_dir / "alfworld")
    assert source.splits() == ["train", "train_300", "train_all", "valid_seen", "valid_unseen"]
    assert [len(source.index(s)) for s in ("train_300", "valid_seen", "valid_unseen")] == [300, 140, 134]


def test_a_cut_file_is_named(data_dir: Path, tmp_path: Path) -> None:
    whole = (data_dir / "alfworld" / "valid_seen.jsonl.xz").read_bytes()
    (tmp_path / "valid_seen.jsonl.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"valid_seen.*not a whole xz file"):
        Packed(tmp_path).index("valid_seen")


@pytest.fixture(scope="module")
def original(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first game of the original download, unpacked as `alfworld-download` does."""
    folder = tmp_path_factory.mktemp("data")
    with tarfile.open(data_dir / "alfworld" / "json_2.1.1-574games.tar.xz", "r|xz") as tar:
        found = set()
        for member in tar:
            if member.isfile():
                tar.extract(member, folder / "json_2.1.1", filter="data")
                found.add(Path(member.name).name)
            if found == {"game.tw-pddl", "traj_data.json"}:
                break
    return folder


@pytest.mark.parametrize("grammar", ["2.1.1", "2.1.2"])
@pytest.mark.alfworld
def test_both_folders_give_the_same_game(data_dir: Path, original: Path, grammar: str) -> None:
    downloaded = Catalogue(Downloaded(original / "json_2.1.1"), grammar=grammar)
    (task,) = [t for split in Downloaded(original / "json_2.1.1").splits() for t in downloaded.tasks(split)]
    rebuilt = Catalogue(Packed(data_dir / "alfworld"), grammar=grammar).game(task.task_id)
    assert downloaded.game(task.task_id) == rebuilt
    if grammar == "2.1.1":
        raw = json.loads(
            (original / "json_2.1.1" / task.task_id / "game.tw-pddl").read_text(encoding="utf-8")
        )
        assert (rebuilt.domain, rebuilt.grammar) == (raw["pddl_domain"], raw["grammar"])
        assert rebuilt.problem == raw["pddl_problem"]


def test_a_newer_download_does_not_pass_for_2_1_1(original: Path, tmp_path: Path) -> None:
    (file,) = original.glob("json_2.1.1/*/*/*/game.tw-pddl")
    folder = tmp_path / file.parent.relative_to(original)
    folder.mkdir(parents=True)
    newer = file.read_text(encoding="utf-8").replace("put {o} in/on {r}", "move {o} to {r}")
    (folder / "game.tw-pddl").write_text(newer, encoding="utf-8")
    (folder / "traj_data.json").write_bytes((file.parent / "traj_data.json").read_bytes())
    source = Downloaded(tmp_path / "json_2.1.1")
    (split,) = source.splits()
    catalogue = Catalogue(source, grammar="2.1.1")
    (task,) = catalogue.tasks(split)
    with pytest.raises(DataError, match=r"ask for grammar 2\.1\.2"):
        catalogue.game(task.task_id)
    assert Catalogue(source, grammar="2.1.2").game(task.task_id).params


@pytest.mark.parametrize(
    ("game", "told"),
    [("{", "cannot be read"), ("[" * 100_000, "nested too deep"), ("[]", "is none"), ("{}", "is none")],
)
def test_a_damaged_game_is_one_line(tmp_path: Path, game: str, told: str) -> None:
    folder = tmp_path / "train" / f"{KIND}-Mug-None-Desk-1" / "a"
    folder.mkdir(parents=True)
    (folder / "traj_data.json").write_text("{}")
    catalogue = Catalogue(Downloaded(tmp_path), grammar="2.1.1")
    (folder / "game.tw-pddl").write_text('{"solvable": true}')
    (task,) = catalogue.tasks("train")
    (folder / "game.tw-pddl").write_text(game)
    with pytest.raises(DataError, match=f"a game of train.*{told}"):
        catalogue.game(task.task_id)
    if told != "is none" or game == "[]":
        with pytest.raises(DataError, match=f"a game of train.*{told}"):
            Catalogue(Downloaded(tmp_path), grammar="2.1.1").tasks("train")


def test_unsolvable_games_are_left_out(tmp_path: Path) -> None:
    for trial, flag in [("a", {"solvable": True}), ("b", {"solvable": False}), ("c", {})]:
        folder = tmp_path / "train" / f"{KIND}-Mug-None-Desk-1" / trial
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps({"pddl_problem": "", **flag}))
    assert list(Downloaded(tmp_path).index("train")) == [f"train/{KIND}-Mug-None-Desk-1/a"]
