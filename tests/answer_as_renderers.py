"""Ids and masks by the package `renderers`, one JSON line a question; run by the Python that has it.

The first line has the tokenizers: family -> {"tokenizer": tokenizer.json, "eos": text}. A question has
family, settings of its renderer, messages and, for each message, whether it is trained on.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from typing import Any

from renderers import configs, create_renderer
from renderers.base import build_training_sample
from tokenizers import Tokenizer


class Bare:
    """What `renderers` asks of a tokenizer."""

    unk_token_id = None
    name_or_path = ""

    def __init__(self, text: str, eos: str) -> None:
        self.backend = Tokenizer.from_str(text)
        self.eos_token_id = self.backend.token_to_id(eos)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text."""
        return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Text of ids."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))

    def convert_tokens_to_ids(self, token: str) -> Any:
        """The id of a token."""
        return self.backend.token_to_id(token)

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        encoded = self.backend.encode(text, add_special_tokens=False)
        return {"input_ids": encoded.ids, "offset_mapping": encoded.offsets}


def main() -> None:
    """Answer until the input ends."""
    known = json.loads(sys.stdin.readline())
    kinds = {
        kind.model_fields["name"].default: kind
        for kind in vars(configs).values()
        if isinstance(kind, type) and "name" in getattr(kind, "model_fields", {})
    }

    @functools.cache
    def renderer(family: str, settings: str) -> Any:
        made = known[family]
        return create_renderer(Bare(made["tokenizer"], made["eos"]), kinds[family](**json.loads(settings)))

    for line in iter(sys.stdin.readline, ""):
        ask = json.loads(line)
        sample = build_training_sample(
            renderer(ask["family"], json.dumps(ask["settings"])),
            ask["messages"],
            message_loss_mask=ask["trained"],
            ensure_final_stop=True,
        )
        answer = {"ids": list(sample.token_ids), "targets": [bool(one) for one in sample.loss_mask]}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
