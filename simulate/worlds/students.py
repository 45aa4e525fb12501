"""What a student learns from a data set: a policy over contexts, from the teacher's turns in them.

Tabular    every context on its own: only coverage counts, and there is a learning curve
LogLinear  softmax over features, trained by gradient steps: what is learned in one context moves the others,
           tokens in one context take weight from the rest, and few features cap what can be learned at all
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy.record.specs import Few, Fraction, NotNegative, Positive, check
from occupancy.record.types import Float64

LEAST_CHANCE = 1e-9
"""Floor under a probability before its logarithm is taken."""


@dataclass(frozen=True)
class Tabular:
    """pi(x) = (1 - g) pi_0(x) + g * (teacher's turns seen in x), with g = 1 - (1 + n_x / kappa)^-alpha.

    With alpha = 1, g = n / (n + kappa): the posterior mean under a Dirichlet prior of weight kappa at pi_0.
    """

    kappa: Positive = 1.5
    """Turns in a context after which half of it is learned (alpha = 1)."""
    alpha: Positive = 1.0
    """Exponent of the learning curve; smaller learns the rest more slowly."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def in_tokens(self) -> bool:
        """Whether data are counted in tokens; here in turns."""
        return False

    def learn(self, base: Float64, features: Float64, data: Float64) -> Float64:
        """[X, A] the policy after training on data [X, A] of turns, from `base` [X, A]."""
        n = data.sum(axis=1, keepdims=True)
        g = 1.0 - (1.0 + n / self.kappa) ** -self.alpha
        return np.asarray((1.0 - g) * base + g * data / np.maximum(n, 1.0))


@dataclass(frozen=True)
class LogLinear:
    """pi(x) = softmax(log pi_0(x) + W' phi(x)), W from 0 by full-batch gradient steps with momentum.

    The loss is the mean over target tokens of the negative log likelihood, as in fine-tuning, so a context's
    fraction of the tokens is its weight in every step. With fewer features than contexts no amount of data
    makes the student the teacher: it saturates.
    """

    steps: Few = 200
    """Gradient steps of a training (epochs, as the batch is the data set)."""
    rate: Positive = 20.0
    """Step size on the token-mean loss, for features of norm 1."""
    momentum: Fraction = 0.0
    """Fraction of the last step that the next one keeps."""
    ridge: NotNegative = 0.0
    """Weight of the penalty ridge / (2 tokens) |W|^2, tokens: it matters while data are few."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def in_tokens(self) -> bool:
        """Whether data are counted in tokens."""
        return True

    def learn(self, base: Float64, features: Float64, data: Float64) -> Float64:
        """[X, A] the policy after training on data [X, A] of tokens, from `base` [X, A]; features [X, D]."""
        prior = np.log(np.maximum(base, LEAST_CHANCE))
        total = data.sum()
        if not total:
            return np.asarray(softmax(prior))
        # Single precision: half the time, and what it rounds is far below the noise of the data.
        rows, single = np.flatnonzero(data.sum(axis=1)), np.float32
        phi, known, target = features[rows].astype(single), prior[rows].astype(single), data[rows] / total
        target = target.astype(single)
        mass, across = target.sum(axis=1, keepdims=True), np.ascontiguousarray(phi.T)
        W = np.zeros((features.shape[1], base.shape[1]), single)
        speed, penalty = W.copy(), single(self.ridge / total)
        for _ in range(self.steps):
            slope = across @ (mass * softmax(known + phi @ W) - target) + penalty * W
            speed = single(self.momentum) * speed - single(self.rate) * slope
            W += speed
        return np.asarray(softmax(prior + features @ W))


Student = Tabular | LogLinear


def softmax(logits: Any) -> Any:
    """[.., A] probabilities of logits [.., A], in their precision."""
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    return odds
