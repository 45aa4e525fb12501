"""CPU of an ALFWorld episode through the adapter, against the same calls on textworld itself.

    FEWSTEPS_DATA=... python -m benchmarks alfworld_adapter --tasks valid_seen:12

Every game is loaded, reset and played with the same commands (those of the scripted expert, 50 turns at
most): by textworld alone, by textworld with our caches, and through a worker process (CPU of both processes).
Imports are left out. Then prefixes cut at random turns are replayed in a fresh process and every observation
is compared.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass

from agentloop.environments.alfworld.expert import scripted_expert
from agentloop.environments.alfworld.game import Player, install_caches
from agentloop.environments.alfworld.games import Catalogue
from agentloop.environments.alfworld.pool import AlfworldGame, open_alfworld
from agentloop.environments.alfworld.sources import find_source
from agentloop.environments.alfworld.worker import GAMES_KEPT
from agentloop.run.episode import EpisodeSettings, History, play, start
from agentloop.run.replay import replay
from agentloop.types import Author
from benchmarks.busy import cpu_s


@dataclass
class Cpu:
    """CPU seconds over all games."""

    load: float = 0.0
    reset: float = 0.0
    steps: float = 0.0
    n_steps: int = 0

    @property
    def total(self) -> float:
        return self.load + self.reset + self.steps


def bare(commands: dict[str, list[str]], *, cached: bool) -> Cpu:
    """textworld's own calls in this process, with the information that the adapter asks for."""
    if cached:
        install_caches(games=GAMES_KEPT)
    env = Player()._env
    catalogue = Catalogue(find_source(), grammar="2.1.1")
    cpu = Cpu()
    for game_id, played in commands.items():
        game = catalogue.game(game_id)
        t0 = time.process_time()
        env.load({"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem})
        t1 = time.process_time()
        env.reset()
        t2 = time.process_time()
        for command in played:
            env.step(command)
        t3 = time.process_time()
        cpu.load, cpu.reset, cpu.steps = cpu.load + t1 - t0, cpu.reset + t2 - t1, cpu.steps + t3 - t2
        cpu.n_steps += len(played)
    return cpu


def in_fresh_process(commands: dict[str, list[str]], how: str) -> Cpu:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "alfworld_adapter", "--only", how],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    return Cpu(**json.loads(run.stdout))


def used(pid: int) -> float:
    """CPU seconds of this process and of process `pid`."""
    return time.process_time() + cpu_s(pid)


async def recorded(spec: str) -> dict[str, History]:
    """The expert's episode in every game."""
    pool = open_alfworld(workers=1)
    try:
        histories = {}
        for task in pool.tasks(spec):
            async with pool.open(task) as env:
                how = EpisodeSettings(
                    author=Author.TEACHER, most=pool.T_max, T_max=pool.T_max, seeds=lambda t: t
                )
                played = await play(env, scripted_expert(), await start(env, seed=0), how)
                histories[task.task_id] = played.history
        return histories
    finally:
        await pool.close()


async def adapter(histories: dict[str, History], spec: str, *, expert: bool) -> Cpu:
    """The same episodes through one worker process, the expert asked at every turn or never."""
    pool = open_alfworld(workers=1)
    cpu = Cpu()
    try:
        tasks = pool.tasks(spec)
        async with pool.open(pool.tasks("valid_unseen:1")[0]) as env:  # imports are no cost of an episode
            pid = env.worker.pid
        for task in tasks:
            t0 = used(pid)
            async with pool.open(task) as env:
                t1 = used(pid)
                await env.reset(0)
                t2 = used(pid)
                await _steps(env, histories[task.task_id], expert=expert)
                t3 = used(pid)
            cpu.load, cpu.reset, cpu.steps = cpu.load + t1 - t0, cpu.reset + t2 - t1, cpu.steps + t3 - t2
            cpu.n_steps += len(histories[task.task_id].turns)
        return cpu
    finally:
        await pool.close()


async def _steps(env: AlfworldGame, history: History, *, expert: bool) -> None:
    for turn in history.turns:
        if expert:
            await env.ask("expert")
        await env.step(turn.answer.text)


async def replayed(histories: dict[str, History], spec: str, *, count: int) -> int:
    """Replay `count` prefixes cut at random turns, in a fresh process; turns compared."""
    rng = random.Random(0)
    pool = open_alfworld(workers=1)
    compared = 0
    try:
        tasks = pool.tasks(spec)
        for i in range(count):
            task = tasks[i % len(tasks)]
            history = histories[task.task_id]
            prefix = history.before(rng.randint(2, len(history.turns) + 1))
            async with pool.open(task) as env:
                await replay(env, prefix, seed=0)
            compared += len(prefix.turns)
        return compared
    finally:
        await pool.close()


def main(tasks: str = "valid_seen:12", prefixes: int = 20, only: str = "") -> None:
    if only:
        print(json.dumps(vars(bare(json.load(sys.stdin), cached=only == "cached"))))
        return
    histories = asyncio.run(recorded(tasks))
    commands = {game: [t.answer.text for t in h.turns] for game, h in histories.items()}
    rows = {
        "textworld alone": in_fresh_process(commands, "textworld"),
        "textworld with our caches": in_fresh_process(commands, "cached"),
        "adapter": asyncio.run(adapter(histories, tasks, expert=False)),
        "adapter, expert asked every turn": asyncio.run(adapter(histories, tasks, expert=True)),
    }
    base = rows["textworld alone"]
    print(f"{len(histories)} games, {base.n_steps} turns; CPU seconds")
    print("| | load a game | reset | step | whole episode | ratio |\n|---|---|---|---|---|---|")
    for name, cpu in rows.items():
        load, reset, whole = (x / len(histories) for x in (cpu.load, cpu.reset, cpu.total))
        step, ratio = cpu.steps / cpu.n_steps, cpu.total / base.total
        print(f"| {name} | {load:.2f} | {reset:.3f} | {step:.4f} | {whole:.2f} | {ratio:.2f} |")
    turns = asyncio.run(replayed(histories, tasks, count=prefixes))
    print(f"{prefixes} prefixes ({turns} turns) replayed in a fresh process: every observation the same")
