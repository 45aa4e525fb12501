"""Policies and environments by name, as the command line gives them.

alfworld                    a benchmark that comes with fewsteps
package.module:function     one of your own: a function that returns it
expert, scripted:lapse=.1   a policy that the environment's benchmark brings
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from agentloop.types import Environments, Policy
from occupancy.errors import InputError

ENVIRONMENTS = {"alfworld": "agentloop.alfworld.pool:open_alfworld"}


def open_environments(name: str, **settings: Any) -> Environments:
    """The benchmark `name`, or what 'package.module:function' returns for these settings."""
    if ":" not in name and name not in ENVIRONMENTS:
        raise InputError(
            f"environment {name!r}: expected one of {', '.join(ENVIRONMENTS)}, or package.module:function"
        )
    environments: Environments = _function(ENVIRONMENTS.get(name, name))(**settings)
    return environments


def open_policy(spec: str, environments: Environments) -> Policy:
    """The policy that `spec` names: the benchmark's own, or what 'package.module:function' returns."""
    policy = environments.policy(spec)
    if policy is not None:
        return policy
    if ":" not in spec:
        raise InputError(
            f"policy {spec!r}: {environments.name} has none of that name; expected one of "
            f"{', '.join(environments.policies)}, or package.module:function"
        )
    own: Policy = _function(spec)()
    return own


def _function(spec: str) -> Callable[..., Any]:
    module, _, name = spec.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{spec!r} cannot be imported ({error}): expected package.module:function"
        ) from error
    return found
