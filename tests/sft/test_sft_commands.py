"""From a collected run to a trained student, by the command line."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from families import tokenizer_of
from tiny_models import tiny_config
from toy_runs import rows, run_of

from agentloop.render import LengthRule, codec_of, render_trace
from agentloop.render.codec import encode_turn
from agentloop.render.traces import Rendering, count, render_run, rendered_traces
from analysis.cli import main
from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.runs import Run, create_run
from sft.on_runs import train_on_runs
from sft.rows import load_rows
from sft.settings import preset as training_preset
from sft.train import Trained


@pytest.fixture(scope="module")
def op(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("op") / "run", preset("op-short", K=3, n=2, T_max=12))


@pytest.fixture(scope="module")
def bc(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("bc") / "run", preset("pure-bc", n=1, T_max=12))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("base")
    tokenizer = tokenizer_of("chatml")
    LlamaForCausalLM(tiny_config(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def codec() -> Any:
    return codec_of(tokenizer_of("chatml"))


def test_traces_that_are_remembered_are_rendered_once(op: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rendering = Rendering(codec())
    first = load_rows([op.folder], rendering)
    monkeypatch.setattr("agentloop.render.traces.render_trace", None)
    again = load_rows([op.folder], rendering)
    assert (again.rows.ids == first.rows.ids).all()
    assert again.counts == first.counts


def test_a_run_renders_whole_and_counts_agree_with_its_own(op: Run) -> None:
    traces = list(render_run(op, codec()))
    counts = count(traces)
    stored = rows(op, "traces")
    assert counts.C_tr == sum(row["C_tr"] for row in stored) > 0
    assert counts.turns == sum(row["target_turns"] for row in stored)
    assert (counts.traces, counts.traces_dropped, counts.rows_with_drift) == (len(stored), 0, 0)


def test_rows_whose_sampled_ids_differ_from_encoding_are_counted(op: Run) -> None:
    c = codec()
    traces = list(render_run(op, c))
    *before, last = traces[0].messages
    letters = tuple(i for letter in "go to desk 1" for i in encode_turn(c, letter))
    messages = [*before, replace(last, content="go to desk 1", token_ids=letters)]
    drifted = replace(traces[0], rendered=render_trace(c, messages))
    assert count([drifted, *traces[1:]]).rows_with_drift == 1


def test_length_rules_come_before_C_tr(op: Run) -> None:
    whole = list(render_run(op, codec()))
    longest = max(row.ids.size for t in whole for row in t.rendered.rows)
    cut = list(render_run(op, codec(), rule=LengthRule(longest - 1)))
    lost = [k for k, t in enumerate(cut) if not t.rendered.rows]
    assert 0 < len(lost) < len(whole)
    assert all(cut[k].C_tr == 0 for k in lost)
    counts = count(cut)
    assert counts.C_tr == count(whole).C_tr - sum(whole[k].C_tr for k in lost)
    assert counts.turns_dropped == {"row_tokens": sum(len(whole[k].rendered.kept) for k in lost)}
    assert f"whole: {len(lost)} of {len(whole)}; rows may be longer with" in counts.left_out
    assert not count(whole).left_out
    with pytest.raises(DataError, match=f"no trace to train on: .* of {len(whole)};"):
        load_rows([op.folder], codec(), rule=LengthRule(2))


def test_a_row_of_traces_is_filled_with_what_is_trained_on(op: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = op.read("traces").to_pylist()[0]
    filled = rendered_traces(op, codec()).to_pylist()[0]
    assert filled["C_tr"] == row["C_tr"]
    assert len(filled["token_ids"]) == len(filled["targets"]) == filled["sequence_tokens"]
    assert sum(filled["targets"]) == filled["target_tokens"]
    assert filled["row_starts"] == [0]
    monkeypatch.setattr("agentloop.render.traces._taught", lambda run: {})
    with pytest.raises(DataError, match="one count a turn"):
        rendered_traces(op, codec())


def test_traces_under_a_template_that_rewrites_history_carry_every_row(op: Run, tmp_path: Path) -> None:
    """One row a teacher turn, end to end in one file: what is trained on, row by row."""
    tokenizer = tokenizer_of("thinking")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    thinks = op.read("traces").to_pylist()
    for row in thinks:
        messages = json.loads(row["messages"])
        for message in messages:
            if message["role"] == "assistant":
                message["content"] = f"<think>why</think>{message['content']}"
        row["messages"] = json.dumps(messages)
    run = create_run(tmp_path / "run", op.recipe, {})
    others = {name: op.read(name).to_pylist() for name in ("episodes", "turns")}
    run.commit({"traces": thinks, **others})
    command = ["traces", "render", str(run.folder), "--tokenizer", str(tmp_path / "tokenizer")]
    assert main([*command, "--out", str(tmp_path / "traces.parquet"), "--json"]) == 0
    found = pq.read_table(tmp_path / "traces.parquet").to_pylist()
    several = 0
    for row, trace in zip(found, render_run(run, codec_of(tokenizer)), strict=True):
        ends = [*row["row_starts"][1:], len(row["token_ids"])]
        parts = [slice(a, b) for a, b in zip(row["row_starts"], ends, strict=True)]
        for part, rendered in zip(parts, trace.rendered.rows, strict=True):
            assert row["token_ids"][part] == rendered.ids.tolist()
            assert row["targets"][part] == rendered.targets.tolist()
        assert (row["C_tr"], row["target_tokens"]) == (trace.C_tr, trace.rendered.target_tokens)
        assert len(parts) == row["target_turns"]
        several += len(parts) > 1
    assert several
    shown = ["traces", "show", str(run.folder), "--tokenizer", str(tmp_path / "tokenizer")]
    assert main(shown) == 0


def test_show_prints_targets_and_counts(op: Run, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "show", str(op.folder), "--tokenizer", str(base), "--limit", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["traces"]) == 2
    for trace in shown["traces"]:
        for row in trace["rows"]:
            spoken = "".join(p["text"] for p in row["pieces"] if p["target"])
            assert set(spoken.replace("<|im_end|>", " ").split()) <= {"forward", "climb"}
            assert row["targets"] == sum(p["ids"] for p in row["pieces"] if p["target"])
    assert main(["traces", "show", str(op.folder), "--tokenizer", str(base)]) == 0
    printed = capsys.readouterr().out
    assert "Trained on: between « and »." in printed
    for trace in list(render_run(op, codec()))[:3]:
        (row,) = trace.rendered.rows
        share = f"{row.targets.sum()} targets of {len(row.ids)} ids ({row.targets.mean():.0%})"
        assert share in " ".join(printed.split())
    assert "Reach the end." in printed


def test_the_viewer_shows_every_token_and_marks_targets(op: Run, base: Path, tmp_path: Path) -> None:
    traces = list(render_run(op, codec()))
    file = tmp_path / "op.html"
    assert main(["view", str(op.folder), "--tokenizer", str(base), "--out", str(file)]) == 0
    packed = re.search('id="data">([^<]*)<', file.read_text("utf-8"))
    assert packed is not None
    data = json.loads(zlib.decompress(b64decode(packed[1])))
    marked = 0
    for trace in traces:
        place = data["episodes"]["episode_id"].index(trace.episode_id)
        shown = data["rendered"][str(place)]["rows"]
        for row, rendered in zip(shown, trace.rendered.rows, strict=True):
            whole = codec().tokenizer.decode(rendered.ids.tolist(), clean_up_tokenization_spaces=False)
            assert "".join(piece["text"] for piece in row["pieces"]) == whole
            targets = [piece for piece in row["pieces"] if piece["target"]]
            assert {piece["author"] for piece in targets} == {"teacher"}
            marked += sum(piece["ids"] for piece in targets)
    assert marked == sum(trace.rendered.target_tokens for trace in traces)


def test_show_names_a_trace_that_is_not_there(
    op: Run, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["traces", "show", str(op.folder), "--tokenizer", str(base), "--trace", "nobody"]
    assert main(arguments) == 2
    assert "no accepted trace 'nobody'" in capsys.readouterr().err


def test_train_writes_a_model_that_loads_and_a_row_of_the_run(
    op: Run, bc: Run, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pi_0 -> D_BC and D_OP; run again, it changes nothing."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    small = ["precision=fp32", "epochs=2", "batch=4", "row_tokens=512", "held_out=0.3", "lr=0.01"]
    command = ["train", str(bc.folder), str(op.folder), "--base", str(base), "--preset", "hotpotqa"]
    command += ["--out", str(tmp_path / "pi"), "--json", *[x for s in small for x in ("--set", s)]]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["final_loss"] == report["final_loss"]
    (row,) = bc.read("trainings").to_pylist()
    assert row["training_id"] == report["training_id"]
    held = json.loads(row["held_out_nll"])
    assert set(held["by_class"]) <= {"demonstration", "student prefix"}
    assert sum(n for _, n in held["by_depth"].values()) == held["targets"]
    assert "by_turn" not in held
    turns = bc.read("trained_turns").to_pylist()
    assert len({(t["episode_id"], t["t"]) for t in turns}) == len(turns)
    played = [t for run in (bc, op) for t in rows(run, "turns") if t["author"] == "teacher"]
    assert {(t["episode_id"], t["t"]) for t in turns} <= {(t["episode_id"], t["t"]) for t in played}
    out = [t for t in turns if t["held_out"]]
    assert {t["cluster_id"] for t in out}.isdisjoint(t["cluster_id"] for t in turns if not t["held_out"])
    assert sum(t["targets"] for t in turns if not t["held_out"]) == row["target_tokens"]
    for name, found in (("nll", held), ("nll_before", held["before"])):
        assert all((t[name] is not None) == t["held_out"] for t in turns)
        assert sum(t[name] * t["targets"] for t in out) / held["targets"] == pytest.approx(found["nll"])
        for kind, (nll, n) in found["by_class"].items():
            own = [t for t in out if t["context_class"] == kind]
            assert sum(t["targets"] for t in own) == n
            assert sum(t[name] * t["targets"] for t in own) / n == pytest.approx(nll)
    data = json.loads(row["data"])
    assert 0 < data["r_tokens"] < 1
    continued = {t["episode_id"] for t in rows(op, "traces")}
    assert any(t["context_class"] == "demonstration" for t in turns if t["episode_id"] in continued)
    own = {name: [t for t in turns if (t["episode_id"] in continued) == name] for name in (True, False)}
    share = sum(t["targets"] for t in own[True]) / sum(t["targets"] for t in turns)
    assert data["r_tokens"] == pytest.approx(share)
    assert data["C_tr"] == sum(r["C_tr"] for run in (bc, op) for r in rows(run, "traces"))
    AutoModelForCausalLM.from_pretrained(report["chosen"])
    assert AutoTokenizer.from_pretrained(report["chosen"]).chat_template


def test_trainings_on_other_data_are_other_ones_whatever_their_folders_are_called(
    op: Run, bc: Run, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained(tmp_path, (0.0,), None, None, 1, 1, 0.0)
    monkeypatch.setattr("sft.on_runs.train", lambda *_, **__: trained)

    def name(runs: list[Path], out: str, base: Path = base) -> str:
        how = {"codec": codec(), "settings": training_preset("hotpotqa"), "out": tmp_path / out / "pi"}
        return str(train_on_runs(runs, base=str(base), **how).row["training_id"])

    first = name([bc.folder], "a")
    assert name([bc.folder], "b") == first
    assert len({first, name([bc.folder, op.folder], "b"), name([bc.folder], "b", tmp_path)}) == 3


def test_a_run_named_twice_is_refused(op: Run) -> None:
    with pytest.raises(DataError, match="more than once"):
        load_rows([op.folder, op.folder], codec())


def test_classes_must_fit_the_turns(op: Run) -> None:
    names = [row["episode_id"] for row in rows(op, "traces")]
    with pytest.raises(DataError, match="0 classes are given"):
        load_rows([op.folder], codec(), classes=dict.fromkeys(names, ()))


def test_a_bad_setting_is_one_line(op: Run, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(op.folder), "--base", str(base), "--preset", "hotpotqa", "--out", "x"]
    assert main([*command, "--set", "rate=1"]) == 2
    assert "--set has no setting 'rate'" in capsys.readouterr().err


def test_what_is_left_out_is_said_before_the_training(
    op: Run, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = max(row.ids.size for t in render_run(op, codec()) for row in t.rendered.rows)
    command = ["train", str(op.folder), "--base", str(base), "--preset", "hotpotqa", "--out", str(tmp_path)]
    settings = ("precision=fp32", f"row_tokens={longest - 1}", "epochs=1", "batch=8", "held_out=0")
    assert main([*command, *(f"--set={one}" for one in settings)]) == 0
    assert (
        "train: teacher turns left out: 1 (row_tokens 1), traces left out whole: 1 of"
        in capsys.readouterr().err
    )
