"""The hand-over to GRPO: episodes become sequences of ids, of which the sampled ones alone are trained."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from families import codec, tokenizer_of
from tiny_models import tiny_config
from toy_runs import run_of
from toy_world import Corridors

from agentloop.render import TraceMessage, render_trace
from agentloop.render.codec import decode, encode_turn
from agentloop.types import Message, Replay, Reply, Task
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset
from sft.grpo import Rollouts, Trajectory, reward, train_grpo
from sft.packing import TrainingRows, rows_of
from sft.rows import load_rows
from sft.settings import Settings
from sft.train import train


def rollouts(capacity: int = 8) -> Rollouts:
    world = Corridors(workers=capacity)
    return Rollouts(world, {t.task_id: t for t in world.tasks("2")}, codec("chatml"), window=4096)


def walk(prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
    c = codec("chatml")
    ids = [*encode_turn(c, "forward"), c.closing_ids[-1]]
    return [ids] * len(prompts), [[-0.5] * len(ids)] * len(prompts)


@pytest.mark.parametrize("capacity", [8, 2])
def test_an_episode_is_one_sequence_and_only_sampled_ids_are_trained(capacity: int) -> None:
    played = rollouts(capacity)
    names = ["corridor/0", "corridor/1", "corridor/0"]
    out = played.play(names, walk)
    played.close()
    c = codec("chatml")
    assert out["R"] == [1.0, 1.0, 1.0]
    assert out["turns"] == [2, 3, 2]
    assert reward(out["completion_ids"], out["R"]) == out["R"]
    for k in range(3):
        ids, mask = out["completion_ids"][k], out["env_mask"][k]
        assert len(ids) == len(mask) == len(out["logprobs"][k])
        spoken = decode(c, [i for i, m in zip(ids, mask, strict=True) if m])
        assert spoken == "forward<|im_end|>" * out["turns"][k]
        shown = decode(c, [i for i, m in zip(ids, mask, strict=True) if not m])
        assert shown.count("You are at") == out["turns"][k] - 1
        assert {p for p, m in zip(out["logprobs"][k], mask, strict=True) if not m} == {0.0}
    whole = decode(c, out["prompt_ids"][0] + out["completion_ids"][0])
    chat = [
        {"role": "system", "content": "Reach the end."},
        {"role": "user", "content": "You stand at 0 of 2."},
        {"role": "assistant", "content": "forward"},
        {"role": "user", "content": "You are at 1 of 2."},
        {"role": "assistant", "content": "forward"},
    ]
    assert c.tokenizer.apply_chat_template(chat, tokenize=False) == whole + "\n"


def test_turns_are_sampled_together() -> None:
    sizes = []

    def counted(prompts: list[list[int]]) -> Any:
        sizes.append(len(prompts))
        return walk(prompts)

    played = rollouts()
    played.play(["corridor/0", "corridor/1", "corridor/0"], counted)
    played.close()
    assert sizes == [3, 3, 1]


def test_a_template_that_rewrites_history_is_refused() -> None:
    sequence = Trajectory()
    sequence.add_turn([1, 2], [3], [0.0])
    with pytest.raises(InputError, match="rewrites history"):
        sequence.add_turn([1, 9, 3, 4], [5], [0.0])


def test_a_folder_that_holds_a_model_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds a model, such as an SFT checkpoint"):
        train_grpo(str(tmp_path), Corridors(), [], str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_an_episode_whose_world_breaks_has_no_reward_and_no_gradient() -> None:
    world = Corridors(fails_at=1)
    played = Rollouts(world, {t.task_id: t for t in world.tasks("1")}, codec("chatml"), window=4096)
    out = played.play(["corridor/0"], walk)
    played.close()
    assert out["R"] == [None]


class Coins:
    """One turn: heads, `H`, wins."""

    name, version, replay, T_max, policies, capacity = "coins", "coins 1", Replay.EXACT, 1, (), 8

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Coins]:
        yield self

    async def reset(self, seed: int) -> Reply:
        return Reply("Toss.")

    def prompt(self, first: Reply) -> list[Message]:
        return [Message("user", first.observation, "task")]

    async def step(self, text: str) -> Reply:
        return Reply("", done=True, reward=float(text == "H"))

    async def close(self) -> None: ...


SMALL: dict[str, Any] = {
    "max_completion_length": 8,
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
}


def taught(rows: TrainingRows, tokenizer: Any, out: Path, **shape: Any) -> str:
    """A tiny student of these rows, which TRL goes on from."""
    longest = tokenizer.model_max_length
    chosen = Settings(lr=1e-2, batch=8, row_tokens=longest, epochs=2, precision="fp32", rule="last")
    config = tiny_config(vocab_size=len(tokenizer), **shape)
    done = train(rows, base=config, settings=chosen.replace(held_out=0.0), out=out, tokenizer=tokenizer)
    return str(done.chosen)


def stage(*given: Any, **changes: Any) -> list[dict[str, Any]]:
    """What TRL logged; it and its parts announce what they will change one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train_grpo(*given, **SMALL, **changes)


def test_smoke_run_of_trl_from_an_sft_checkpoint(tmp_path: Path) -> None:
    """SFT on a fair coin, then the real GRPOTrainer: the coin lands on the side that pays."""
    pytest.importorskip("trl")
    tokenizer, c = tokenizer_of("chatml"), codec("chatml")
    tokenizer.model_max_length = 256
    toss = TraceMessage("user", "Toss.", "task", False)
    sides = [TraceMessage("assistant", side, "teacher", True) for side in ("H", "T")]
    rows = [render_trace(c, [toss, side]).rows[0] for side in sides] * 160
    coins = rows_of(rows, classes=[["coin"]] * 320, clusters=["coin"] * 320)
    logged = stage(
        taught(coins, tokenizer, tmp_path / "sft"),
        Coins(),
        [Task("coin", "coin", "train")],
        str(tmp_path / "grpo"),
        learning_rate=2e-3,
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=1,
        num_train_epochs=12,
    )
    rewards = [entry["reward"] for entry in logged]
    assert 0.1 < rewards[0] < 0.9
    assert sum(rewards[-3:]) / 3 > rewards[0] + 0.1


def test_trl_trains_on_episodes_of_several_turns(tmp_path: Path) -> None:
    """From a student of demonstrations; a turn has at most 8 ids, so longer completions hold several."""
    pytest.importorskip("trl")
    tokenizer = tokenizer_of("chatml")
    tokenizer.model_max_length = 1024
    shown = run_of(tmp_path / "bc", preset("pure-bc", n=1, T_max=12))
    rows = load_rows([shown.folder], codec("chatml")).rows
    rows, world = rows.take(list(range(len(rows))) * 40), Corridors()
    logged = stage(
        taught(rows, tokenizer, tmp_path / "sft", max_position_embeddings=1024),
        world,
        world.tasks("2"),
        str(tmp_path / "grpo"),
        num_generations=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
    )
    assert logged[0]["completions/mean_length"] > 8
    assert logged[0]["reward"] > 0.2
    assert 0 <= logged[0]["grad_norm"] < float("inf")
