"""A recipe that no run could follow is refused in words, whatever it was written in."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from agentloop.commands.arguments import read_recipe
from occupancy.record.errors import InputError, RecipeError
from occupancy.record.recipe import Recipe, SwitchLaw, hash_of, preset
from occupancy.runs import create_run, open_run
from sft.settings import preset as settings_preset

SETTINGS = settings_preset("hotpotqa")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("T_max", "abc", "T_max='abc'"),
        ("T_max", 0, "T_max=0"),
        ("success_at", "abc", "success_at='abc'"),
        ("switch", 3, "switch=3"),
        ("name", "", "name=''"),
        ("name", 3, "name=3"),
        ("teacher", "", "teacher=''"),
    ],
)
def test_a_preset_names_the_field_that_is_wrong(field: str, value: Any, told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        preset("op-short", **{field: value})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("switch = 3", "switch=3"),
        ("[switch]\nlw = 'start'", "unknown field 'lw'"),
        ("[switch]\nlaw = 'fixed'\nnu = ['a']", "expected a list of probabilities"),
        ("[switch]\nlaw = 'fixed'\nnu = 3", "expected a list of probabilities"),
        ("K = [2]", r"K=\[2\]"),
        ("success_at = 'x'", "success_at='x'"),
        ("a = ", "the recipe cannot be read"),
    ],
)
def test_a_recipe_file_names_the_field_that_is_wrong(text: str, told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        Recipe.from_toml(text)


def test_changes_of_a_recipe_file_are_checked_like_those_of_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("K = 2\nT_max = 9\n", "utf-8")
    assert read_recipe(str(file), {"switch": "start"}, T_max=50) == Recipe(
        K=2, T_max=9, switch=SwitchLaw("start")
    )
    with pytest.raises(RecipeError, match="unknown recipe field 'foo'"):
        read_recipe(str(file), {"foo": 3}, T_max=50)


def test_a_label_can_be_changed() -> None:
    assert preset("op-short", name="mine").hash == preset("op-short").hash


def accepted(record: Any, field: str, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        with suppress(InputError):
            yield replace(record, **{field: value})


@pytest.mark.parametrize("record", [preset("op-short"), SETTINGS], ids=["recipe", "settings"])
def test_equal_records_have_one_hash_however_their_numbers_are_written(record: Any) -> None:
    for field in fields(record):
        made = list(accepted(record, field.name, (0, 0.0, False, 1, 1.0, True, 8, 8.0)))
        for one, other in combinations(made, 2):
            assert (one == other) == (one.hash == other.hash), (field.name, one, other)


def test_a_run_whose_recipe_was_hashed_as_it_was_spelled_is_still_read(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", preset("op-success"), {"kind": "collect"})
    file, info = run.folder / "recipe.toml", run.folder / "run.json"
    spelled = file.read_text("utf-8").replace("success_at = 1.0", "success_at = 1")
    file.write_text(spelled, "utf-8")
    told = json.loads(info.read_text("utf-8"))
    told["recipe_hash"] = hash_of(tomllib.loads(spelled))
    assert told["recipe_hash"] != run.recipe.hash
    info.write_text(json.dumps(told), "utf-8")
    opened = open_run(run.folder)
    assert opened.recipe == run.recipe
    assert opened.info["recipe_hash"] == run.recipe.hash
