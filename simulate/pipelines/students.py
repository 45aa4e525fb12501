"""What a simulated student learns from a data set: a policy over contexts, from the teacher's turns.

Tabular    each context on its own: coverage only, with a learning curve
LogLinear  softmax over features, trained by gradient steps: what is learnt in one context moves others, and
           tokens spent on one context are steps not taken for another
"""

from __future__ import annotations

from dataclasses import dataclass

from occupancy.record.errors import InputError


@dataclass(frozen=True)
class Tabular:
    """pi(x) = (1 - g) pi_0(x) + g * (teacher's turns seen in x), with g = 1 - (1 + n_x / kappa)^-alpha.

    With alpha = 1, g = n / (n + kappa): the posterior mean under a Dirichlet prior of weight kappa at pi_0.
    """

    kappa: float = 1.5
    """Turns in a context after which half of it is learnt (alpha = 1)."""
    alpha: float = 1.0
    """Exponent of the learning curve; smaller learns the rest more slowly."""

    def __post_init__(self) -> None:
        if not self.kappa > 0 or not self.alpha > 0:
            raise InputError(f"kappa={self.kappa}, alpha={self.alpha}: expected positive numbers")


@dataclass(frozen=True)
class LogLinear:
    """pi(x) = softmax(log pi_0(x) + W' phi(x)), W from 0 by full-batch gradient steps.

    The loss is the mean over target tokens of the negative log likelihood, as in fine-tuning, so a context's
    share of the tokens is its share of every step: what is added to the data dilutes the rest.
    """

    steps: int = 200
    """Gradient steps of a training (epochs, as the batch is the data set)."""
    rate: float = 20.0
    """Step size on the token-mean loss, for features of norm 1."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.rate > 0:
            raise InputError(
                f"steps={self.steps}, rate={self.rate}: expected at least 1 step, a positive rate"
            )


Student = Tabular | LogLinear
