"""Files as they are found: compressed, broken, nested, long; each is read, or refused in one line."""

import gzip
import json
import resource

import pyarrow as pa
import pytest
from import_files import MESSAGES, lines, write

from analysis.cli import main
from occupancy import DataError
from occupancy.importers import files, formats_of, read_episodes
from occupancy.importers.episodes import ImportSettings
from occupancy.importers.seen import Seen
from occupancy.runs import open_run

RECORD = {"task_id": "key", "messages": MESSAGES}
LINE = json.dumps(RECORD)
PAIR = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def read(file):
    return list(read_episodes(formats_of([file]), settings=ImportSettings(author="teacher")))


def compressed(folder, name, text, codec):
    file = folder / name
    with file.open("wb") as raw:
        if codec == "gzip":
            raw.write(gzip.compress(text.encode()))
        else:
            with pa.CompressedOutputStream(pa.PythonFile(raw, "w"), codec) as packed:
                packed.write(text.encode())
    return file


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compression_is_seen_in_the_bytes(tmp_path, codec):
    file = compressed(tmp_path, "a.jsonl", f"{LINE}\n\n{LINE}\n", codec)
    assert len(read(file)) == 2
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(DataError) as refusal:
        read(file)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"\ufeff{LINE}",
        f"{LINE}\r\n{LINE}\r\n",
        f"[{LINE}]",
        json.dumps([RECORD], indent=2),
        json.dumps(RECORD, indent=2),
    ],
)
def test_one_document_or_lines(tmp_path, text):
    file = tmp_path / "a"
    file.write_text(text, "utf-8", newline="")
    for episode in read(file):
        assert [turn.text for turn in episode.turns] == ["look", "open drawer"]


DEEP = '{"task_id": "a", "messages": ' + "[" * 100_000 + "]" * 100_000 + "}"
BROKEN = [
    (f"{LINE}\n{{]", "line 2: not JSON"),
    (f"{LINE}\n" + DEEP, "line 2: nested too deeply"),
    (LINE[:-1] + ', "task_id": "b"}', "line 1: the name 'task_id' is twice in one object"),
    (f"{LINE}\n[1]", "line 2: a list: expected an object"),
    (
        json.dumps({**RECORD, "messages": [{**PAIR[0], "images": ["x"]}]}),
        "message 1: images: only text can be imported",
    ),
    (json.dumps({**RECORD, "messages": [{**PAIR[1], "weight": 0.5}]}), "weight is 0.5: expected 0 or 1"),
    ("", "no record in it that tells the format"),
    ("[]", "no record in it that tells the format"),
    ('{"a": 1}', "fields a: no known format; give --format"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_a_broken_file_is_one_line(tmp_path, capsys, text, message):
    file = write(tmp_path, "a.jsonl", text)
    assert main(["import", str(file), "--author", "teacher", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("text", "limit"), [(LINE, "LINE_MB"), (json.dumps([RECORD] * 9, indent=1), "DOCUMENT_MB")]
)
def test_a_line_or_document_above_the_limit_is_refused(tmp_path, monkeypatch, text, limit):
    monkeypatch.setattr(files, limit, 0)
    monkeypatch.setattr(files, "_BLOCK", 64)
    with pytest.raises(DataError, match="than 0 MB"):
        list(files.json_records(write(tmp_path, "a.jsonl", text)))


def test_utf_16_is_refused(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(LINE, "utf-16")
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        list(read_episodes({str(file): "chat"}, settings=ImportSettings(author="teacher")))


def test_several_formats_and_a_folder_make_one_run_in_many_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("occupancy.importers.write.PART_CHARACTERS", 3000)
    data = tmp_path / "data"
    data.mkdir()
    write(data, "a.jsonl", lines([RECORD] * 5))
    write(
        data,
        "b.json",
        {"task_id": "key", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    )
    (data / "notes.txt").write_text("not data")
    given = ["import", str(data), "--author", "teacher", "--out", str(tmp_path / "run"), "--json"]
    assert main(given) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(report["formats"].values()) == ["chat", "sharegpt"]
    run = open_run(tmp_path / "run")
    assert len(run.files("episodes")) > 1
    episodes = run.read("episodes").to_pylist()
    assert [e["episode_id"] for e in episodes if e["kind"] == "demo"] == ["key#demo-x-x-5-x"]
    hashes = {trace["recipe_hash"] for trace in run.read("traces").to_pylist()}
    assert hashes == {run.recipe.hash}


def test_what_has_no_place_is_counted(tmp_path, capsys):
    record = {"task_id": "a", "note": 1, "messages": [PAIR[0], {**PAIR[1], "annotations": ["x"]}]}
    file = write(tmp_path, "a.jsonl", record)
    assert main(["import", str(file), "--author", "teacher", "--out", str(tmp_path / "run"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["left_out"] == {"message field 'annotations'": 1, "record field 'note'": 1}


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_folder_that_datasets_saved_is_read(tmp_path, kind, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text("{}")
    table = pa.Table.from_pylist([{"task_id": str(n), "messages": PAIR} for n in range(600)])
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(str(folder / "data-00000-of-00001.arrow"), table.schema) as sink:
        sink.write_table(table)
    given = ["import", str(folder), "--author", "teacher", "--out", str(tmp_path / "run"), "--json"]
    assert main(given) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 600


def test_what_is_remembered_of_earlier_episodes_is_on_the_disk():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = Seen()
    for start in range(0, 300_000, 1000):
        seen.add((f"a task with a name of some length {n}" for n in range(start, start + 1000)), start)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 24 * 1024, "KiB more"
    assert len(seen) == 300_000
    assert seen.get("a task with a name of some length 1234") == 1000
    seen.add(["a task with a name of some length 1234", -(2**63)], 7)
    assert (seen.get("a task with a name of some length 1234"), seen.get(-(2**63))) == (1000, 7)
    seen.put("a task with a name of some length 1234", 8)
    assert seen.get("a task with a name of some length 1234") == 8
    assert "another" not in seen
