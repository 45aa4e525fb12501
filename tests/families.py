"""Small real tokenizers with the template shapes of real model families; trained here, downloaded never."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from agentloop.render import Codec, codec_of

TEMPLATES = Path(__file__).parent / "templates"
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# family: control tokens, words that are added but not special, bos, eos, pad
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str | None, str, str]] = {
    "chatml": (CHATML, (), None, "<|im_end|>", "<|im_end|>"),
    "thinking": (CHATML, WORDS, None, "<|im_end|>", "<|endoftext|>"),
    "tools": (CHATML, WORDS, None, "<|im_end|>", "<|endoftext|>"),
    "headers": (
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        (),
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|end_of_text|>",
    ),
    "turns": (
        ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        (),
        "<bos>",
        "<eos>",
        "<pad>",
    ),
    "speakers": (
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        (),
        None,
        "<|endoftext|>",
        "<|endoftext|>",
    ),
    "endoftext": (("<|endoftext|>",), (), "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
}
_CORPUS = [
    "go to desk 1\n\nYou arrive at desk 1. On the desk 1, you see a book 2, and a pen 3.\n",
    "You help. Answer the question: which of the two was born first? take book 2 from desk 1",
    'system\nuser\nassistant\n\n{"action": "stop"}   \n\n\n  <answer> Beijing </answer>\n\n',
] * 4


# Line ends stay together, so that a header's blank line is the same ids whatever follows it.
_LINES = r"\s*[\r\n]+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"


@functools.cache
def tokenizer_of(family: str) -> Any:
    """A fast tokenizer of about 400 entries with the family's template."""
    special, words, bos, eos, pad = FAMILIES[family]
    tokenizer = small_tokenizer(special, words, bos, eos, pad, lines=family == "headers")
    tokenizer.chat_template = (TEMPLATES / f"{family}.jinja").read_text("utf-8")
    return tokenizer


def small_tokenizer(
    special: Sequence[str], words: Sequence[str], bos: str | None, eos: str, pad: str, *, lines: bool = True
) -> Any:
    """A fast byte-level tokenizer of about 400 entries without a template.

    special  control tokens
    words    tokens that are added and not special
    lines    line ends stay together, as in Llama 3 and Qwen
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if lines:
        bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_LINES), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(s, special=True) for s in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_CORPUS, trainer)
    bpe.add_tokens([AddedToken(w, special=False) for w in words])
    if bos is not None:
        # As the families' own do: whoever encodes with special tokens gets one BOS too many.
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, bpe.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        clean_up_tokenization_spaces=False,
    )


@functools.cache
def codec(family: str) -> Codec:
    """Codec of a family's tokenizer."""
    return codec_of(tokenizer_of(family))
