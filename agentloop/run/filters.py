"""Filters as small named functions: Psi on a rollout, Phi on a continuation, mixed outcomes at a context.

Verdicts of Psi and Phi are stored, whatever the recipe asks, so that one run can be re-read under another.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from agentloop.policies.by_name import named
from agentloop.run.episode import Episode, boundary
from agentloop.types import Author
from occupancy.record.errors import RunError
from occupancy.record.recipe import Recipe


def psi_verdicts(rollout: Episode, recipe: Recipe) -> dict[str, bool]:
    """Verdict of every prefix filter on a whole student rollout tau, and of the recipe's own."""
    verdicts = {
        "all": True,
        "without_success": rollout.reward is None or rollout.reward < recipe.success_at,
        "no_repetition": longest_repetition(rollout) < recipe.repetition,
    }
    return verdicts | ({recipe.psi: own_verdict(recipe.psi, rollout, recipe)} if ":" in recipe.psi else {})


def phi_verdicts(
    reward: float | None, recipe: Recipe, *, episode: Episode | None = None
) -> dict[str, bool | None]:
    """Verdict of every continuation filter, and of the recipe's own where the episode is given.

    None where a cap or an error left the reward unknown.
    """
    verdicts = {"all": True, "success": None if reward is None else reward >= recipe.success_at}
    if ":" in recipe.phi and episode is not None:
        verdicts[recipe.phi] = own_verdict(recipe.phi, episode, recipe)
    return verdicts


def mixed(rewards: Iterable[float | None], *, success_at: float) -> bool:
    """Whether some of the known rewards are successes and others are not."""
    return len({reward >= success_at for reward in rewards if reward is not None}) == 2


def own_verdict(name: str, episode: Episode, recipe: Recipe) -> bool:
    """The verdict of a filter that its user wrote: a function of the episode and the recipe."""
    with boundary(RunError, f"the filter {name!r}"):
        verdict = named(name)(episode, recipe)
        if verdict is None:
            raise RunError(f"the filter {name!r} returned None: expected True or False")
        return bool(verdict)


def longest_repetition(episode: Episode) -> int:
    """Most equal consecutive student turns."""
    texts = [turn.answer.text for turn in episode.history.turns if turn.author is Author.STUDENT]
    return max((len(list(group)) for _, group in groupby(texts)), default=0)
