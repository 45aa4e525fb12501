"""The training loop: the same loss curve on any number of GPUs, and after a resume.

fewsteps train RUN --base MODEL --preset hotpotqa --out OUT
torchrun --nproc-per-node 4 -m sft.commands train RUN --base MODEL --preset hotpotqa --out OUT
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.reading import read_json
from occupancy.record.shows import Shown, Shows
from occupancy.record.specs import NotNegative, Size, check_entries, parameters
from occupancy.runs import only_writer
from sft import attention, checkpoint, held_out
from sft.held_out import HeldOut
from sft.model import DevicePack, load, prepare
from sft.optim import clip_gradients, make_optimizer, rate
from sft.packing import Batch, TrainingRows, batches
from sft.screen import Show, Step, quiet
from sft.settings import Settings
from sft.world import World, join


@dataclass(frozen=True)
class Trained(Shows):
    """What came out of a training."""

    chosen: Path
    """Folder of the chosen checkpoint."""
    losses: tuple[float, ...]
    """[steps] nats per target."""
    held_out: HeldOut | None
    """Of the chosen checkpoint; None where nothing was held out."""
    before: HeldOut | None
    """Of the base, before the first step."""
    target_tokens: int
    """Targets of one epoch."""
    sequence_tokens: int
    """Ids of one epoch."""
    gpu_s: float
    """Seconds of training steps, summed over GPUs."""

    def to_pandas(self) -> pd.DataFrame:
        """The loss curve, a row a step."""
        return pd.DataFrame({"step": range(1, len(self.losses) + 1), "loss": self.losses})

    def _shown(self) -> Shown:
        said = f"{self.chosen}: {self.target_tokens:,} targets an epoch, {self.gpu_s:,.0f} GPU seconds"
        return [f"{said}. The last steps, in nats per target:"], [self.to_pandas().tail()]


@dataclass(frozen=True, eq=False)
class _Job:
    """One call of `train`."""

    rows: TrainingRows
    base: Any
    settings: Settings
    out: Path
    tokenizer: Any
    save_every: int
    only_result: bool
    stop_after: int | None
    show: Show
    hub: bool
    world: World


@dataclass
class _Progress:
    epoch: Size = 0
    batch: Size = 0
    step: Size = 0
    gpu_s: NotNegative = 0.0
    before: Mapping[str, Any] | None = None
    measured: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def train(
    rows: TrainingRows,
    *,
    base: Any,
    settings: Settings,
    out: str | Path,
    tokenizer: Any = None,
    save_every: int = 0,
    only_result: bool = False,
    stop_after: int | None = None,
    show: Show = quiet,
    hub: bool = False,
) -> Trained:
    """The chosen checkpoint of a training, and its loss curve; a training that was stopped is resumed.

    Args:
        rows: what is trained on, and held out.
        base: a checkpoint folder, or a transformers config for random weights.
        settings: see `Settings`.
        out: the training's folder, which one process at a time may write.
        tokenizer: saved beside the weights.
        save_every: steps between states; 0 = a state after every epoch only.
        only_result: write no state to resume from, and no checkpoint but the chosen one.
        stop_after: end after this step, as a kill would.
        show: called after every step, by one process.
        hub: whether `base` may be a name on the Hugging Face hub.

    Raises:
        DataError: `out` holds another training.
        RunError: another process writes `out`, or the loss is not finite.
    """
    if not str(out).strip():
        raise InputError("the folder of a training has an empty name: name one with --out")
    out = Path(out)
    world = join(sharded=settings.precision == "fp32_master")
    if world.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
    job = _Job(rows, base, settings, out, tokenizer, save_every, only_result, stop_after, show, hub, world)
    with only_writer(out) if world.rank == 0 else nullcontext():
        try:
            return _train(job)
        finally:
            # What this training made can be collected again: the process may go on to another one.
            gc.unfreeze()


def _train(job: _Job) -> Trained:
    settings, out, world = job.settings, job.out, job.world
    torch.manual_seed(settings.seed)
    trained_on, held = held_out.split(job.rows, share=settings.held_out, seed=settings.seed)
    resumed = _open(job)
    model = load(job.base, settings, hub=job.hub)
    _begin(job)
    objective = prepare(model, settings, world)
    optimizer = make_optimizer(objective, settings)
    kernel = attention.choose(settings, world.device)
    loaded = checkpoint.load_state(out, objective, optimizer, world) if resumed else None
    progress = _progress_of(out, loaded) if resumed else _Progress()
    steps = settings.epochs * math.ceil(len(trained_on) / settings.batch)
    log = _Log(job, steps=steps, kept=progress.step)

    def measure() -> dict[str, Any] | None:
        if not len(held):
            return None
        found = held_out.measure(objective, held, capacity=settings.pack_tokens, kernel=kernel, world=world)
        return dataclasses.asdict(found)

    if not resumed:
        progress.before = measure()
        log.write({"epoch": 0, "step": 0, "held_out": progress.before})
    # Garbage collections that walk through everything loaded so far would stop this GPU, and so all others.
    gc.collect()
    gc.freeze()
    while progress.epoch < settings.epochs:
        epoch = batches(
            trained_on,
            batch=settings.batch,
            capacity=settings.pack_tokens,
            seed=settings.seed,
            epoch=progress.epoch,
            world=world.size,
            # Compiled code is fastest with one shape.
            pad=settings.kernels == "compile",
        )
        for batch in islice(epoch, progress.batch, None):
            started = time.monotonic()
            lr = rate(progress.step, steps, settings)
            nll, norm = optimizer_step(
                objective, optimizer, batch, lr=lr, clip=settings.clip, kernel=kernel, world=world
            )
            log.wait_for_last()
            progress.step += 1
            progress.batch += 1
            log.step(progress, batch, lr=lr, nll=nll, norm=norm)
            progress.gpu_s += (time.monotonic() - started) * world.size
            if job.save_every and progress.step % job.save_every == 0:
                log.wait_for_last()
                checkpoint.save_state(out, objective, optimizer, dataclasses.asdict(progress), world)
            if progress.step == job.stop_after:
                log.wait_for_last()
                raise RunError(f"stopped after step {progress.step}: train again into {out} to resume")
        log.wait_for_last()
        progress.epoch += 1
        progress.batch = 0
        name = f"epoch-{progress.epoch:03d}"
        entry = {"checkpoint": name, "epoch": progress.epoch, "step": progress.step, "held_out": measure()}
        progress.measured.append(entry)
        if not job.only_result or _is_result(progress, settings):
            checkpoint.export(out / name, objective, job.tokenizer, world)
            if job.only_result and world.rank == 0:
                checkpoint.remove_others(out, name)
        log.write(entry)
        if not job.only_result:
            checkpoint.save_state(out, objective, optimizer, dataclasses.asdict(progress), world)
    return _finish(out, settings, progress, rows=trained_on, log=log, world=world)


def optimizer_step(
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    lr: float,
    clip: float,
    kernel: str,
    world: World,
) -> tuple[Tensor, Tensor]:
    """One step on a batch: (summed NLL of all GPUs in nats, gradient norm before clipping), on the device.

    Args:
        objective: the model with its loss.
        optimizer: over its parameters.
        batch: the packs of every GPU.
        lr: learning rate of this step.
        clip: largest gradient norm; 0 = off.
        kernel: attention kernel, see `attention.choose`.
        world: the processes that train together.
    """
    # Sharded gradients are averaged over GPUs; the loss is a sum over all of them.
    scale = torch.tensor(world.size / batch.targets, device=world.device)
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    packs = batch.of_rank(world.rank, world.size)
    for k, pack in enumerate(packs):
        if world.mesh is not None:
            _reduce_after(objective, last=k == len(packs) - 1)
        loss, nll = objective(DevicePack(pack, kernel=kernel, device=world.device), scale)
        loss.backward()
        total += nll.sum(dtype=torch.float64)
    norm = clip_gradients(objective.parameters(), clip, world)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad()
    world.sum(total)
    return total, norm


def _reduce_after(objective: Any, *, last: bool) -> None:
    """GPUs synchronise once a step, not once a pack: one with longer documents in a pack delays no other."""
    objective.set_requires_gradient_sync(last)
    objective.set_reshard_after_backward(last)


def data_hash(rows: TrainingRows) -> str:
    """16 hex digits of everything that is trained on."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (rows.ids, rows.targets, rows.depth, rows.offsets, rows.classes):
        digest.update(part.tobytes())
    digest.update(json.dumps([rows.class_names, rows.clusters]).encode())
    return digest.hexdigest()


def _progress_of(out: Path, found: Any) -> _Progress:
    kinds = parameters(_Progress)
    check_entries(found, kinds, of=f"the progress of {out}")
    return _Progress(**{name: found[name] for name in kinds})


def _told(job: _Job) -> dict[str, Any]:
    """What settings.json holds: two trainings that differ in any of it are different ones."""
    base = job.base
    name = str(base) if isinstance(base, (str, Path)) else f"random {type(base).__name__}"
    return {"settings": json.loads(job.settings.to_json()), "data_hash": data_hash(job.rows), "base": name}


def _open(job: _Job) -> bool:
    """Whether the folder holds a state of this very training; another training there is refused."""
    out, wanted = job.out, _told(job)
    file = out / "settings.json"
    if file.exists():
        found = read_json(file, then="restore it, or train into a new folder")
        check_entries(found, {}, of=str(file))
        if found != wanted:
            differ = sorted(k for k in wanted if found.get(k) != wanted[k])
            raise DataError(f"{out} holds another training (its {differ} differ): name a new folder")
    return (out / "state").exists() or (out / ".state-old").exists()


def _begin(job: _Job) -> None:
    """Write settings.json, now that the base could be loaded: a folder is no training before that."""
    job.world.wait()
    if job.world.rank == 0:
        write_whole(job.out / "settings.json", json.dumps(_told(job), indent=2, sort_keys=True) + "\n")
    job.world.wait()


class _Log:
    """log.jsonl. A step's numbers are read one step later, so that the GPU never waits for the host."""

    def __init__(self, job: _Job, *, steps: int, kept: int) -> None:
        """Continue the log after step `kept`; what a kill cut off is left out."""
        self.file, self.writes = job.out / "log.jsonl", job.world.rank == 0
        self.steps, self.show = steps, job.show
        self.pending: tuple[dict[str, Any], Tensor, Tensor, int] | None = None
        if self.writes:
            entries = [entry for entry in self._entries() if entry["step"] <= kept]
            if (found := sum("loss" in entry for entry in entries)) != kept:
                raise DataError(
                    f"{self.file} has {found} of {kept} steps: restore it, or train into a new folder"
                )
            write_whole(self.file, "".join(f"{json.dumps(entry)}\n" for entry in entries))

    def step(self, progress: _Progress, batch: Batch, *, lr: float, nll: Tensor, norm: Tensor) -> None:
        entry = {"step": progress.step, "epoch": progress.epoch + 1, "lr": lr}
        entry |= {"targets": batch.targets, "ids": batch.ids}
        self.pending = (entry, nll, norm, batch.targets)

    def wait_for_last(self) -> None:
        if self.pending is None:
            return
        entry, nll, norm, targets = self.pending
        self.pending = None
        entry |= {"loss": nll.item() / targets, "grad_norm": float(norm)}
        if not math.isfinite(entry["loss"]):
            raise RunError(f"step {entry['step']}: the loss is {entry['loss']}: lower lr, or use fp32_master")
        self.write(entry)
        if self.writes:
            self.show(Step(entry["step"], self.steps, entry["epoch"], entry["loss"], entry["ids"]))

    def write(self, entry: dict[str, Any]) -> None:
        if self.writes:
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry) + "\n")

    def losses(self) -> tuple[float, ...]:
        """[steps] of every step so far."""
        return tuple(e["loss"] for e in self._entries() if "loss" in e)

    def _entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for line in self.file.read_text("utf-8", errors="replace").splitlines() if self.file.exists() else []:
            # A kill may have cut a line off.
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                entries += [entry] if isinstance(entry, dict) and "step" in entry else []
        return entries


def _chosen(progress: _Progress, settings: Settings) -> dict[str, Any]:
    """What `rule` takes of the checkpoints: the lowest finite NLL (the earliest of equals), or the last."""
    measured = progress.measured
    if settings.rule == "last" or any(entry["held_out"] is None for entry in measured):
        return measured[-1]
    finite = [entry for entry in measured if math.isfinite(entry["held_out"]["nll"])]
    return min(finite, key=lambda entry: entry["held_out"]["nll"], default=measured[-1])


def _is_result(progress: _Progress, settings: Settings) -> bool:
    """Whether the newest checkpoint is the one to keep, as far as this is known."""
    newest = progress.measured[-1]
    by_last = settings.rule == "last" or newest["held_out"] is None
    return progress.epoch == settings.epochs if by_last else _chosen(progress, settings) is newest


def _finish(
    out: Path, settings: Settings, progress: _Progress, *, rows: TrainingRows, log: _Log, world: World
) -> Trained:
    entry = _chosen(progress, settings)
    if world.rank == 0:
        choice = {"chosen": entry["checkpoint"], "rule": settings.rule, "from": progress.measured}
        write_whole(out / "choice.json", json.dumps(choice, indent=2) + "\n")
    world.wait()
    return Trained(
        chosen=out / entry["checkpoint"],
        losses=log.losses(),
        held_out=held_out.from_dict(entry["held_out"]),
        before=held_out.from_dict(progress.before),
        target_tokens=int(rows.targets.sum()),
        sequence_tokens=len(rows.ids),
        gpu_s=progress.gpu_s,
    )
