"""Worlds whose best K is known, and the planner that predicts it from a pilot; names load when first used."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
