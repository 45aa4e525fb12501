"""A recipe that no run could follow is refused in words, whatever it was written in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentloop.commands.arguments import read_recipe
from occupancy.record.errors import RecipeError
from occupancy.record.recipe import Recipe, SwitchLaw, preset


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
