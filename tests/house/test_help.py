"""What the help texts must say."""

from __future__ import annotations

import pytest

from analysis.cli import main
from occupancy.record.recipe import MEANINGS, PRESETS


def test_collect_lists_every_preset_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(MEANINGS) == PRESETS
    with pytest.raises(SystemExit) as done:
        main(["collect", "--help"])
    assert done.value.code == 0
    told = capsys.readouterr().out
    told = " ".join(told.split())
    assert all(f"{name} {meaning}" in told for name, meaning in MEANINGS.items())
