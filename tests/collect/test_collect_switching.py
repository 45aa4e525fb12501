"""Who takes over when: live switching, forks, and the teacher that decides."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import Corridors, drunk, expert

from agentloop.run.summary import summarise
from agentloop.run.switching import parse_turn
from agentloop.types import Answer, Ask, PolicyFailed, Replay, Reply, Usage
from occupancy.record.errors import InputError, RecipeError, RunError
from occupancy.record.recipe import SwitchLaw, preset
from occupancy.runs import open_run

OP_SHORT = preset("op-short", K=3, n=2, T_max=12)


class Forking(Corridors):
    """Corridors that can be copied; playing a turn again is an error."""

    forks = True
    steps = 0

    def change(self, corridor: Any) -> None:
        step = corridor.step

        async def counted(text: str) -> Any:
            type(self).steps += 1
            return await step(text)

        corridor.step = counted
        corridor.snapshot = lambda: copy.copy({k: v for k, v in vars(corridor).items() if not callable(v)})
        corridor.restore = lambda state: vars(corridor).update(state)


class Unrepeatable(Corridors):
    """Corridors that cannot be replayed: a second reset is an error."""

    replay = Replay.NONE

    def change(self, corridor: Any) -> None:
        reset, resets = corridor.reset, []

        async def once(seed: int) -> Any:
            resets.append(seed)
            assert len(resets) == 1, "a live episode was reset"
            return await reset(seed)

        corridor.reset = once


def test_forked_and_replayed_runs_are_the_same(tmp_path: Path) -> None:
    recipe = replace(OP_SHORT, K="inf")
    replayed = run_of(tmp_path / "replayed", recipe, pilot=True)
    forked = run_of(tmp_path / "forked", recipe, pilot=True, worlds=Forking())
    same(forked, replayed, calls=False)
    assert Forking.steps == len(rows(forked, "turns")), "no turn was played twice"


def test_live_switching_takes_over_in_the_running_episode(tmp_path: Path) -> None:
    recipe = preset("op-short", K=3, n=6, T_max=12, switch=SwitchLaw("fixed"))
    live = run_of(tmp_path / "live", recipe, worlds=Unrepeatable())
    replayed = run_of(tmp_path / "replayed", recipe)
    accepted = [
        {p["task_id"]: p for p in rows(run, "proposals") if p["outcome"] == "accepted"}
        for run in (live, replayed)
    ]
    assert accepted[0].keys() == accepted[1].keys()
    assert rows(live, "traces") == rows(replayed, "traces"), "the same law, the same teacher, the same data"
    assert attempts(live) == attempts(replayed)
    outcomes = {p["outcome"] for p in rows(live, "proposals")}
    assert outcomes == {"accepted", "invalid_switch"}
    rollouts = [e for e in rows(live, "episodes") if e["kind"] == "rollout"]
    for episode in rollouts:
        switched = episode["status"] == "switched"
        assert (episode["R"] is None) == switched
    assert sum(e["status"] == "switched" for e in rollouts) == len(rows(live, "traces"))


def test_live_switching_refuses_what_needs_the_whole_rollout(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="neither replayed nor forked"):
        run_of(tmp_path / "run", OP_SHORT, worlds=Unrepeatable())
    recipe = replace(OP_SHORT, switch=SwitchLaw("fixed"), psi="without_success")
    with pytest.raises(RecipeError, match="psi='without_success'"):
        run_of(tmp_path / "run", recipe, worlds=Unrepeatable())
    with pytest.raises(InputError, match="a pilot in toy"):
        run_of(tmp_path / "run", preset("op-short", K="inf", T_max=12), pilot=True, worlds=Unrepeatable())


async def deciding(ask: Ask) -> Answer:
    """Names the turn after the first stumble; says nothing useful about rollouts of eleven turns."""
    if ask.t:
        return await expert(ask)
    assert ask.context[-1].author == "task"
    played = [m.content for m in ask.context if m.author == "student"]
    assert f"has {len(played)} turns" in ask.context[-1].content
    if len(played) == 11:
        return Answer("I cannot say.", Usage(40, "toy"))
    first = played.index("stumble") + 1
    return Answer(f"Of the {len(played)} turns it is turn {first}", Usage(40, "toy"))


def test_the_teacher_decides_where_its_law_is_asked_for(tmp_path: Path) -> None:
    async def hopeless(ask: Ask) -> Answer:
        answer = await drunk(ask)
        return replace(answer, text="stumble") if ask.t % 2 == 0 else answer

    recipe = preset("leap", n=3, T_max=12)
    run = run_of(
        tmp_path / "run",
        recipe,
        student=hopeless,
        teacher=deciding,
        switch_prompt="The attempt has {T} turns. Which?",
    )
    proposals = rows(run, "proposals")
    accepted = [p for p in proposals if p["outcome"] == "accepted"]
    assert accepted
    turns = {(t["episode_id"], t["t"]): t["text"] for t in rows(run, "turns")}
    for p in accepted:
        rollout = f"{p['task_id']}#rollout-{p['rollout']}-x-x-x"
        assert turns[rollout, p["t_prime"]] == "stumble"
        assert p["probability"] == 0.0, "no law of t' is known"
    asked = [a for a in attempts(run) if a["t"] == 0]
    assert len(asked) == len(accepted) + sum(p["outcome"] == "invalid_switch" for p in proposals)
    assert sum(a["output_tokens"] for a in attempts(run)) > sum(t["C_tr"] for t in rows(run, "traces"))
    assert run.info["switch_prompt"] == "The attempt has {T} turns. Which?"
    filtered = [p for p in proposals if json.loads(p["psi"])["without_success"] is False]
    assert all(p["outcome"] == "prefix_filtered" for p in filtered), "a won rollout costs no question"


@pytest.mark.parametrize("role", ["user", "tool"])
def test_the_question_is_no_second_message_of_the_user(tmp_path: Path, role: str) -> None:
    """Strict templates and servers refuse two messages of one role in a row."""
    pytest.importorskip("transformers")
    from families import codec

    from agentloop.policies.chat import ChatPolicy
    from agentloop.policies.chat_spec import ChatSpec
    from agentloop.policies.prompt_ids import PromptIds
    from agentloop.render.codec import decode

    asked: list[Ask] = []

    class Calling(Corridors):
        def change(self, corridor: Any) -> None:
            step = corridor.step
            corridor.step = lambda text: _as(step(text), role)

    async def remembering(ask: Ask) -> Answer:
        if ask.t == 0:
            asked.append(ask)
        return await deciding(ask) if role == "user" else Answer("1", Usage(1, "toy"))

    with suppress(RunError):  # of corridors of six turns the question tells the teacher too little
        run_of(tmp_path / "run", preset("leap", n=3, T_max=6), teacher=remembering, worlds=Calling())
    chat = ChatPolicy(ChatSpec("m", "http://127.0.0.1:1/v1"))
    strict = PromptIds(codec("turns"))
    assert asked
    for ask in asked:
        roles = [m["role"] for m in chat._request(ask)["messages"]]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]
        assert roles[-1] == ask.context[-1].role
        if role == "user":
            *_, last = decode(codec("turns"), strict.of(ask)).split("<start_of_turn>user\n")
            seen, _, question = last.partition("\n\n")
            assert seen.startswith("You are ")
            assert question.startswith("The attempt above did not reach its goal.")


async def _as(reply: Any, role: str) -> Reply:
    return replace(await reply, role=role)


def test_a_teacher_that_cannot_decide_is_recorded(tmp_path: Path) -> None:
    async def mute(ask: Ask) -> Answer:
        if ask.t == 0:
            raise PolicyFailed("I only act")
        return await expert(ask)

    with pytest.raises(RunError, match="named no switch turn"):
        run_of(tmp_path / "run", preset("leap", n=3, T_max=6), teacher=mute)
    run = open_run(tmp_path / "run")
    assert {p["outcome"] for p in rows(run, "proposals")} <= {"teacher_failed", "prefix_filtered"}
    assert any(p["outcome"] == "teacher_failed" for p in rows(run, "proposals"))


@pytest.mark.parametrize(
    ("text", "turn"),
    [("7", 7), ("turn 3.", 3), ("2 of 9: 4", 4), ("", 0), ("99", 0), ("0", 0), ("9" * 50, 0)],
)
def test_a_named_turn_is_read_or_refused(text: str, turn: int) -> None:
    assert parse_turn(text, T=9) == turn


def first_stumble(rollout: Any) -> list[float]:
    texts = [turn.answer.text for turn in rollout.history.turns]
    at = texts.index("stumble") if "stumble" in texts else 0
    return [float(i == at) for i in range(len(texts))]


def short(episode: Any, recipe: Any) -> bool:
    return bool(episode.length <= 5)


def test_weights_and_filters_can_be_your_own(tmp_path: Path) -> None:
    own = "test_collect_switching"
    recipe = replace(OP_SHORT, switch=SwitchLaw("weights"), psi=f"{own}:short", phi=f"{own}:short")
    run = run_of(tmp_path / "run", recipe, switch_weights=f"{own}:first_stumble")
    turns = {(t["episode_id"], t["t"]): t["text"] for t in rows(run, "turns")}
    proposals = rows(run, "proposals")
    assert {p["outcome"] for p in proposals} >= {"accepted", "prefix_filtered"}
    for p in proposals:
        assert (p["outcome"] == "prefix_filtered") == (p["T"] > 5)
        assert json.loads(p["psi"])[f"{own}:short"] == (p["T"] <= 5)
        rollout = f"{p['task_id']}#rollout-{p['rollout']}-x-x-x"
        assert turns[rollout, p["t_prime"]] == "stumble" or p["t_prime"] == 1
        assert p["probability"] == 1.0
    continued = [e for e in rows(run, "episodes") if e["kind"] == "continuation"]
    accepted = {t["episode_id"] for t in rows(run, "traces")}
    assert accepted == {e["episode_id"] for e in continued if e["length"] <= 5}
    with pytest.raises(InputError, match="needs --switch-weights"):
        run_of(tmp_path / "none", recipe)
    with pytest.raises(RecipeError, match="a filter of your own"):
        replace(OP_SHORT, psi="sometimes")


class Breaking(Forking):
    """Corridors whose fourth snapshot fails."""

    def change(self, corridor: Any) -> None:
        super().change(corridor)
        snapshot = corridor.snapshot

        def fails() -> Any:
            if corridor.t == 4:
                raise OSError("no room for a snapshot")
            return snapshot()

        corridor.snapshot = fails


def test_turns_before_a_snapshot_that_fails_are_kept(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", replace(OP_SHORT, K="inf"), worlds=Breaking())
    broken = [e for e in rows(run, "episodes") if e["status"] == "environment_error"]
    assert broken
    assert {e["length"] for e in broken} == {4}
    assert all("no room for a snapshot" in e["error"] for e in broken)
    turns = [t["episode_id"] for t in rows(run, "turns")]
    assert all(turns.count(e["episode_id"]) == 5 - (e["switch_turn"] or 1) for e in broken)


def test_an_answer_that_was_cut_names_no_switch_turn(tmp_path: Path) -> None:
    async def hesitant(ask: Ask) -> Answer:
        if ask.t:
            return await expert(ask)
        return Answer("It is turn 1", Usage(40, "toy"), finish_reason="length" if ask.seed % 2 else "stop")

    run = run_of(tmp_path / "run", preset("leap", n=2, T_max=12), teacher=hesitant, tasks="20")
    cut = {a["episode_id"] for a in attempts(run) if a["t"] == 0 and a["finish_reason"] == "length"}
    asked = [p for p in rows(run, "proposals") if p["outcome"] in ("accepted", "invalid_switch")]
    for p in asked:
        named = f"{p['task_id']}#switch-{p['rollout']}-{p['rollout']}-x-x" not in cut
        assert (p["outcome"], p["t_prime"]) == (("accepted", 1) if named else ("invalid_switch", 0))
    assert {p["outcome"] for p in asked} == {"accepted", "invalid_switch"}
    means = {outcome: mean["t_prime"] for outcome, mean in summarise(run)["prefixes"].items()}
    assert means == {"all": 1, "accepted": 1, "invalid_switch": None, "prefix_filtered": None}
