import re
from pathlib import Path

import pytest

from simulate import FAMILIES, Recovery

PAGE = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_pages_code_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/worlds.md", "exec"), {})
    assert capsys.readouterr().err == ""


def test_the_page_names_every_family_and_the_knobs_that_it_measures():
    assert all(f"| {name} |" in PAGE for name in FAMILIES)
    table = PAGE.split("## Knobs")[1].split("## ")[0]
    named = re.findall(r"^\| (\w+) \| [^|]*\| [^|]*\| [+-]", table, flags=re.MULTILINE)
    assert set(named) <= set(Recovery.__dataclass_fields__)
    assert len(named) >= 15


def test_figures_of_the_page_exist():
    for name in re.findall(r"\]\((figures/[^)]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / name).is_file(), name
