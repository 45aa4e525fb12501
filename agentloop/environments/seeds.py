"""What environments share whose tasks are seeds and whose steps have rewards: OpenEnv, Gymnasium."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentloop.environments.task_specs import parse_spec
from agentloop.types import EnvironmentFailed, Task
from occupancy.record.errors import InputError
from occupancy.record.specs import check

Which = Literal["last", "sum", "max"]


def seed_tasks(spec: str) -> list[Task]:
    """Seeds 0 to N - 1 for `seeds:N`, A to B - 1 for `seeds:A-B`."""
    part = parse_spec(spec, splits=("seeds",))
    if part.stop is None:
        raise InputError(f"--tasks {spec}: expected seeds:N or seeds:A-B, since seeds have no end")
    return [Task(f"seeds/{n}", f"seeds/{n}", "seeds") for n in range(part.start, part.stop)]


def seed_of_task(task: Task) -> int:
    """The seed that a task is."""
    return int(task.task_id.removeprefix("seeds/"))


def shown(observation: Any) -> str:
    """An observation as text: its one text, or JSON."""
    if isinstance(observation, dict) and len(observation) == 1:
        (only,) = observation.values()
        if isinstance(only, str):
            return only
    if isinstance(observation, str):
        return observation
    return json.dumps(observation, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays as lists, other things as their texts."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


@dataclass(frozen=True)
class Scale:
    """An episode's R from its steps' rewards."""

    reward: Which = "last"
    """What of the steps' rewards counts."""
    reward_at_0: float = 0.0
    """The reward that is R = 0."""
    reward_at_1: float = 1.0
    """The reward that is R = 1."""

    def __post_init__(self) -> None:
        check(self, of="rewards")
        if self.reward_at_0 == self.reward_at_1:
            raise InputError(
                f"reward_at_0=reward_at_1={self.reward_at_0:g}: expected two rewards, for R = 0 and R = 1"
            )

    def R(self, rewards: Sequence[float]) -> float:
        """R of an episode that is over; EnvironmentFailed where no step had a reward."""
        if not rewards:
            raise EnvironmentFailed("the episode is done and no step has had a reward")
        chosen = {"last": rewards[-1], "sum": sum(rewards), "max": max(rewards)}[self.reward]
        return (chosen - self.reward_at_0) / (self.reward_at_1 - self.reward_at_0)
