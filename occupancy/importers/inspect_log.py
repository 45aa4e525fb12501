"""Inspect logs: a JSON log, or an .eval archive of samples."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, Place
from occupancy.importers.messages import read_messages

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
LIMITS = {"message": "horizon", "turn": "horizon", "context": "context", "token": "budget_stopped"}


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """A sample is an episode, its id the task and its epoch the rollout; `settings.task` is not used."""
    episodes = []
    for sample, model, place in _samples(file):
        messages = sample.get("messages")
        error = sample.get("error")
        if error and not any(m.get("role") == "assistant" for m in messages or ()):
            raise place.refuse("the sample failed before its first turn: take it out of the log")
        prompt, turns = read_messages(messages, settings, place, model=model)
        text = " ".join(str(error.get("message", error) if isinstance(error, Mapping) else error).split())
        episodes.append(
            ImportedEpisode(
                str(sample.get("id")),
                prompt,
                turns,
                str(place),
                None if error else _score(sample.get("scores"), settings.reward, place),
                _status(sample, place),
                text if error else "",
                int(sample.get("epoch", 1)) - 1,
            )
        )
    return episodes


def _samples(file: Path) -> Iterator[tuple[dict[str, Any], str, Place]]:
    whole = Place(file, "whole file")
    try:
        if file.suffix != ".eval":
            log = json.loads(file.read_text("utf-8"))
            for number, sample in enumerate(log.get("samples") or (), start=1):
                yield sample, _model(log), Place(file, f"sample {number}")
            return
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            head = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
            if head is None:
                raise whole.refuse("neither header.json nor _journal/start.json inside: not an Inspect log")
            model = _model(json.loads(archive.read(head)))
            for name in sorted(n for n in names if n.startswith("samples/")):
                yield json.loads(archive.read(name)), model, Place(file, name)
    except (ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, ValueError) and hasattr(error, "exit_code"):
            raise
        raise whole.refuse(f"not an Inspect log ({error})") from error
    except NotImplementedError as error:
        raise whole.refuse(
            f"compressed in a way that this Python cannot read ({error}): run `inspect log convert --to json`"
        ) from error


def _model(log: Mapping[str, Any]) -> str:
    return str((log.get("eval") or {}).get("model") or "")


def _score(scores: Any, scorer: str, place: Place) -> float | None:
    if not scorer:
        return None
    found = scores.get(scorer) if isinstance(scores, Mapping) else None
    if not isinstance(found, Mapping):
        names = ", ".join(scores) if isinstance(scores, Mapping) else "none"
        raise place.refuse(f"no score {scorer!r}, only {names}")
    value = found.get("value")
    if isinstance(value, str):
        value = GRADES.get(value)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise place.refuse(f"score {scorer!r} is {found.get('value')!r}: expected C, P, I, N or [0, 1]")
    return float(value)


def _status(sample: Mapping[str, Any], place: Place) -> str:
    if sample.get("error"):
        return "environment_error"
    limit = sample.get("limit")
    if not limit:
        return "finished"
    kind = limit.get("type") if isinstance(limit, Mapping) else limit
    if kind in ("time", "working", "cost", "operator", "custom"):
        return "budget_stopped"
    if kind not in LIMITS:
        raise place.refuse(f"limit {kind!r}: expected one of {', '.join(LIMITS)}, time, working, cost")
    return LIMITS[kind]
