"""Whether our caches change one observation: python -m benchmarks alfworld_observations [--tasks valid_seen]

The scripted expert plays every game in a process with the caches of alfworld/game.py; the same commands are
played in another process without them. Observations, commands that do something, and wins are compared turn
by turn; the CPU seconds of a step in both are reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentloop.types import PolicyFailed

TURNS = 50


def play(tasks: str, *, cached: bool, script: dict[str, list[str]] | None) -> dict[str, Any]:
    """Every game once: the expert's commands, or those of `script`; what was seen, and what it cost."""
    from agentloop.environments.alfworld.game import Player, install_caches
    from agentloop.environments.alfworld.pool import open_alfworld

    if cached:
        install_caches(games=3)
    worlds, player = open_alfworld(), Player()
    seen: dict[str, Any] = {}
    cpu = {"load": 0.0, "reset": 0.0, "step": 0.0}

    def timed(what: str, *arguments: Any) -> Any:
        began = time.process_time()
        result = getattr(player, what)(*arguments)
        cpu[what] += time.process_time() - began
        return result

    for task in worlds.tasks(tasks):
        timed("load", worlds._catalogue.game(task.task_id))
        first = timed("reset", 0)
        turns = [["", first.observation, player.ask("admissible"), False]]
        commands = iter(script[task.task_id]) if script is not None else None
        for _ in range(TURNS):
            try:
                command = player.ask("expert") if commands is None else next(commands, None)
            except PolicyFailed:
                command = None
            if command is None:
                break
            reply = timed("step", command)
            turns.append([command, reply.observation, player.ask("admissible"), reply.done])
            if reply.done:
                break
        seen[task.task_id] = turns
    steps = sum(len(turns) - 1 for turns in seen.values())
    return {"seen": seen, "steps": steps, "cpu": cpu}


def compare(tasks: str, folder: Path) -> dict[str, Any]:
    """Play both, compare every turn."""
    found = {}
    for name, more in (("cached", []), ("plain", ["--script", str(folder / "cached.json")])):
        command = [sys.executable, "-m", "benchmarks", "alfworld_observations", "--tasks", tasks]
        with (folder / f"{name}.json").open("w") as out:
            subprocess.run([*command, "--side", name, *more], stdout=out, check=True)
        found[name] = json.loads((folder / f"{name}.json").read_text())
    a, b = found["cached"]["seen"], found["plain"]["seen"]
    assert a.keys() == b.keys()
    differ = [
        f"{game} turn {t}"
        for game in a
        for t, pair in enumerate(zip(a[game], b[game], strict=True))
        if pair[0] != pair[1]
    ]
    games, steps = len(a), found["plain"]["steps"]
    step = {name: found[name]["cpu"]["step"] / steps for name in found}
    return {
        "games": games,
        "won": sum(turns[-1][3] for turns in a.values()),
        "steps": steps,
        "different": differ,
        "step_cpu_s": step,
        "ratio": step["cached"] / step["plain"],
        "load_cpu_s": {name: found[name]["cpu"]["load"] / games for name in found},
        "reset_cpu_s": {name: found[name]["cpu"]["reset"] / games for name in found},
    }


def main(tasks: str = "valid_seen", side: str = "", script: Path | None = None) -> None:
    if not side:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(compare(tasks, Path(place)), indent=2))
        return
    seen = json.loads(script.read_text())["seen"] if script else {}
    commands = {game: [turn[0] for turn in turns[1:]] for game, turns in seen.items()}
    print(json.dumps(play(tasks, cached=side == "cached", script=commands or None)))
