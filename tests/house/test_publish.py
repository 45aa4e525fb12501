"""A run as a folder to publish: what is in it, and what is refused before anything is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from toy_runs import rows, run_of
from toy_world import Corridors

from analysis.cli import main
from analysis.publish.every_eval_ever import _model
from analysis.publish.scan import Scan
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

MADE = Path(__file__).parents[2] / ".venv-validators" / "bin" / "python"
VALIDATORS = os.environ.get("FEWSTEPS_VALIDATORS", str(MADE) if MADE.exists() else "")
"""A Python that has mlcroissant, every-eval-ever and atif, from `make validators`."""
RECIPE = preset("op-short", K=3, n=2, T_max=12)
AT = "/".join(("", "home", "ann", "secret.txt"))
SECRETS = {
    "key": (
        "sk-proj-0a1B2c3D4e5F6g7H8i9JkLmN",
        "ghp_" + "a1" * 18,
        "AKIAIOSFODNN7EXAMPLE",
        "hf_" + "Ab" * 17,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
        "postgres://ann:pw12@db.example.org/x",
        "api_key = 'abcdEFGH12345678'",
        "Authorization: Bearer abcdefghij0123456789XYZ",
    ),
    "path": (AT, "/Users/bob", "C:\\Users\\Bob\\x.txt", "/scratch/x/id_rsa"),
    "address": ("ann.b+c@mail.example.org", "93.184.216.34", "10.0.0.7"),
}
CLEAN = (
    "go to desk 1 and take pen 2",
    "127.0.0.1:8000 of 1.2.3 and 999.1.1.1",
    "see http://example.org/home and/or it",
    "the key is under the mat; password: none",
    "a sk-eleton and @name, tasks/mnt",
)


def test_what_is_a_secret_and_what_is_not() -> None:
    for kind, texts in SECRETS.items():
        for text in texts:
            scan = Scan(redact=True)
            cleaned = scan.clean({"a": [f"before {text} after"]}, "here")["a"][0]
            assert kind in scan.found, text
            assert cleaned.startswith("before ")
            assert f"[{kind}]" in cleaned
            assert "here" in scan.places[kind]
    for text in CLEAN:
        scan = Scan(redact=True)
        assert scan.clean(text, "") == text, scan.places


def test_a_key_of_this_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "plain-words-as-a-key-1234")
    scan = Scan(redact=True)
    assert scan.clean("x plain-words-as-a-key-1234 y", "") == "x [key] y"
    assert dict(scan.found) == {"key": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("publish") / "run"
    return run_of(folder, RECIPE, pilot=False)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Run:
    class Leaking(Corridors):
        version = f"toy of ann@example.org in {AT} with {SECRETS['key'][0]}"

    return run_of(tmp_path_factory.mktemp("leak") / "run", RECIPE, worlds=Leaking())


def publish(run: Run, out: Path, *more: str) -> int:
    return main(["publish", str(run.folder), "--out", str(out), "--license", "cc-by-4.0", *more])


def test_conversations_are_whole_and_marked_where_they_are_trained_on(run: Run, tmp_path: Path) -> None:
    assert publish(run, tmp_path / "out", "--name", "a | b\n# c <b>") == 0
    table = pq.read_table(tmp_path / "out" / "data" / "episodes.parquet").to_pylist()
    assert {row["episode_id"] for row in table} == {row["episode_id"] for row in rows(run, "episodes")}
    by_name = {row["episode_id"]: row for row in table}
    for trace in rows(run, "traces"):
        said = by_name[trace["episode_id"]]["messages"]
        told = json.loads(trace["messages"])
        assert [(m["role"], m["content"], m["train"]) for m in said[: len(told)]] == [
            (m["role"], m["content"], m["train"]) for m in told
        ]
    trained = [m for row in table for m in row["messages"] if m["train"]]
    assert len(trained) == sum(trace["target_turns"] for trace in rows(run, "traces"))
    assert {m["author"] for m in trained} == {"teacher"}
    for row, file in zip(table, sorted((tmp_path / "out" / "traces").iterdir()), strict=True):
        head, *messages = map(json.loads, file.read_text("utf-8").splitlines())
        assert (head["type"], head["harness"], head["id"]) == ("session", "fewsteps", row["episode_id"])
        assert [m["message"]["content"] for m in messages] == [m["content"] for m in row["messages"]]
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "\n# a \\| b \\# c \\<b\\>\n" in card
    assert 'pretty_name: "a | b\\n# c' in card
    assert "license: cc-by-4.0" in card


def test_keys_paths_and_addresses_are_named_and_nothing_is_written(
    leaking: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(leaking, tmp_path / "out") == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert all(f"of kind {kind} (first: " in told for kind in SECRETS)
    assert SECRETS["key"][0][:9] not in told
    assert publish(leaking, tmp_path / "out", "--keep", "path", "--keep", "address") == 2
    assert not list(tmp_path.iterdir())
    assert publish(leaking, tmp_path / "out", "--redact", "--keep", "address") == 0
    written = b"".join(f.read_bytes() for f in (tmp_path / "out").rglob("*.*") if f.suffix != ".parquet")
    assert SECRETS["key"][0].encode() not in written
    assert AT.encode() not in written
    assert b"ann@example.org" in written
    assert b"[key]" in written


@pytest.mark.parametrize(
    ("environment", "licence", "refused"),
    [
        ("hotpotqa 2 (corpus)", "mit", "expected --license cc-by-sa-4.0"),
        ("hotpotqa 2 (corpus)", "cc-by-sa-4.0", ""),
        ("alfworld 1", "apache-2.0", ""),
        ("toy 1", "my-own", "expected one of apache-2.0"),
    ],
)
def test_the_licence_comes_first(
    environment: str, licence: str, refused: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = run.folder.with_name(f"{licence}-{environment.split(maxsplit=1)[0]}")
    shutil.copytree(run.folder, copy)
    info = json.loads((copy / "run.json").read_text("utf-8"))
    (copy / "run.json").write_text(json.dumps(info | {"environment": environment}), "utf-8")
    out = copy.with_name(f"{copy.name}-out")
    code = main(["publish", str(copy), "--out", str(out), "--license", licence])
    assert code == (2 if refused else 0)
    assert refused in capsys.readouterr().err
    assert out.exists() == (not refused)


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("evaluated") / "run"
    world = ("--env", "toy_world:open_corridors", "--tasks", "4", "--attempts", "2")
    assert main(["evaluate", "--policy", "drunk", *world, "--out", str(out), "--json"]) == 0
    return open_run(out)


def test_an_evaluation_has_a_record(evaluation: Run, tmp_path: Path) -> None:
    assert publish(evaluation, tmp_path / "out", "--organization", "ours") == 0
    (file,) = (tmp_path / "out" / "evaluations" / "data").rglob("*.json")
    assert [part.name for part in list(file.parents)[2::-1]] == ["toy", "ours", "drunk"]
    made = json.loads(file.read_text("utf-8"))
    (result,) = made["evaluation_results"]
    scores = [row["score"] >= 1 for row in rows(evaluation, "evaluations")]
    assert result["score_details"]["score"] == pytest.approx(sum(scores) / len(scores))
    assert result["score_details"]["uncertainty"]["num_samples"] == len(scores)
    assert made["source_metadata"]["source_organization_name"] == "ours"
    assert all(isinstance(value, str) for value in result["score_details"]["details"].values())


def test_a_models_tag_is_part_of_its_name() -> None:
    assert _model("openai:qwen3:8b@http://localhost:11434/v1", "ours") == ("ours", "qwen3:8b")
    assert _model("openai:meta/llama-3:70b,temperature=1", "ours") == ("meta", "llama-3:70b")
    assert _model("vllm:models/pi_1/epoch-003,max_tokens=9", "ours") == ("ours", "epoch-003")
    assert _model("drunk", "our/s") == ("our-s", "drunk")


CHECK = """
import json, sys
from pathlib import Path
import mlcroissant
out = Path(sys.argv[1])
data = mlcroissant.Dataset(out / "croissant.json")
assert not data.metadata.ctx.issues.errors, data.metadata.ctx.issues.report()
assert not data.metadata.ctx.issues.warnings, data.metadata.ctx.issues.report()
print(json.dumps([str(record["episodes/episode_id"], "utf-8") for record in data.records("episodes")]))
"""


@pytest.mark.skipif(not VALIDATORS, reason="FEWSTEPS_VALIDATORS names no Python with every-eval-ever")
def test_the_record_is_valid(evaluation: Run, tmp_path: Path) -> None:
    assert publish(evaluation, tmp_path / "out", "--organization", "ours") == 0
    where = tmp_path / "out" / "evaluations"
    (file,) = (where / "data").rglob("*.json")
    check = [VALIDATORS, "-m", "every_eval_ever", "validate", str(file.relative_to(where))]
    made = subprocess.run(check, capture_output=True, text=True, check=False, cwd=where)
    assert made.returncode == 0, made.stdout[-2000:]


@pytest.mark.skipif(not VALIDATORS, reason="FEWSTEPS_VALIDATORS names no Python with mlcroissant")
def test_croissant_is_valid(run: Run, tmp_path: Path) -> None:
    assert publish(run, tmp_path / "out", "--url", "https://example.org/data") == 0
    made: Any = subprocess.run(
        [VALIDATORS, "-c", CHECK, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    ids = json.loads(made.stdout.splitlines()[-1])
    assert set(ids) == {row["episode_id"] for row in rows(run, "episodes")}


ATIF = """
import json, sys
from pathlib import Path
from atif import Trajectory
files = sorted(Path(sys.argv[1]).glob("*.json"))
for file in files:
    Trajectory.model_validate_json(file.read_text("utf-8"))
print(len(files))
"""


@pytest.mark.skipif(not VALIDATORS, reason="FEWSTEPS_VALIDATORS names no Python with atif")
def test_atif_is_valid(run: Run, tmp_path: Path) -> None:
    assert main(["export", str(run.folder), "--format", "atif", "--out", str(tmp_path / "out")]) == 0
    made = subprocess.run(
        [VALIDATORS, "-c", ATIF, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    assert int(made.stdout) == len(rows(run, "episodes"))
