"""What a training writes: a state to resume from, and checkpoints in Hugging Face format.

    OUT/settings.json     settings, data hash, base; written first
    OUT/log.jsonl         one line an optimizer step or evaluation
    OUT/state/            the newest state: one safetensors file a process, readable by any number of them,
                          and progress.json; nothing in it can execute when it is read
    OUT/epoch-001/        a checkpoint that transformers and vLLM load
    OUT/choice.json       the chosen checkpoint, the rule, and what it was chosen from
    OUT/lock              held by the one process that writes

A folder is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from occupancy.record.drafts import sync, whole_folder
from occupancy.record.errors import DataError, RunError
from sft.model import plain
from sft.world import World

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
"""One name a tensor of the optimizer."""


def save_state(
    out: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any], world: World
) -> None:
    """Replace OUT/state."""
    model, state = get_state_dict(objective, optimizer, options=FLAT)
    draft = out / ".state"
    if world.rank == 0:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
    world.wait()
    try:
        with _quietly():
            writer = HuggingFaceStorageWriter(str(draft), save_distributed=True)
            dcp.save(_tensors(objective, model, state), storage_writer=writer, no_dist=world.mesh is None)
    except CheckpointException as error:
        raise RunError(
            f"{draft} cannot be written ({_first(error)}): make room and run the same command again"
        ) from error
    if world.rank == 0:
        (draft / "progress.json").write_text(json.dumps(progress), "utf-8")
        sync(draft)
        old = out / ".state-old"
        if (out / "state").exists():  # else a kill has left the last one under the other name
            shutil.rmtree(old, ignore_errors=True)
            os.rename(out / "state", old)
        os.rename(draft, out / "state")
        shutil.rmtree(old, ignore_errors=True)
    world.wait()


def load_state(
    out: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, world: World
) -> dict[str, Any]:
    """Load the newest state in place; returns its progress.

    Raises:
        DataError: no state, or one that is not what `save_state` writes.
    """
    folder = next((f for f in (out / "state", out / ".state-old") if (f / "progress.json").exists()), None)
    if folder is None or not any(folder.glob("*.safetensors")):
        raise DataError(
            f"{out} holds no state of safetensors files to resume from: remove {out}/state, or train into a "
            f"new folder"
        )
    model, state = get_state_dict(objective, optimizer, options=FLAT)
    tensors = _tensors(objective, model, state)
    try:
        progress: dict[str, Any] = json.loads((folder / "progress.json").read_text("utf-8"))
        with _quietly():
            reader = HuggingFaceStorageReader(str(folder))
            dcp.load(tensors, storage_reader=reader, no_dist=world.mesh is None)
    except (Exception, CheckpointException) as error:  # torch wraps whatever a damaged file raises
        raise DataError(
            f"{folder} cannot be resumed from ({_first(error)}): restore it, or train into a new folder"
        ) from error
    for name, values in (("model", model), ("optimizer", state)):
        values.update({key: tensors[f"{name}.{key}"] for key in values if f"{name}.{key}" in tensors})
    set_state_dict(objective, optimizer, model_state_dict=model, optim_state_dict=state, options=FLAT)
    return progress


def _first(error: BaseException) -> str:
    """The last line of an error that may hold a whole traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1].strip()[:200]


def _tensors(objective: nn.Module, model: dict[str, Any], optimizer: dict[str, Any]) -> dict[str, Any]:
    """All tensors by name, a tied one once: two names of a parameter are read and written as one.

    What else an optimizer's state holds are its settings, which the training sets.
    """
    own = {name for name, _ in (*objective.named_parameters(), *objective.named_buffers())}
    both = {f"model.{k}": v for k, v in model.items() if k in own}
    both |= {f"optimizer.{k}": v for k, v in optimizer.items()}
    return {name: value for name, value in both.items() if isinstance(value, torch.Tensor)}


def export(folder: Path, objective: Any, tokenizer: Any, world: World) -> None:
    """A checkpoint in Hugging Face format, LoRA adapters merged in; the model keeps training as it was."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(objective, options=options)
    if world.rank == 0:
        model = objective.model
        weights = {name.removeprefix("model."): value for name, value in weights.items()}
        if plain(model) is not model:
            weights = _merged(model, weights)
        with whole_folder(folder) as draft:
            plain(model).save_pretrained(str(draft), state_dict=weights)
            if tokenizer is not None:
                tokenizer.save_pretrained(str(draft))
    world.wait()


def remove_others(out: Path, name: str) -> None:
    """Leave one checkpoint of a training."""
    for folder in out.glob("epoch-[0-9]*"):
        if folder.name != name:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """PyTorch warns that one process alone writes the state, which is what was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _merged(model: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """Plain weights from a LoRA model's: W + scale B A."""
    prefix, merged = "base_model.model.", {}
    for name, value in weights.items():
        if ".lora_" in name:
            continue
        plain_name, layer, end = name.removeprefix(prefix).partition(".base_layer.")
        if not layer:
            merged[plain_name] = value
            continue
        module = f"{prefix}{plain_name}"
        merged[f"{plain_name}.{end}"] = value
        if end == "weight":
            low = weights[f"{module}.lora_A.default.weight"].float()
            high = weights[f"{module}.lora_B.default.weight"].float()
            scale = model.get_submodule(module).scaling["default"]
            merged[f"{plain_name}.{end}"] = (value.float() + scale * (high @ low)).to(value.dtype)
    return merged
