"""A training on the accepted traces of run folders, and the rows that record it in a run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentloop.render import Codec, LengthRule
from agentloop.render.traces import Rendering
from sft.rows import Classes, Data, load_rows, turn_rows
from sft.screen import Show, quiet
from sft.settings import Settings
from sft.train import Trained, data_hash, train


@dataclass(frozen=True, eq=False)
class OnRuns:
    """A training, its data, and what of it belongs into the tables of a run."""

    trained: Trained
    data: Data
    described: dict[str, Any]
    """What the data were: runs, hashes, r, counts of rendering."""
    held_out: dict[str, Any] | None
    """Held-out NLL of the chosen checkpoint, and `before` of the base."""
    row: dict[str, Any]
    """Of the table `trainings`."""

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Rows of the table `trained_turns`."""
        training_id = self.row["training_id"]
        return turn_rows(training_id, self.data, before=self.trained.before, after=self.trained.held_out)


def train_on_runs(
    runs: Sequence[str | Path],
    *,
    base: str,
    codec: Codec | Rendering,
    settings: Settings,
    out: str | Path,
    rule: LengthRule | None = None,
    classes: Classes | None = None,
    save_every: int = 0,
    only_result: bool = False,
    show: Show = quiet,
    hub: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> OnRuns:
    """Render the runs' traces and train on them; arguments as in `load_rows` and `train`.

    tell: called with a line about what is trained on, before the training begins.
    """
    data = load_rows(runs, codec, rule=rule, classes=classes)
    if data.counts.left_out:
        tell(data.counts.left_out)
    trained = train(
        data.rows,
        base=base,
        settings=settings,
        out=out,
        tokenizer=(codec.codec if isinstance(codec, Rendering) else codec).tokenizer,
        save_every=save_every,
        only_result=only_result,
        show=show,
        hub=hub,
    )
    described = {
        "runs": data.runs,
        "data_hash": data_hash(data.rows),
        "settings_hash": settings.hash,
        "r_tokens": data.r_tokens,
        "r_tasks": data.r_tasks,
        **dataclasses.asdict(data.counts),
    }
    held = None
    if trained.held_out is not None and trained.before is not None:
        held = _described(trained.held_out) | {"before": _described(trained.before)}
    # What settings.json has: trainings that differ in any of it are different ones, whatever their folder.
    one = blake2b(f"{base} {settings.hash} {described['data_hash']}".encode(), digest_size=8)
    row = {
        "training_id": f"{Path(out).name}-{one.hexdigest()}",
        "base": str(base),
        "data": json.dumps(described),
        "target_tokens": trained.target_tokens,
        "sequence_tokens": trained.sequence_tokens,
        "gpu_s": trained.gpu_s,
        "held_out_nll": json.dumps(held),
    }
    return OnRuns(trained, data, described, held, row)


def _described(held: Any) -> dict[str, Any]:
    """What the table `trainings` says of held-out turns; each of them is in `trained_turns`."""
    return {name: value for name, value in dataclasses.asdict(held).items() if name != "by_turn"}
