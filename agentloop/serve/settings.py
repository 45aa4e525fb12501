"""How a run is served; may change at a resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from occupancy.record.errors import InputError
from occupancy.record.specs import Positive, Range, check

HARNESS = "harness"
"""The environment of a served run, as `--env` would name it."""
Port = Annotated[int, Range(0, 65535)]


@dataclass(frozen=True)
class Serving:
    """How a run is served; may change at a resume."""

    host: str = "127.0.0.1"
    port: Port = 8333
    """0: a free one."""
    access_key: str = ""
    """What a harness gives as its API key; empty: nothing is asked for."""
    idle_s: Positive = 1800.0
    """Seconds in which an episode's harness makes its next call or gives the reward."""
    wait_s: Positive = 600.0
    """Seconds that a call waits for its turn before it is told to come again."""
    grace_s: Positive = 30.0
    """Seconds after a restart in which a harness goes on with its episodes; then a new episode of the same
    task is taken for one that its harness has given up."""
    tasks: Annotated[int, Range(0, 10**6)] = 0
    """Tasks after which no new one is taken, and whose end is the run's; 0: no limit."""
    most_open: Annotated[int, Range(1, 10**5)] = 4096
    """Episodes that are open at a time."""

    def __post_init__(self) -> None:
        check(self, of="serve")
        if self.host not in ("127.0.0.1", "::1", "localhost") and not self.access_key:
            raise InputError(
                f"--host {self.host} lets other machines in: name the environment variable of an access key "
                f"with --key-env, or listen on 127.0.0.1"
            )
