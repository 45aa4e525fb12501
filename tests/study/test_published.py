"""The published study is a study: its registration holds, and its verdict is made again from its files."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from analysis.curves.arms import Arm
from analysis.demo import MEASURED, PILOT
from analysis.study.config import read_study
from analysis.study.registration import check_registration
from analysis.study.verdict import write_verdict
from occupancy.runs import open_run

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "studies" / "alfworld"
HOTPOTQA = PUBLISHED.with_name("hotpotqa")
STRONGER = PUBLISHED.with_name("alfworld_stronger")


def unpacked(place: Path, folder: Path) -> Path:
    with tarfile.open(place / "study.tar.xz") as held:
        held.extractall(folder, filter="data")
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(PUBLISHED, tmp_path_factory.mktemp("published"))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (PUBLISHED, "registered 2026-11-28T21:33:34+00:00, every hash holds: op-short K=2 r=1"),
        (STRONGER, "registered 2026-11-29T15:25:56+00:00, every hash holds: op-critical r=1"),
    ],
)
def test_the_registration_holds_and_the_verdict_is_made_again(
    place: Path, expected: str, tmp_path: Path
) -> None:
    study = unpacked(place, tmp_path)
    config = read_study(study / "study.toml")
    for name in ("registration.json", "registration.json.sha256"):
        assert (study / name).read_bytes() == (place / name).read_bytes()
    assert check_registration(study, config).startswith(expected)
    (study / "verdict.md").unlink()
    write_verdict(study, config)
    assert (study / "verdict.md").read_text("utf-8") == (place / "verdict.md").read_text("utf-8")


@pytest.mark.parametrize("place", [PUBLISHED, STRONGER])
def test_the_table_has_what_the_verdict_says(place: Path) -> None:
    attempts = pd.read_parquet(place / "evaluations.parquet")
    told = json.loads((place / "verdict.json").read_text("utf-8"))
    for arm in told["arms"]:
        kept = ("recipe", "budget")
        own = attempts[(attempts[[*kept]] == [arm[name] for name in kept]).all(axis=1)]
        own = own[(own["K"] == str(arm["K"])) & (own["r"] == arm["r_tokens"])]
        assert own["student"].nunique() == arm["seeds"]
        assert (own["score"] >= 1).mean() == pytest.approx(arm["pass_at_1"])
    assert attempts["student"].nunique() == told["cells"]["evaluated"] + 2, "pi_1 and the pilot's student too"


@pytest.mark.parametrize("place", [PUBLISHED, HOTPOTQA, STRONGER])
def test_croissant_describes_the_files_that_are_there(place: Path) -> None:
    made = json.loads((place / "croissant.json").read_text("utf-8"))
    for file in made["distribution"]:
        held = (place / file["contentUrl"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(held).hexdigest()
        assert len(held) < 5_000_000
    columns = {field["name"] for field in made["recordSet"][0]["field"]}
    assert columns == set(pd.read_parquet(PUBLISHED / "evaluations.parquet").columns)
    assert made["rai:dataLimitations"]


@pytest.mark.parametrize("table", ["episodes", "turns", "proposals", "traces", "trainings", "evaluations"])
def test_the_demo_shows_the_study_s_pilot(study: Path, table: str) -> None:
    """But for where the study's folder was, and for the size of D_BC, which its trainings did not keep."""
    shown, recorded = (repr(open_run(run).read(table).to_pylist()) for run in (PILOT, study / "pilot"))
    shown = re.sub(r'"sunk_tokens": \d+, ', "", shown)
    assert shown == recorded.replace("/tmp/study-alfworld/", "")


def test_the_demo_shows_what_was_measured() -> None:
    measured = json.loads(MEASURED.read_text("utf-8"))
    told = json.loads((PUBLISHED / "verdict.json").read_text("utf-8"))
    for name in ("primary", "ranking", "coverage", "references", "registered"):
        assert measured[name] == told[name]
    assert sum(file.stat().st_size for file in PILOT.rglob("*") if file.is_file()) < 1_000_000


@pytest.mark.parametrize(
    ("place", "verdict", "evaluated"),
    [(HOTPOTQA, "verdict.json", 53), (HOTPOTQA, "verdict_60.json", 60)],
)
def test_a_verdict_without_its_attempts_is_on_what_was_registered(
    place: Path, verdict: str, evaluated: int
) -> None:
    registered = (place / "registration.json").read_bytes()
    hashed = (place / "registration.json.sha256").read_text("utf-8").split()[0]
    assert hashed == hashlib.sha256(registered).hexdigest()
    told, written = json.loads((place / verdict).read_text("utf-8")), json.loads(registered)
    assert (told["registered"], told["cells"]["evaluated"]) == (written["date"], evaluated)
    cells = [(Arm.from_dict(cell), cell["budget"], cell["pass_at_1"]) for cell in written["cells"]]
    for arm in told["arms"]:
        assert (Arm.from_dict(arm), arm["budget"], arm["predicted"]["pass_at_1"]) in cells


def test_what_was_published_without_texts_holds_together() -> None:
    told = json.loads((HOTPOTQA / "verdict.json").read_text("utf-8"))
    registered = (HOTPOTQA / "registration.json").read_bytes()
    cells = {cell["name"]: cell for cell in json.loads(registered)["cells"]}
    attempts = pd.read_parquet(HOTPOTQA / "evaluations.parquet")
    assert set(attempts["student"]) - {"pi_1", "pilot"} <= set(cells)
    for arm in told["arms"]:
        own = attempts[(attempts["recipe"] == arm["recipe"]) & (attempts["budget"] == arm["budget"])]
        own = own[(own["K"] == str(arm["K"])) & (own["r"] == arm["r_tokens"])]
        assert (own["score"] >= 1).mean() == pytest.approx(arm["pass_at_1"])
