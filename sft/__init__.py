"""Supervised fine-tuning on exactly the teacher's tokens, on one GPU or many.

Example:
    >>> import sft
    >>> from agentloop.render import LengthRule, load_codec
    >>> settings = sft.preset("hotpotqa").replace(epochs=1)
    >>> codec = load_codec("PI_0")                         # tokenizer and chat template of the base
    >>> data = sft.load_rows(["BC_RUN"], codec, rule=LengthRule(settings.row_tokens))
    >>> done = sft.train(data.rows, base="PI_0", settings=settings, out="PI_1", tokenizer=codec.tokenizer)
    >>> done.chosen, done.losses[-1]                       # the checkpoint's folder; nats per target

`fewsteps train BC_RUN --base PI_0 --preset hotpotqa --out PI_1` does the same and records it in the run.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
