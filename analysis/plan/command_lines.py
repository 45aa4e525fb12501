"""Command lines that an answer prints: in whose environment, by whom, and which words are to be filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentloop.environments.task_specs import behind
from agentloop.policies.by_name import takes_slices
from agentloop.policies.chat_spec import served
from agentloop.run.collect import environment_of
from agentloop.serve.settings import HARNESS

CAPITALS = {
    "ENV": "an environment that `fewsteps collect` opens, such as a package.module:function of yours "
    "(docs/own_environment.md); an agent with a loop of its own is collected through `fewsteps serve` "
    "(docs/own_harness.md)",
    "STUDENT": "the model to train, such as openai:NAME@URL",
    "TEACHER": "the expensive model, in the same form",
    "SPLIT": "the environment's name of its tasks, such as train",
    "PI_0": "the checkpoint that training starts from",
    "PI_1": "the student trained on demonstrations: a folder for `train`, a policy such as "
    "vllm:PI_1/epoch-003 for `collect`",
    "PRESET": "settings of the training, hotpotqa, alfworld or terminal; --set changes each",
}
"""Words of printed commands that are for the user to fill in."""


def capitals(*commands: str) -> Iterator[str]:
    """What the words in capitals mean that these commands have; nothing where they have none."""
    words = {word for command in commands for word in re.split(r"[ :]", command)}
    told = [f"{word}: {meaning}" for word, meaning in CAPITALS.items() if word in words]
    if told:
        yield f"Fill in the words in capitals. {'; '.join(told)}."


def collecting(info: Mapping[str, Any], *, tasks: int | str) -> list[str]:
    """The words of the command that collects PILOT where a run was collected, with its policies.

    Args:
        info: the run's run.json; what it does not say is a word in capitals.
        tasks: how many.
    """
    env, env_set = environment_of(info)
    at: Mapping[str, Any] = info.get("made_with", {})
    who = []
    for role in ("student", "teacher"):
        who += [f"--{role}", served(str(info.get(role) or role.upper()), at.get(f"{role}_server", ""))]
    if env == HARNESS:
        return ["fewsteps", "serve", "PILOT", *who, "--tasks", str(tasks)]
    played = str(info.get("tasks", ""))
    split = played.partition(":")[0]
    split = "SPLIT" if split[:1] in ("", "@") else split
    spec = f"{split}:{tasks}"
    if isinstance(tasks, int) and takes_slices(env) and info.get("seed", 0) == 0:
        # What was played is paid for, and a student may have been trained on it.
        spec = str(behind(split, tasks, [played]))
    env = "ENV" if env in ("", "imported") else env
    where = ["--env", env, *(f"--env-set={name}={value}" for name, value in env_set.items())]
    return ["fewsteps", "collect", *where, *who, "--tasks", spec, "--out", "PILOT"]
