"""Games with Gymnasium's reset and step, without Gymnasium."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np


class Guess:
    """Guess a number from 0 to 9 by its number; a cut after six turns."""

    class action_space:
        n, start = 10, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.number, self.turns = random.Random(seed).randrange(10), 0
        return {"hint": "Guess."}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in range(10)
        self.turns += 1
        hint = "low" if action < self.number else "high" if action > self.number else "right"
        return {"hint": hint}, float(hint == "right"), hint == "right", self.turns == 6, {}


class Words(Guess):
    """The same with a word for an action, and an observation that is no text."""

    action_space = None

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(len(action))
        return {"hint": observation["hint"], "seen": np.arange(2)}, *rest

    def close(self) -> None:
        raise RuntimeError("it does not close")


class Random(Guess):
    def reset(self, **given: Any) -> Any:
        return {"hint": f"Guess {random.random()}."}, {}


class Slow(Guess):
    """Its calls take a while, and have to be of one thread."""

    def __init__(self) -> None:
        self.thread, self.at_work = threading.get_ident(), False

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        assert not self.at_work
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        assert self.thread == threading.get_ident()
        self.at_work = True
        time.sleep(0.1)
        self.at_work = False
        return super().step(action)
