"""Inspect logs: a JSON log, or an .eval archive of samples."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import NO_REWARD, ImportedEpisode, ImportSettings, reward
from occupancy.importers.files import DOCUMENT_MB, Place, field_of, json_document, listed, mapping, parse
from occupancy.importers.messages import choice_of, read_messages, usage_of
from occupancy.record.finish import read_finish

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_ATTACHED = re.compile(r"attachment://([0-9a-f]{32})")
ZSTANDARD = 93
"""Method of compression in zip archives."""
LIMITS = {"message": "horizon", "turn": "horizon", "context": "context", "token": "budget_stopped"}


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """A sample is an episode, its id the task and its epoch the rollout; `settings.task` is not used."""
    for sample, model, place in _samples(file, settings):
        if not isinstance(sample, Mapping):
            raise place.refuse(f"a {type(sample).__name__}: expected a sample")
        messages, error, epoch = sample.get("messages"), sample.get("error"), sample.get("epoch", 1)
        if not isinstance(epoch, int) or not 1 <= epoch < 2**31:
            raise place.refuse(f"epoch {epoch!r}: expected a whole number from 1")
        if error and not any(mapping(m).get("role") == "assistant" for m in listed(messages)):
            raise place.refuse("the sample failed before its first turn: take it out of the log")
        messages = _attached(messages, sample.get("attachments"), place)
        prompt, turns = read_messages(messages, settings, place, model=model)
        turns = _with_usage(turns, sample)
        text = " ".join(str(mapping(error).get("message", error)).split())
        yield ImportedEpisode(
            str(sample.get("id")),
            prompt,
            turns,
            str(place),
            None if error else _score(sample.get("scores"), settings.reward, place),
            _status(sample, place),
            text if error else "",
            epoch - 1,
        )


def _samples(file: Path, settings: ImportSettings) -> Iterator[tuple[Any, str, Place]]:
    whole = Place(file)
    if not zipfile.is_zipfile(file):
        if file.suffix == ".eval":
            raise whole.refuse("not an Inspect log: an .eval file is a zip archive")
        log, _ = json_document(file, settings.progress)
        if not isinstance(log, Mapping) or not isinstance(log.get("samples"), list):
            raise whole.refuse("not an Inspect log: no list under 'samples'")
        if not log["samples"]:
            raise whole.refuse(f"no sample in it: the evaluation's status is {log.get('status')!r}")
        for number, sample in enumerate(log["samples"], start=1):
            yield sample, str(field_of(log, "eval.model") or ""), Place(file, f"sample {number}")
        return
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            head = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
            if head is None:
                raise whole.refuse("neither header.json nor _journal/start.json inside: not an Inspect log")
            model = str(field_of(_member(archive, head, file), "eval.model") or "")
            for name in sorted(n for n in names if n.startswith("samples/")):
                yield _member(archive, name, file), model, Place(file, name)
                if settings.progress is not None:
                    settings.progress(archive.getinfo(name).compress_size)
    except zipfile.BadZipFile as error:
        raise whole.refuse(f"not an Inspect log ({error})") from error
    except NotImplementedError as error:
        raise whole.refuse(
            f"compressed in a way that this Python cannot read ({error}): run `inspect log convert --to json`"
        ) from error


def _zstandard(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: Place) -> bytes:
    """The text of a member in Zstandard, checked against its length and CRC-32."""
    import pyarrow as pa

    file = archive.fp
    assert file is not None
    file.seek(info.header_offset + 26)
    # A local header has 30 bytes, then the name and further fields of the lengths at 26 (APPNOTE 4.3.7).
    lengths = file.read(4)
    file.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), 1)
    packed = file.read(info.compress_size)
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            text: bytes = stream.read(info.file_size + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise place.refuse(f"damaged ({error})") from error
    if len(text) != info.file_size or zlib.crc32(text) != info.CRC:
        raise place.refuse("damaged: its length or checksum is not the archive's")
    return text


def _member(archive: zipfile.ZipFile, name: str, file: Path) -> Any:
    place, info = Place(file, name), archive.getinfo(name)
    if info.file_size > DOCUMENT_MB << 20:
        raise place.refuse(f"more than {DOCUMENT_MB} MB: too long for one conversation")
    packed = info.compress_type == ZSTANDARD  # Inspect's default, which zipfile reads from Python 3.14 on
    try:
        text = (_zstandard(archive, info, place) if packed else archive.read(name)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.refuse(f"not UTF-8 ({error})") from error
    return parse(text, place)


def _attached(value: Any, attachments: Any, place: Place) -> Any:
    """Messages with the texts that Inspect stores once, under `attachments`, put back."""
    if isinstance(value, str):

        def found(match: re.Match[str]) -> str:
            text = attachments.get(match[1]) if isinstance(attachments, Mapping) else None
            if not isinstance(text, str):
                raise place.refuse(f"attachment {match[1]} is not in the sample: the log is not whole")
            return text

        return _ATTACHED.sub(found, value)
    if isinstance(value, list):
        return [_attached(item, attachments, place) for item in value]
    if isinstance(value, dict):
        return {name: _attached(item, attachments, place) for name, item in value.items()}
    return value


def _with_usage(turns: Any, sample: Mapping[str, Any]) -> Any:
    """Turns with the usage of their model calls, where the events hold one call a turn."""
    events = map(mapping, listed(sample.get("events")))
    called = [event.get("output") for event in events if event.get("event") == "model"]
    outputs = [output for output in called if isinstance(output, Mapping)]
    if len(outputs) != len(turns):
        return turns
    found = []
    for turn, output in zip(turns, outputs, strict=True):
        reason = choice_of(output).get("stop_reason")
        end = turn.finish_reason if reason is None else read_finish(reason)
        found.append(replace(turn, finish_reason=end, **usage_of(output.get("usage"), turn.text)))
    return tuple(found)


def _score(scores: Any, scorer: str, place: Place) -> float | None:
    if scorer == NO_REWARD or (not scorer and not scores):
        return None
    if not scorer:
        scores = mapping(scores)
        if len(scores) != 1:
            raise place.refuse(f"scores of {', '.join(scores)}: name the reward's with --reward, or 'none'")
        scorer = next(iter(scores))
    if not isinstance(found := mapping(scores).get(scorer), Mapping):
        raise place.refuse(f"no score {scorer!r}, only {', '.join(mapping(scores)) or 'none'}")
    value: Any = found.get("value")
    if isinstance(value, str):
        number = re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", value.strip())
        value = float(value) if number else GRADES.get(value.strip(), value)
    return reward(value, f"score {scorer!r}", place)


def _status(sample: Mapping[str, Any], place: Place) -> str:
    if sample.get("error"):
        return "environment_error"
    limit = sample.get("limit")
    if not limit:
        return "finished"
    kind = mapping(limit).get("type", limit)
    if kind in ("time", "working", "cost", "operator", "custom"):
        return "budget_stopped"
    if not isinstance(kind, str) or kind not in LIMITS:
        raise place.refuse(f"limit {kind!r}: expected one of {', '.join(LIMITS)}, time, working, cost")
    return LIMITS[kind]
