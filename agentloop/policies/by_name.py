"""Policies and environments by name, as the command line gives them.

alfworld, hotpotqa, terminal  a benchmark that comes with fewsteps
openenv:http://HOST:PORT    the environments of an OpenEnv server
gym:package.module:function  what steps like Gymnasium's environments, in text
package.module:function     one of your own: a function that returns it
expert, scripted:lapse=.1   a policy that the environment's benchmark brings
vllm:FOLDER                 a model in this process (agentloop.policies.token_policy has its settings)
transformers:FOLDER         the same with transformers' continuous batching, on a CPU or a GPU
replay:RUN                  the turns of a recorded run, for tests and for runs that cost nothing
openai:MODEL@BASE_URL       a model behind an OpenAI-compatible server (settings: chat_spec.py)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from agentloop.run.episode import boundary
from agentloop.serve.settings import HARNESS
from agentloop.types import Answer, Ask, Environments, OffersTools, Policy, PolicyFailed, Stops
from occupancy.record.errors import InputError
from occupancy.record.specs import parameters, settings

if TYPE_CHECKING:
    from agentloop.policies.one_engine import OneEngine
    from agentloop.policies.token_policy import TokenPolicy, TokenSpec

ENVIRONMENTS = {
    "alfworld": "agentloop.environments.alfworld.pool:open_alfworld",
    "terminal": "agentloop.environments.terminal.benchmark:open_terminal",
    "hotpotqa": "agentloop.environments.hotpotqa.environment:open_hotpotqa",
}

WITH_A_PLACE = {
    "openenv": "agentloop.environments.openenv:OpenEnvServer",
    "gym": "agentloop.environments.gym_text:TextGyms",
}
"""Kinds of benchmarks, whose names are followed by a server's address or a function."""


def takes_slices(name: str) -> bool:
    """Whether the tasks of a benchmark are named split:A-B, as all of ours are; others need not know that."""
    return name in ENVIRONMENTS or name.partition(":")[0] in WITH_A_PLACE


def open_environments(name: str, /, **given: Any) -> Environments:
    """The benchmark `name`, or what 'package.module:function' returns for these settings; texts are read."""
    if name == HARNESS:
        raise InputError(
            f"environment {name!r}: a harness of your own plays its episodes, so `fewsteps serve RUN` "
            f"collects them, with the same --plan or recipe"
        )
    if ":" not in name and name not in ENVIRONMENTS:
        raise InputError(
            f"environment {name!r}: expected one of {', '.join(ENVIRONMENTS)}, "
            f"openenv:URL, gym:package.module:function, or package.module:function"
        )
    function, place = _opener(name)
    of = f"environment {name!r}"
    texts = (f"{setting}={value}" for setting, value in given.items())
    typed = settings(function, texts, of=of, but=list(parameters(function))[: len(place)])
    typed |= {setting: value for setting, value in given.items() if not isinstance(value, str)}
    if name in ENVIRONMENTS or place:
        opened: Environments = function(*place, **typed)
        return opened
    opened = called(function, of, **typed)
    if lacking := lacks(opened, Environments):
        raise InputError(
            f"{name!r} returned a {type(opened).__name__}, which lacks {', '.join(lacking)}: expected what "
            f"agentloop.types.Environments describes; see docs/own_environment.md"
        )
    return opened


def _opener(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """What opens a benchmark, and what follows its kind: a server's address or a function."""
    kind, _, place = name.partition(":")
    if kind in WITH_A_PLACE:
        return named(WITH_A_PLACE[kind]), (place,)
    return named(ENVIRONMENTS.get(name, name)), ()


def takes(name: str, setting: str) -> bool:
    """Whether the environment `name` has that setting."""
    known = parameters(_opener(name)[0]) if ":" in name or name in ENVIRONMENTS else {}
    return setting in known or "**" in known


def open_policy(spec: str, environments: Environments, *, engine: OneEngine | None = None) -> Policy:
    """The policy that `spec` names: the benchmark's own, or what 'package.module:function' returns.

    spec    empty: no policy, of a student in a run of demonstrations alone
    engine  serves every model in this process that is opened with it, one after another
    """
    policy = environments.policy(spec) if spec else nobody
    if policy is not None:
        return policy
    if ":" not in spec:
        names = *environments.policies, "openai:MODEL@BASE_URL", "vllm:FOLDER", "transformers:FOLDER"
        raise InputError(
            f"policy {spec!r}: {environments.name} has none of that name; expected {', '.join(names)}, "
            f"replay:RUN, or package.module:function"
        )
    tools = environments.tools if isinstance(environments, OffersTools) else ()
    stop = environments.stop if isinstance(environments, Stops) else ()
    return open_model(spec, tools=tools, stop=stop, engine=engine)


async def nobody(ask: Ask) -> Answer:
    """The student of a run in which no student acts."""
    raise PolicyFailed("no student was named")


def open_model(
    spec: str,
    *,
    tools: Sequence[dict[str, Any]] = (),
    stop: Sequence[str] = (),
    engine: OneEngine | None = None,
) -> Policy:
    """The policy that `spec` names, which no benchmark brings; `engine` as in `open_policy`.

    tools   descriptions that a server is given
    stop    strings at which a server ends a turn
    """
    kind, _, rest = spec.partition(":")
    if kind == "openai":
        from agentloop.policies.chat import ChatPolicy
        from agentloop.policies.chat_spec import parse_chat

        return ChatPolicy(parse_chat(spec), tools=tools, stop=stop)
    if kind in ("vllm", "transformers"):
        from agentloop.policies.token_policy import parse_tokens

        return token_policy(kind, parse_tokens(rest), engine=engine)
    if kind == "replay":
        from agentloop.policies.recorded import open_recorded

        return open_recorded(rest)
    function = named(spec)
    own: Policy = function if iscoroutinefunction(function) else called(function, f"policy {spec!r}")
    if not callable(own):
        raise InputError(
            f"{spec!r} returned {own!r}: expected a policy, an async function from Ask to Answer"
        )
    return own


def token_policy(kind: str, spec: TokenSpec, *, engine: OneEngine | None = None) -> TokenPolicy:
    """The policy of a model in this process; kind is vllm or transformers, `engine` as in `open_policy`."""
    from agentloop.policies.token_policy import Opening, TokenPolicy
    from agentloop.render import load_codec

    opening: Opening
    if kind == "vllm":
        from agentloop.policies.vllm_engine import open_vllm as opening
    else:
        from agentloop.policies.transformers_engine import open_transformers as opening
    codec = load_codec(spec.folder, hub=spec.hub)
    return TokenPolicy(spec, codec, opening if engine is None else engine.serve(spec, codec, opening))


def named(spec: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; InputError where there is none."""
    module, _, name = spec.partition(":")
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


def called(function: Callable[..., Any], what: str, **given: Any) -> Any:
    """What a user's function returns; InputError with its file and line where it raises."""
    with boundary(InputError, what):
        return function(**given)


def lacks(thing: object, protocol: type) -> list[str]:
    """Members without a default that `protocol` declares and `thing` does not have."""
    declared = [name for name in protocol.__annotations__ if name not in vars(protocol)]
    methods = [name for name, value in vars(protocol).items() if callable(value)]
    return [n for n in (*declared, *methods) if not n.startswith("_") and not hasattr(thing, n)]
