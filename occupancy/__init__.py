"""Trajectories, recipes and what can be estimated from them; names load when they are first used."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
