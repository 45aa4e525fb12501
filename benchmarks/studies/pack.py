"""A finished study as a folder to publish: a small archive of its run folders, a table, their description.

    python -m benchmarks studies.pack --source STUDY --out OUT [--without-texts]

OUT/about.toml             what a person says of the data; it has to be there
OUT/study.tar.xz           STUDY without weights and locks; unpacked it is a study again
OUT/evaluations.parquet    a row an attempt: what the student was trained on, the task, the reward
OUT/registration.json      as it was registered, with its hash; verdict.md and verdict.json beside it
OUT/croissant.json         Croissant 1.0 with the responsible-AI fields
OUT/pilot, measured.json   the pilot with its trainings as one part, and what was measured: for `demo`

`--without-texts` leaves out the archive and the pilot, where observations have a licence of their own
(HotpotQA's are Wikipedia's). What is registered by its hash is copied byte for byte. All other runs are
written as one part without compression, since xz finds more in a hundred evaluations of the same games than
each file finds in itself.
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import sqlite3
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.plan.read import teacher_tokens
from analysis.publish.croissant import croissant
from analysis.publish.scan import Scan
from analysis.study.config import read_study
from analysis.study.measured import split_of
from analysis.study.registration import FILE, check_registration
from analysis.study.verdict import write_verdict
from occupancy.record.errors import DataError
from occupancy.record.reading import read_toml
from occupancy.record.tables import SCHEMA_VERSION, TABLES
from occupancy.runs import Run, move_compact, open_run

REGISTERED = ("pilot", "demonstrations/first")
"""Runs whose files have a registered hash."""
CUTS = "pilot/trainings"
"""Made again from the pilot where they are needed: left out."""
WITH_TEXTS = ("demonstrations", "pilot", "collection")
"""Runs whose turns are kept."""
STUDENTS = "work/students/"
"""Where a study keeps checkpoints; its runs name them after the folder that the study had on its machine."""
COLUMNS = {
    "student": "str",
    "recipe": "str",
    "K": "str",
    "r": "float",
    "budget": "int",
    "seed": "int",
    "split": "str",
    "task_id": "str",
    "attempt": "int",
    "score": "float",
    "status": "str",
}


def main(source: Path, out: Path, without_texts: bool = False) -> None:
    """Write the folder."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / source.name
        copy_study(source, study)
        config = read_study(study / "study.toml")
        print(check_registration(study, config))
        print(write_verdict(study, config))
        for name in WITH_TEXTS if without_texts else ():
            shutil.rmtree(study / name)
        refuse_secrets(study)
        for name in (FILE, f"{FILE}.sha256", "verdict.md", "verdict.json"):
            shutil.copyfile(study / name, out / name)
        table = evaluations(study)
        pq.write_table(
            pa.Table.from_pandas(table, preserve_index=False),
            out / "evaluations.parquet",
            compression="zstd",
            compression_level=19,
        )
        if not without_texts:
            (out / "study.tar.xz").write_bytes(archive(study))
            demo(study, out / "pilot")
        described = description(out)
        (out / "croissant.json").write_text(json.dumps(described, indent=2) + "\n", "utf-8")


def copy_study(study: Path, out: Path) -> None:
    """Everything of a study but weights, locks and cuts, as small as it gets."""
    for info in sorted(study.rglob("run.json")):
        where = info.parent.relative_to(study)
        if not where.is_relative_to(CUTS) and where.parts[0] not in ("work", "pieces"):
            copy_run(open_run(info.parent), out / where, whole=str(where) in REGISTERED)
    for file in [*study.iterdir(), *(study / "cells").iterdir()]:
        if file.is_file():
            shutil.copyfile(file, out / file.relative_to(study))


def copy_run(run: Run, out: Path, *, whole: bool) -> None:
    """A run folder: its parts as they are (`whole`), or one part of the same rows; its ledger compacted."""
    out.mkdir(parents=True)
    for file in run.folder.iterdir():
        if file.is_file() and file.name != "lock" and not file.name.startswith("ledger.sqlite"):
            shutil.copyfile(file, out / file.name)
    if (run.folder / "ledger.sqlite").exists():
        with tempfile.TemporaryDirectory() as folder:
            for file in run.folder.glob("ledger.sqlite*"):
                shutil.copyfile(file, Path(folder) / file.name)
            ledger = sqlite3.connect(Path(folder) / "ledger.sqlite")
            ledger.execute("VACUUM INTO ?", (str(out / "ledger.sqlite"),))
            ledger.close()
    if whole:
        shutil.copytree(run.folder / "parts", out / "parts")
        return
    part = out / "parts" / "000000"
    part.mkdir(parents=True)
    tables = {name: rows for name in TABLES if len(rows := run.read(name))}
    for name, rows in tables.items():
        pq.write_table(rows, part / f"{name}.parquet", compression="none", write_statistics=False)
    listed = {"part": 0, "schema_version": SCHEMA_VERSION, "rows": {n: len(t) for n, t in tables.items()}}
    (part / "part.json").write_text(json.dumps(listed) + "\n", "utf-8")


def refuse_secrets(study: Path) -> None:
    """Stop where a text of the study holds a key, a path or an address."""
    scan = Scan(redact=False)
    for file in sorted(study.rglob("*")):
        if file.suffix in (".json", ".jsonl", ".toml", ".md"):
            scan.clean(file.read_text("utf-8"), str(file.relative_to(study)))
        elif file.suffix == ".parquet":
            rows = pq.read_table(file)
            texts = [name for name in rows.column_names if pa.types.is_large_string(rows[name].type)]
            for name in texts:
                scan.clean(rows[name].unique().to_pylist(), str(file.relative_to(study)))
    if found := scan.refused():
        raise SystemExit(f"not published: {'; '.join(found)}")


def archive(study: Path) -> bytes:
    """The folder as a tar archive, the same bytes for the same files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(file for file in study.rglob("*") if file.is_file()):
            entry = tarfile.TarInfo(f"{study.name}/{file.relative_to(study)}")
            entry.size = file.stat().st_size
            with file.open("rb") as body:
                tar.addfile(entry, body)
    return lzma.compress(held.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def evaluations(study: Path) -> pd.DataFrame:
    """A row an attempt of every student of the sweep, with what its budget bought."""
    cells = {cell["name"]: cell for cell in json.loads((study / FILE).read_text("utf-8"))["cells"]}
    found = []
    for place in sorted(path.parent for path in (study / "cells").glob("*/run.json")):
        rows = open_run(place).read("evaluations").to_pandas()
        cell = cells.get(place.name, {"recipe": "", "K": "", "r_tokens": None, "budget": 0, "seed": 0})
        found.append(
            rows.assign(
                student=place.name,
                recipe=cell["recipe"],
                K=str(cell["K"]),
                r=cell["r_tokens"],
                budget=cell["budget"],
                seed=cell["seed"],
                split=split_of(rows["task_id"]),
            )[[*COLUMNS]]
        )
    return pd.concat(found, ignore_index=True).astype({"r": float})


def demo(study: Path, out: Path) -> None:
    """Pilot and D_BC as one part each, and what the sweep measured at the target, for `fewsteps demo`."""
    first = study / "demonstrations" / "first"
    for run, place in ((study / "pilot", out), (first, out.with_name("demonstrations"))):
        copied = study.parent / place.name
        shutil.copytree(run, copied)
        for name in ("ledger.sqlite", "job.json"):
            (copied / name).unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        move_compact(open_run(copied), place)
        without_place(place)
    with_sunk(out, sum(teacher_tokens(first)))
    verdict = json.loads((study / "verdict.json").read_text("utf-8"))
    target = verdict["target"]
    arms = [
        {name: arm[name] for name in ("arm", "seeds", "pass_at_1", "se", "C_i", "predicted")}
        for arm in verdict["arms"]
        if arm["budget"] == target
    ]
    kept = ("study", "registered", "target", "cells", "references", "primary", "ranking", "coverage")
    told = {name: verdict[name] for name in kept} | {"regret": verdict["regret"][str(target)], "arms": arms}
    told["cells"] = {name: told["cells"][name] for name in ("registered", "evaluated")}
    (out.parent / "measured.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def with_sunk(pilot: Path, tokens: int) -> None:
    """Say of trainings that do not say it themselves that they were on D_BC too, of so many tokens."""
    for file in pilot.glob("parts/*/trainings.parquet"):
        table = pq.read_table(file)
        told = [json.dumps({"sunk_tokens": tokens} | json.loads(row)) for row in table["data"].to_pylist()]
        at = table.schema.get_field_index("data")
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array(told, pa.large_string())), file)


def without_place(run: Path) -> None:
    """Make the names of checkpoints and evaluations in a run's tables relative to the study's folder."""
    places = {
        counter.partition(STUDENTS)[0]
        for counter in open_run(run).read("turns")["counter"].to_pylist()
        if f"/{STUDENTS}" in counter
    }
    for file in run.glob("parts/*/*.parquet"):
        table = pq.read_table(file)
        for at, field in enumerate(table.schema):
            if pa.types.is_large_string(field.type):
                for place in places:
                    table = table.set_column(at, field, pc.replace_substring(table[at], place, ""))
        pq.write_table(table, file, compression="zstd")


def description(out: Path) -> dict[str, Any]:
    """Croissant of the table and, where there is one, the archive, with the texts of about.toml."""
    table, packed = out / "evaluations.parquet", out / "study.tar.xz"
    about = read_toml(out / "about.toml", what="the description", error=DataError)
    made = croissant(
        about,
        file=table.name,
        sha256=sha256(table.read_bytes()).hexdigest(),
        size=table.stat().st_size,
        record="evaluations",
        columns=COLUMNS,
        key=("student", "task_id", "attempt"),
    )
    if not packed.exists():
        return made
    made["distribution"].append(
        {
            "@type": "cr:FileObject",
            "@id": "study-archive",
            "name": "study-archive",
            "description": "The study's folder: run folders, registration, plan, jobs, verdict.",
            "contentUrl": packed.name,
            "contentSize": f"{packed.stat().st_size} B",
            "encodingFormat": "application/x-xz",
            "sha256": sha256(packed.read_bytes()).hexdigest(),
        }
    )
    return made
