"""A run as a folder to publish: conversations, data card, Croissant metadata, its evaluation's record."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from analysis.publish.conversations import SCALARS, Record, conversations, session
from analysis.publish.croissant import croissant
from analysis.publish.every_eval_ever import place, record
from analysis.publish.licence import LICENCES, notes_for
from analysis.publish.scan import KINDS, Scan
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError, InputError, own_version
from occupancy.runs import Run

MOST_FILES = 9_000
"""Sessions in a folder: the hub allows 10,000 files there."""


@dataclass(frozen=True)
class Publication:
    """What a person says of a data set."""

    licence: str
    name: str
    url: str = ""
    organization: str = "unknown"
    redact: bool = False
    keep: frozenset[str] = frozenset()
    """Kinds of findings that are published as they are: path, address."""


def publish(run: Run, out: Path, how: Publication) -> dict[str, Any]:
    """Write the new folder `out`; returns what is in it and what was found.

    Nothing is sent anywhere.

    Raises:
        InputError: a licence that the environment forbids, or keys, paths or addresses in the texts; nothing
            is written then.
        DataError: the run has no episode.
    """
    if unknown := how.keep - set(KINDS) | how.keep & {"key"}:
        raise InputError(f"--keep {sorted(unknown)[0]}: expected path or address")
    environment = str(run.info.get("environment", ""))
    policies = [str(run.info.get(who, "")) for who in ("student", "teacher")]
    scan = Scan(how.redact, how.keep)
    notes: list[str] = scan.clean(notes_for(how.licence, environment, policies), "run.json")
    rows = list(conversations(run, scan))
    if not rows:
        raise DataError(f"{run.folder} holds no episode: there is nothing to publish")
    if len(rows) > MOST_FILES:
        notes.append(f"traces/ has the first {MOST_FILES:,} of {len(rows):,} episodes, the table all of them")
    about = _about(run, how, rows, scan, notes)
    results = _evaluation(run, how, scan)
    if refused := scan.refused():
        raise InputError(
            f"{run.folder} holds {'; '.join(refused)}: --redact replaces what was found, and --keep KIND "
            f"publishes paths or addresses as they are"
        )
    about["checked"] = _checked(scan, how)
    with whole_folder(out) as draft:
        _write(draft, rows, about, results)
    return {
        "folder": str(out),
        "episodes": len(rows),
        "licence": how.licence,
        "found": dict(scan.found),
        "redacted": how.redact,
        "evaluations": len(results),
        "notes": notes,
    }


def _write(draft: Path, rows: Sequence[Record], about: Mapping[str, Any], results: Sequence[Record]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("data", "traces"):
        (draft / name).mkdir()
    table = draft / "data" / "episodes.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_schema()), table, compression="zstd")
    for number, row in enumerate(rows[:MOST_FILES]):
        (draft / "traces" / f"{number:06d}.jsonl").write_text(session(row), "utf-8")
    held = table.read_bytes()
    described = croissant(
        about, file="data/episodes.parquet", sha256=sha256(held).hexdigest(), size=len(held)
    )
    _write_json(draft / "croissant.json", described)
    (draft / "README.md").write_text(_card(about), "utf-8")
    for result in results:
        _write_json(draft / "evaluations" / place(result), result)


def _write_json(file: Path, told: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _schema() -> Any:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    texts = [(name, pa.string()) for name in ("role", "content", "author")]
    message = pa.struct([*texts, ("train", pa.bool_())])
    fields = [(name, types[kind]) for name, kind in SCALARS.items()]
    return pa.schema([*fields, ("messages", pa.list_(message))])


def _card(about: Mapping[str, Any]) -> str:
    from jinja2 import Environment, StrictUndefined

    made = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    made.filters["line"] = _line
    return str(made.from_string((Path(__file__).parent / "card.md").read_text("utf-8")).render(about))


def _line(text: object) -> str:
    """A value as plain words of one line of Markdown."""
    plain = " ".join(str(text).split()).replace("\\", "\\\\")
    for mark in "|<>[]`*_#":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def _about(
    run: Run, how: Publication, rows: Sequence[Record], scan: Scan, notes: Sequence[str]
) -> dict[str, Any]:
    """What the card and the metadata say of the run."""
    info = run.info
    names = {
        "name": how.name,
        "environment": str(info.get("environment", "")),
        "student": str(info.get("student", "")) or ", ".join(sorted({row["policy"] for row in rows})),
        "teacher": str(info.get("teacher", "")) or ", ".join(sorted({r["teacher"] for r in rows} - {""})),
        "task_spec": str(info.get("tasks", "")),
    }
    named: dict[str, str] = scan.clean(names, "run.json")
    rewards: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["R"] is not None:
            rewards[row["kind"]].append(row["R"])
    said = [message for row in rows for message in row["messages"]]
    kinds = Counter(row["kind"] for row in rows)
    held = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))
    day = datetime.now(UTC).date().isoformat()
    return named | {
        "description": f"Trajectories of language-model agents in {named['environment']}: {held} episodes, "
        f"with the author of every turn. Collected with fewsteps.",
        "licence": how.licence,
        "url": how.url or "https://example.org/not-published-yet",
        "version": "1.0.0",
        "published": day,
        "cite": f"{how.organization}: {named['name']}, {day}",
        "recipe": run.recipe.name,
        "recipe_hash": run.recipe.hash,
        "tasks": len({row["task"] for row in rows}),
        "kinds": dict(sorted(kinds.items())),
        "turns": sum(m["role"] == "assistant" for m in said),
        "trained": sum(m["train"] for m in said),
        "teacher_tokens": sum(row["teacher_tokens"] for row in rows),
        "rewards": {kind: (len(found), sum(found) / len(found)) for kind, found in sorted(rewards.items())},
        "notes": list(notes),
        "rai": _responsible(run, named),
    }


def _responsible(run: Run, named: Mapping[str, str]) -> dict[str, str]:
    """Croissant's responsible-AI fields, from what the run records."""
    teacher = f" and the teacher {named['teacher']}" if named["teacher"] else ""
    return {
        "dataCollection": f"The student {named['student']}{teacher} played tasks of {named['environment']} "
        f"under the recipe {run.recipe.name} ({run.recipe.hash}); every turn is stored as it was written.",
        "dataCollectionType": "Software Collection",
        "dataPreprocessingProtocol": "Half characters (lone surrogates) are shown as escapes; what --redact "
        "found is replaced by [key], [path] or [address]. Nothing else is changed.",
        "machineAnnotationTools": f"Rewards by the environment's own checker: {named['environment']}.",
        "dataUseCases": "Supervised fine-tuning on the teacher's turns (train is true), and study of agents' "
        "behaviour.",
        "dataLimitations": "Contexts are those that this student reached; another student visits others. "
        "Turns of the student can be wrong, and are not targets.",
        "dataBiases": "Tasks are those of the environment's split, texts are in its language, and models' "
        "turns have the models' biases.",
        "personalSensitiveInformation": "Texts were searched for keys, paths and addresses; names of people "
        "in the environment's texts were not searched for.",
        "dataReleaseMaintenancePlan": "A version that is published is not changed; corrections are new "
        "versions.",
    }


def _checked(scan: Scan, how: Publication) -> list[str]:
    lines = []
    for kind in KINDS:
        n = scan.found[kind]
        done = "published as they are" if kind in how.keep else "replaced"
        lines.append(f"{kind}: {n:,} found{f', {done}' if n else ''}")
    return [*lines, f"licence: {how.licence} ({LICENCES[how.licence]})"]


def _evaluation(run: Run, how: Publication, scan: Scan) -> list[Record]:
    if not len(run.read("evaluations", columns=["score"])):
        return []
    made = record(run, organization=how.organization, now=time.time(), version=own_version())
    return [scan.clean(made, "the evaluation")]
