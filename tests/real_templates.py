"""Chat templates of real models, as TRL ships them, on small tokenizers with the models' control tokens."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from families import small_tokenizer

from agentloop.render import Codec, codec_of

QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LOOKED_AT = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CALLS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
ARGUMENTS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
GLM = ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
HARMONY = ("startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call")
LLAMA = ("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id", "eom_id")
GEMMA = ("tool", "tool_call", "tool_response", "turn", "channel", "image", "audio")
# DeepSeek writes its tokens with a wide bar and a lower block.
DEEPSEEK = tuple(f"<\uff5c{s}\uff5c>" for s in ("begin\u2581of\u2581sentence", "end\u2581of\u2581sentence"))
SPEAKERS = tuple(
    f"<\uff5c{s}\uff5c>".replace(" ", "\u2581")
    for s in (
        *("User", "Assistant", "tool outputs begin", "tool outputs end", "tool output begin"),
        *("tool output end", "tool calls begin", "tool calls end", "tool call begin", "tool call end"),
        "tool sep",
    )
)


@dataclass(frozen=True)
class Family:
    """A model family: its template's file, its tokens, and how it writes reasoning."""

    template: str
    special: tuple[str, ...]
    words: tuple[str, ...] = ()
    """Added tokens that its tokenizer does not call special."""
    bos: str | None = None
    eos: str = "<|im_end|>"
    thought: tuple[str, str] = ("<think>\n", "\n</think>\n\n")


_NEMOTRON = ("<unk>", "<s>", "</s>", *QWEN)
FAMILIES = {
    "qwen2.5": Family("qwen2_5", QWEN, CALLS[2:4]),
    "qwen3": Family("qwen3", QWEN, CALLS),
    "qwen3-vl": Family("qwen3_vl", QWEN + LOOKED_AT, CALLS),
    "qwen3.5": Family("qwen3_5_think", QWEN + LOOKED_AT, CALLS),
    "qwen3.6": Family("qwen3_6", QWEN + LOOKED_AT, CALLS),
    "qwen3.8": Family("qwen3_8", QWEN + LOOKED_AT, CALLS),
    "nemotron-3": Family("nemotron_3_nano", _NEMOTRON, CALLS, thought=("<think>\n", "\n</think>\n")),
    "nemotron-3-ultra": Family("nemotron_3_ultra", _NEMOTRON, CALLS, thought=("<think>\n", "</think>")),
    "nemotron-3.5": Family("nemotron_3_5_lightning", _NEMOTRON, CALLS, thought=("<think>\n", "</think>")),
    "glm-4.5": Family("glm4moe", GLM, CALLS + ARGUMENTS, eos=GLM[0], thought=("\n<think>", "</think>\n")),
    "deepseek-v3": Family("deepseekv3", DEEPSEEK, CALLS[:2] + SPEAKERS, DEEPSEEK[0], DEEPSEEK[1]),
    "llama-3": Family(
        "llama3_2", tuple(f"<|{s}|>" for s in LLAMA), bos="<|begin_of_text|>", eos="<|eot_id|>"
    ),
    "gpt-oss": Family("gptoss", tuple(f"<|{s}|>" for s in HARMONY), bos="<|startoftext|>", eos="<|return|>"),
    "gemma4": Family(
        "gemma4_v5",
        (
            *(
                "<pad>",
                "<eos>",
                "<bos>",
                "<unk>",
                "<|think|>",
                '<|"|>',
                "<|image|>",
                "<|audio|>",
                "<|video|>",
            ),
            *(t for s in GEMMA for t in (f"<|{s}>", f"<{s}|>")),
        ),
        bos="<bos>",
        eos="<turn|>",
    ),
}


@functools.cache
def real_tokenizer(name: str, thinking: bool = True) -> Any:
    """A small tokenizer with the family's template; `thinking` false: which is told not to reason."""
    family = FAMILIES[name]
    tokenizer = small_tokenizer(family.special, family.words, family.bos, family.eos, family.eos)
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.origin is not None
    template = (Path(found.origin).parent / "chat_templates" / f"{family.template}.jinja").read_text("utf-8")
    tokenizer.chat_template = template if thinking else "{% set enable_thinking = false %}" + template
    return tokenizer


@functools.cache
def real_codec(name: str, thinking: bool = True) -> Codec:
    """Its codec."""
    return codec_of(real_tokenizer(name, thinking))
