"""What verl's own loader makes of exports of a run whose traces begin with turns of the student."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from families import tokenizer_of
from toy_runs import rows, run_of

from agentloop.render import codec_of, render_trace
from agentloop.render.types import read_messages
from analysis.cli import main
from occupancy.record.recipe import preset

MADE = Path(__file__).parents[2] / ".venv-validators" / "bin" / "python"
VALIDATORS = Path(os.environ.get("FEWSTEPS_VALIDATORS") or MADE)
VERL = VALIDATORS.parents[1] / "verl" / "bin" / "python"
"""A Python that has verl, from `make validators`."""

LOAD = """
import json, sys
import pyarrow.parquet
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.import_utils import load_extern_object
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
found = {}
for name, folder in (("own", sys.argv[2]), ("Messages", sys.argv[2]), ("Ids", sys.argv[3])):
    kind = MultiTurnSFTDataset if name == "own" else load_extern_object(f"{folder}/verl_dataset.py", name)
    config = {"max_length": 4096, "messages_key": "messages", "pad_mode": "no_padding", "truncation": "error"}
    config, file = OmegaConf.create(config), f"{folder}/train.parquet"
    # As verl.trainer.sft_trainer calls it.
    data = kind(parquet_files=file, tokenizer=tokenizer, config=config, processor=None, max_samples=-1)
    names = pyarrow.parquet.read_table(file)["trace"].to_pylist()
    found[name] = {n: [data[i][k].tolist() for k in ("input_ids", "loss_mask")] for i, n in enumerate(names)}
config.pad_mode = "right"
padded = kind(parquet_files=[file], tokenizer=tokenizer, config=config)[0]
found["padded"] = sorted({tuple(field.shape) for field in padded.values()})
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not VERL.exists(), reason="FEWSTEPS_VALIDATORS is not beside a Python with verl")
def test_verl_trains_on_the_teachers_turns_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-short", K=3, n=2, T_max=12))
    tokenizer = tokenizer_of("chatml")
    tokenizer.save_pretrained(tmp_path / "model")
    for form in ("verl", "tokens"):
        model = ["--model", str(tmp_path / "model")] if form == "tokens" else []
        export = ["export", str(run.folder), "--format", form, "--out", str(tmp_path / form), *model]
        assert main(export) == 0
    made = subprocess.run(
        [str(VERL), "-c", LOAD, *(str(tmp_path / name) for name in ("model", "verl", "tokens"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    assert found["padded"] == [[4096]]
    codec = codec_of(tokenizer)
    students = 0
    for trace in rows(run, "traces"):
        name, messages = trace["episode_id"], read_messages(trace["messages"])
        (row,) = render_trace(codec, messages).rows
        assert found["Ids"][name] == [row.ids.tolist(), row.targets.astype(int).tolist()]
        ids, mask = found["Messages"][name]
        # verl trains on the line end after a turn as well, and its row has it.
        assert ids[: len(row.ids)] == row.ids.tolist()
        assert len(ids) == len(row.ids) + 1
        close = codec.closing_ids[-1]
        after = [a == close and b for a, b in zip(ids, mask, strict=True)]
        assert [bool(m) and not (i and after[i - 1]) for i, m in enumerate(mask)][:-1] == row.targets.tolist()
        student = sum(m.author == "student" for m in messages)
        assert (sum(found["own"][name][1]) > sum(mask)) == (student > 0)
        students += student
    assert students > 0
