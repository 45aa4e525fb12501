"""Traces to token ids: chat templates, spans with authors, targets, length rules.

render_trace         messages of one trace -> rows of ids and targets
load_codec           tokenizer and template of a saved model
traces.render_run    the accepted traces of a run folder, rendered
"""

from agentloop.render.codec import Codec
from agentloop.render.load import codec_of, load_codec
from agentloop.render.training_rows import render_trace
from agentloop.render.types import (
    LengthRule,
    Overflow,
    Rendered,
    Span,
    TraceMessage,
    TrainingRow,
    read_messages,
    write_messages,
)

__all__ = [
    "Codec",
    "LengthRule",
    "Overflow",
    "Rendered",
    "Span",
    "TraceMessage",
    "TrainingRow",
    "codec_of",
    "load_codec",
    "read_messages",
    "render_trace",
    "write_messages",
]
