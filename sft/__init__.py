"""Supervised fine-tuning on exactly the teacher's tokens, on one GPU or many."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
