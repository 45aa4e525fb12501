"""Data sets for verl's SFT trainer, copied beside exports: its own trains on every assistant turn.

data.custom_cls.path=verl_dataset.py data.custom_cls.name=Messages (rows of `--format verl`), or Ids (rows of
`--format tokens`, for every template).
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch.utils.data import Dataset
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class Messages(MultiTurnSFTDataset):
    """verl's data set of messages, in which those with `loss_mask` 0 are not trained on."""

    def _process_single_message(self, index: int, message: Any, *args: Any, **named: Any) -> Any:
        ids, mask, *rest = super()._process_single_message(index, message, *args, **named)
        return ids, mask * int(message["loss_mask"]), *rest


class Ids(Dataset):
    """Rows of `input_ids` and `labels` as they are; a row that is too long is an error."""

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
        self.rows = rows[: max_samples if max_samples > 0 else None]
        self.length = int(config.get("max_length", 1024))
        self.padded = config.get("pad_mode", "right") == "right"
        self.pad = tokenizer.pad_token_id or 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = self.rows.iloc[item]
        ids = torch.tensor(row["input_ids"], dtype=torch.long)
        mask = torch.tensor(row["labels"] != -100, dtype=torch.long)
        extra = self.length - len(ids)
        if extra < 0:
            raise ValueError(f"row {item} has {len(ids)} ids: raise data.max_length={self.length}")
        fields = {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}
        if not self.padded:
            return fields
        fields["attention_mask"] = torch.ones_like(ids)
        pads = {name: self.pad if name == "input_ids" else 0 for name in fields}
        return {n: torch.nn.functional.pad(f, (0, extra), value=pads[n]) for n, f in fields.items()}
