"""Hand-over to reinforcement learning: TRL's GRPOTrainer over our environments, from an SFT checkpoint.

    python -m sft.grpo --base OUT/epoch-003 --environment alfworld --tasks train:64 --out GRPO

The trainer is TRL's; ours is the rollout: a group of episodes is played with whatever engine TRL was given
(its own generation, or vLLM with `--set use_vllm=true`), token ids in, token ids out. Only sampled ids have
a gradient, by TRL's `env_mask`. The defaults are the paper's follow-up: lr 1e-6, 16 tasks a step in groups
of 8, 4 epochs. Several processes play different numbers of turns: TRL's vLLM server, which answers all of
them at once, would wait for ever; use vllm_mode="colocate".
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.policies.prompt_ids import PromptIds
from agentloop.policies.token_policy import Sampled, read_sampled
from agentloop.render import Codec
from agentloop.run.episode import Episode, EpisodeSettings, play, start
from agentloop.run.types import seed_of
from agentloop.types import (
    Answer,
    Ask,
    Author,
    ContextOverflow,
    EnvironmentFailed,
    Environments,
    Task,
    Traits,
)
from occupancy.record.errors import DataError, InputError, MissingExtra
from occupancy.record.show import Parser, command_line

LR, TASKS, GROUP, EPOCHS = 1e-6, 16, 8, 4

Generate = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""Prompts to sampled ids, and their log probabilities where the engine gives them."""


@dataclass
class Trajectory:
    """An episode as one sequence of ids; `mask` is 1 for ids that the policy sampled."""

    prompt: list[int] = field(default_factory=list)
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add_turn(self, prompt: list[int], sampled: list[int], logprobs: Sequence[float]) -> None:
        """Append what was shown since the last turn, and the turn."""
        so_far = self.prompt + self.completion
        if prompt[: len(so_far)] != so_far:
            raise InputError(
                "the chat template rewrites history, so that an episode is not one sequence of ids: GRPO "
                "needs a template that keeps every turn as it was sampled"
            )
        if not self.completion:
            self.prompt = list(prompt)
        else:
            self._append(prompt[len(so_far) :], 0, None)
        self._append(sampled, 1, logprobs)

    def _append(self, ids: list[int], sampled: int, logprobs: Sequence[float] | None) -> None:
        self.completion += ids
        self.mask += [sampled] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


class Lockstep:
    """Collects turns until every running episode waits for one, then samples them in one batch."""

    def __init__(self, generate: Generate, running: int) -> None:
        self._generate, self._running = generate, running
        self._waiting: list[tuple[list[int], asyncio.Future[tuple[list[int], list[float]]]]] = []

    async def sample(self, prompt: list[int]) -> tuple[list[int], list[float]]:
        """Ids of one turn, and their log probabilities (empty where the engine gives none)."""
        turn: asyncio.Future[tuple[list[int], list[float]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, turn))
        self._go()
        return await turn

    def leave(self) -> None:
        """One episode is over."""
        self._running -= 1
        self._go()

    def _go(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        waiting, self._waiting = self._waiting, []
        sampled, logprobs = self._generate([prompt for prompt, _ in waiting])
        for k, (_, turn) in enumerate(waiting):
            turn.set_result((list(sampled[k]), [] if logprobs is None else list(logprobs[k])))


class Learner:
    """The policy that is trained, for one episode."""

    traits = Traits(gives=frozenset({"text", "usage", "token_ids"}))

    def __init__(self, codec: Codec, together: Lockstep, window: int) -> None:
        self._codec, self._together, self._window = codec, together, window
        self._prompts = PromptIds(codec)
        self.sequence = Trajectory()

    async def __call__(self, ask: Ask) -> Answer:
        """One turn; ContextOverflow where its prompt leaves no room."""
        prompt = self._prompts.of(ask)
        if len(prompt) >= self._window:
            raise ContextOverflow(f"{len(prompt)} prompt tokens do not fit {self._window}")
        ids, logprobs = await self._together.sample(prompt)
        self.sequence.add_turn(prompt, ids, logprobs)
        return read_sampled(Sampled(tuple(ids), None), self._codec, prompt=len(prompt), counter="grpo")


class Rollouts:
    """TRL's `rollout_func`: task ids in, episodes with rewards out."""

    def __init__(
        self,
        environments: Environments,
        tasks: Mapping[str, Task],
        codec: Codec,
        *,
        window: int,
        seed: int = 0,
    ) -> None:
        self._environments, self._tasks, self._codec = environments, tasks, codec
        self._window, self._seed, self._calls = window, seed, 0
        # Environments keep workers between calls, which belong to one event loop.
        self._loop = asyncio.Runner()

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """One episode a prompt; TRL has repeated every task for its group."""
        return self.play(prompts, functools.partial(sample, trainer))

    def play(self, prompts: Sequence[str], generate: Generate) -> dict[str, Any]:
        """The same with any engine."""
        self._calls += 1
        ended = self._loop.run(self._all([self._tasks[p] for p in prompts], generate))
        sequences = [sequence for sequence, _ in ended]
        closing = self._codec.closing_ids[-1]
        for sequence in sequences:
            if not sequence.completion:
                # TRL needs an id; this one has no gradient.
                sequence.prompt, sequence.completion = [closing], [closing]
                sequence.mask, sequence.logprobs = [0], [0.0]
        known = all(len(s.logprobs) == len(s.completion) for s in sequences)
        return {
            "prompt_ids": [s.prompt for s in sequences],
            "completion_ids": [s.completion for s in sequences],
            "logprobs": [s.logprobs for s in sequences] if known else None,
            "env_mask": [s.mask for s in sequences],
            "R": [played.reward if played is not None else None for _, played in ended],
            "status": [str(played.status) if played is not None else "not opened" for _, played in ended],
            "turns": [played.length if played is not None else 0 for _, played in ended],
        }

    async def _all(
        self, tasks: Sequence[Task], generate: Generate
    ) -> list[tuple[Trajectory, Episode | None]]:
        if len(tasks) > self._environments.capacity:
            # Fewer open tasks than episodes would wait for each other's turns for ever.
            half = len(tasks) // 2
            return [*await self._all(tasks[:half], generate), *await self._all(tasks[half:], generate)]
        together = Lockstep(generate, len(tasks))
        return await asyncio.gather(*(self._one(task, k, together) for k, task in enumerate(tasks)))

    async def _one(self, task: Task, k: int, together: Lockstep) -> tuple[Trajectory, Episode | None]:
        learner = Learner(self._codec, together, self._window)
        # One group's episodes start from the same state: the seed is the task's.
        seed = seed_of(self._seed, task.task_id, "environment")
        how = EpisodeSettings(
            Author.STUDENT,
            self._environments.T_max,
            self._environments.T_max,
            lambda t: seed_of(self._seed, task.task_id, self._calls, k, t),
            f"{task.task_id}#{self._calls}-{k}",
        )
        played = None
        try:
            async with self._environments.open(task) as env:
                played = await play(env, learner, await start(env, seed=seed), how)
        except EnvironmentFailed:
            # Counted by its missing reward; the group goes on.
            played = None
        finally:
            together.leave()
        return learner.sequence, played

    def close(self) -> None:
        """End the environments and their loop."""
        self._loop.run(self._environments.close())
        self._loop.close()


def sample(trainer: Any, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
    """Sampled ids of each prompt up to and with the closing token, and their log probabilities from vLLM."""
    if trainer.use_vllm:
        # TRL has given vLLM the newest weights before it asks for rollouts.
        found = trainer.vllm_generation.generate(prompts=prompts, images=None, num_generations=1)
        return found[1], [[token[0] for token in turn] for turn in found[2]]
    return _with_transformers(trainer, prompts), None


def _with_transformers(trainer: Any, prompts: list[list[int]]) -> list[list[int]]:
    import torch
    from trl.models import unwrap_model_for_generation

    device = trainer.accelerator.device
    longest = max(len(p) for p in prompts)
    stop = trainer.processing_class.eos_token_id
    # Padding is on the left, and the mask hides it: any id will do.
    ids = torch.tensor([[stop] * (longest - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
    unwrapped = unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, generation_kwargs=trainer.generation_kwargs
    )
    with unwrapped as model, torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=trainer.generation_config)
    turns = out[:, longest:].tolist()
    return [turn[: turn.index(stop) + 1] if stop in turn else turn for turn in turns]


def reward(completions: Sequence[Any], R: Sequence[float | None], **_: Any) -> list[float | None]:
    """R of every episode; None, for which TRL counts nothing, where it has none."""
    return list(R)


def train_grpo(
    base: str, environments: Environments, tasks: Sequence[Task], out: str, **changes: Any
) -> list[dict[str, Any]]:
    """What TRL logged at each step of the stage.

    Args:
        base: folder of the SFT checkpoint to go on from.
        environments: the benchmark.
        tasks: what is played.
        out: folder of the trained model.
        changes: fields of TRL's GRPOConfig.

    Raises:
        InputError: a field that GRPOConfig does not have, or `out` holds a model, which would be overwritten.
    """
    if (Path(out) / "config.json").exists():
        raise InputError(f"--out {out} holds a model, such as an SFT checkpoint: name a new folder")
    try:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise MissingExtra("trl", "rl") from error
    from agentloop.render import load_codec

    codec = load_codec(base, of="--base")
    # TRL stops turns at the tokenizer's EOS: let it be what the template closes them with.
    codec.tokenizer.eos_token = codec.tokenizer.convert_ids_to_tokens(codec.closing_ids[-1])
    if not tasks:
        raise DataError("no task to play: name some with --tasks")
    settings: dict[str, Any] = {
        "output_dir": out,
        "learning_rate": LR,
        "num_generations": GROUP,
        "per_device_train_batch_size": GROUP,
        "gradient_accumulation_steps": TASKS,
        "num_train_epochs": EPOCHS,
        "max_completion_length": 512,
        "logging_steps": 1,
        "report_to": [],
    }
    try:
        config = GRPOConfig(**(settings | changes))
    except (TypeError, ValueError) as error:
        raise InputError(f"GRPOConfig refuses the settings ({error}): change --set") from error
    rollouts = Rollouts(
        environments,
        {task.task_id: task for task in tasks},
        codec,
        window=int(codec.tokenizer.model_max_length),
        seed=config.seed,
    )
    try:
        trainer = GRPOTrainer(
            model=base,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": task.task_id} for task in tasks]),
            processing_class=codec.tokenizer,
            rollout_func=rollouts,
        )
        trainer.train()
        trainer.save_model(out)
    finally:
        rollouts.close()
    return [dict(entry) for entry in trainer.state.log_history if "reward" in entry]


def main(arguments: Sequence[str] | None = None) -> int:
    """The script's command line."""
    parser = Parser(prog="sft.grpo", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--base", required=True, help="SFT checkpoint to go on from")
    add("--environment", required=True, help="alfworld, hotpotqa or package.module:function")
    add("--tasks", required=True, help="tasks as the environment names them, such as train:64")
    add("--out", required=True, help="folder of the trained model")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a GRPOConfig field")
    parser.set_defaults(handler=_train)
    return command_line(parser, arguments)


def _train(given: argparse.Namespace) -> int:
    from agentloop.policies.by_name import open_environments
    from occupancy.record.specs import settings

    environments = open_environments(given.environment)
    tasks = environments.tasks(given.tasks)
    changes = settings(lambda **fields: fields, given.set, of="--set")
    logged = train_grpo(given.base, environments, tasks, given.out, **changes)
    print(json.dumps(logged[-1] if logged else {}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
