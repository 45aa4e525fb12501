"""Policies and environments by name, as the command line gives them.

alfworld, hotpotqa          a benchmark that comes with fewsteps
package.module:function     one of your own: a function that returns it
expert, scripted:lapse=.1   a policy that the environment's benchmark brings
vllm:FOLDER                 a model in this process (agentloop.policies.token_policy has its settings)
transformers:FOLDER         the same with transformers' continuous batching, on a CPU or a GPU
replay:RUN                  the turns of a recorded run, for tests and for runs that cost nothing
openai:MODEL@BASE_URL       a model behind an OpenAI-compatible server (settings: chat_spec.py)
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from agentloop.run.episode import boundary
from agentloop.types import Environments, OffersTools, Policy, Stops
from occupancy.record.errors import InputError

ENVIRONMENTS = {
    "alfworld": "agentloop.environments.alfworld.pool:open_alfworld",
    "hotpotqa": "agentloop.environments.hotpotqa.environment:open_hotpotqa",
}


def open_environments(name: str, /, **settings: Any) -> Environments:
    """The benchmark `name`, or what 'package.module:function' returns for these settings."""
    if ":" not in name and name not in ENVIRONMENTS:
        raise InputError(
            f"environment {name!r}: expected one of {', '.join(ENVIRONMENTS)}, or package.module:function"
        )
    function = named(ENVIRONMENTS.get(name, name))
    if name in ENVIRONMENTS:
        _check_settings(name, function, settings)
        opened: Environments = function(**settings)
        return opened
    with boundary(InputError, f"environment {name!r}"):
        _check_settings(name, function, settings)
        opened = function(**settings)
    lacking = [part for part in ("name", "version", "replay", "T_max", "open") if not hasattr(opened, part)]
    if lacking:
        raise InputError(
            f"{name!r} returned a {type(opened).__name__}, which lacks {', '.join(lacking)}: expected what "
            f"agentloop.types.Environments describes"
        )
    return opened


def open_policy(spec: str, environments: Environments) -> Policy:
    """The policy that `spec` names: the benchmark's own, or what 'package.module:function' returns."""
    policy = environments.policy(spec)
    if policy is not None:
        return policy
    if spec.startswith("openai:"):
        from agentloop.policies.chat import ChatPolicy
        from agentloop.policies.chat_spec import parse_chat

        tools = environments.tools if isinstance(environments, OffersTools) else ()
        stop = environments.stop if isinstance(environments, Stops) else ()
        return ChatPolicy(parse_chat(spec), tools=tools, stop=stop)
    if spec.partition(":")[0] in ("vllm", "transformers"):
        from agentloop.policies.token_policy import open_token_policy

        return open_token_policy(spec)
    if spec.startswith("replay:"):
        from agentloop.policies.recorded import open_recorded

        return open_recorded(spec.removeprefix("replay:"))
    if ":" not in spec:
        raise InputError(
            f"policy {spec!r}: {environments.name} has none of that name; expected one of "
            f"{', '.join(environments.policies)}, openai:MODEL@BASE_URL, vllm:FOLDER, transformers:FOLDER, "
            "replay:RUN, or "
            f"package.module:function"
        )
    with boundary(InputError, f"policy {spec!r}"):
        own: Policy = named(spec)()
    if not callable(own):
        raise InputError(
            f"{spec!r} returned {own!r}: expected a policy, an async function from Ask to Answer"
        )
    return own


def named(spec: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; InputError where there is none."""
    module, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:
        # An installed command does not look where it is run; last, so that nothing installed is hidden.
        sys.path.append(os.getcwd())
    try:
        with boundary(InputError, f"importing {module!r}"):
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except InputError as error:
        raise InputError(
            f"{spec!r} cannot be imported ({error}): expected package.module:function"
        ) from error
    if not callable(found):
        raise InputError(f"{spec!r} is a {type(found).__name__}: expected a function")
    return found


def _check_settings(name: str, function: Callable[..., Any], settings: dict[str, Any]) -> None:
    """InputError for a setting that `function` does not have, and for a text where it expects a number."""
    known = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return
    for setting, value in settings.items():
        if setting not in known:
            raise InputError(
                f"environment {name!r} has no setting {setting!r}: expected one of {', '.join(known)}"
            )
        if isinstance(value, str) and known[setting].annotation in (int, float, "int", "float"):
            raise InputError(f"environment {name!r}: {setting}={value!r}: expected a number")
