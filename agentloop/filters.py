"""Filters as small named functions: Psi on a rollout, Phi on a continuation.

Every verdict is stored, whatever the recipe asks, so that one run can be re-read under another recipe.
"""

from __future__ import annotations

from itertools import groupby

from agentloop.episode import Played
from agentloop.types import Author
from occupancy.recipe import Recipe


def psi_verdicts(rollout: Played, recipe: Recipe) -> dict[str, bool]:
    """Verdict of every prefix filter on a whole student rollout tau."""
    return {
        "all": True,
        "without_success": rollout.reward is None or rollout.reward < recipe.success_at,
        "no_repetition": longest_repetition(rollout) < recipe.repetition,
    }


def phi_verdicts(reward: float | None, recipe: Recipe) -> dict[str, bool | None]:
    """Verdict of every continuation filter; None where a cap or an error left the reward unknown."""
    return {"all": True, "success": None if reward is None else reward >= recipe.success_at}


def longest_repetition(episode: Played) -> int:
    """Most equal consecutive student turns."""
    texts = [turn.answer.text for turn in episode.history.turns if turn.author is Author.STUDENT]
    return max((len(list(group)) for _, group in groupby(texts)), default=0)
