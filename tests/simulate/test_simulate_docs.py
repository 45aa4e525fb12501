import re
from pathlib import Path

import pytest

from simulate import FAMILIES, Recovery

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "worlds.md").read_text("utf-8")
MEASURED = (ROOT / "benchmarks" / "worlds.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_pages_code_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/worlds.md", "exec"), {})
    assert capsys.readouterr().err == ""


def test_the_pages_name_every_family_and_the_knobs_that_are_measured():
    assert all(f"| {name} |" in PAGE for name in FAMILIES)
    table = MEASURED.split("## Knobs")[1].split("## ")[0]
    named = re.findall(r"^\| (\w+) \| [^|]*\| [^|]*\| [+-]", table, flags=re.MULTILINE)
    assert set(named) <= set(Recovery.__dataclass_fields__)
    assert len(named) >= 15
