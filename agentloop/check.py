"""Tries a user's own environment or policy, and names what is missing or breaks a promise.

An environment is opened, played to the end of an episode, replayed from the same seed and given turns that
make no sense; a policy is asked twice for the same turn. Nothing is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from agentloop.policies.by_name import lacks
from agentloop.run.episode import Episode, EpisodeSettings, play, start, step
from agentloop.run.replay import ReplayDesync, replay
from agentloop.types import (
    Answer,
    Ask,
    Author,
    Closes,
    Environment,
    Environments,
    Forks,
    Message,
    Policy,
    Replay,
    Status,
    Task,
    Traits,
    Usage,
    can_fork,
    traits_of,
)
from occupancy.record.errors import FewstepsError, frame_of

SEED = 7
NONSENSE = ("", "   ", "\x00 {]<answer>", "é" * 2000)
"""Turns that a language model may well write."""
Say = Callable[[str], None]


class Problem(Exception):
    """What is wrong, in one line."""


class _Stop(Exception):
    """Nothing that follows can be tried."""


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    what: str
    ok: bool
    said: str = ""


@dataclass
class Findings:
    """What was tried so far, in order."""

    rows: list[Finding] = field(default_factory=list)

    @contextmanager
    def about(self, what: str) -> Iterator[Say]:
        """Record whether the block worked; whatever it raises is a finding, and ends the check."""
        said: list[str] = []
        try:
            yield said.append
        except _Stop:
            raise
        except Exception as error:  # foreign code may raise what it likes
            told = str(error) if isinstance(error, Problem | FewstepsError | ReplayDesync) else ""
            told = told or f"raised {type(error).__name__}: {error}{frame_of(error)}"
            self.rows.append(Finding(what, False, " ".join(told.split())))
            raise _Stop from error
        self.rows.append(Finding(what, True, "; ".join(said)))


def expect(good: bool, problem: str) -> None:
    """Raise Problem unless `good`."""
    if not good:
        raise Problem(problem)


def expect_members(thing: object, protocol: type) -> None:
    """Raise Problem where `thing` lacks what `protocol` declares without a default."""
    missing = ", ".join(lacks(thing, protocol))
    expect(not missing, f"{type(thing).__name__} lacks {missing}: see agentloop.types.{protocol.__name__}")


class _NoEnvironment:
    """What a policy without an environment asks: a language model reads the context alone."""

    def __getattr__(self, name: str) -> Any:
        raise Problem(
            f"it uses ask.env.{name}: try it in its environment, fewsteps check ENVIRONMENT --policy POLICY"
        )


async def babble(ask: Ask) -> Answer:
    """The policy of a check that is given none: it knows nothing of any environment."""
    return Answer(f"try {ask.t}", Usage(output=2, counter="check"))


async def check_environments(opened: Any, tasks: str, *, policy: Policy | None = None) -> list[Finding]:
    """What came of trying a benchmark on the first of `tasks`.

    Args:
        opened: what a user's function returned.
        tasks: a task spec, as `collect --tasks` takes it.
        policy: who plays; by default the benchmark's first own policy, else `babble`.
    """
    found = Findings()
    with suppress(_Stop):
        await _check_environments(found, opened, tasks, policy)
    if found.rows[-1].what != "close" and isinstance(opened, Closes):
        with suppress(Exception):  # its workers must not outlive a check that has failed already
            await opened.close()
    return found.rows


async def check_policy(policy: Any) -> list[Finding]:
    """What came of asking a policy, which needs no environment, twice for the same turn."""
    found = Findings()
    context = (Message("system", "Count.", "task"), Message("user", "1, 2,", "environment"))
    answers = []
    with suppress(_Stop):
        with found.about("traits") as say:
            traits = traits_of(policy)
            unknown = traits.gives - {"text", "usage", "reasoning", "token_ids", "logprob"}
            expect(not unknown, f"traits.gives has {', '.join(unknown)}: see agentloop.types.Traits")
            limit = "no limit on" if traits.most_output is None else f"at most {traits.most_output}"
            say(f"gives {', '.join(sorted(traits.gives))}; {limit} tokens a turn")
        with found.about("two answers") as say:
            for _ in range(2):
                answer = await policy(Ask(context, 1, SEED, _NoEnvironment(), "check", "check"))
                kind = type(answer).__name__
                expect(isinstance(answer, Answer), f"it returned a {kind}: expected an Answer")
                answers.append(answer)
            equal = answers[0].text == answers[1].text
            say("the same for one seed" if equal else "they differ for one seed: a killed run may ask again")
        with found.about("tokens") as say:
            _check_tokens(answers[0], traits)
            say(f"{answers[0].usage.output} output tokens, counted by {answers[0].usage.counter}")
        with found.about("close"):
            if isinstance(policy, Closes):
                await policy.close()
    return found.rows


async def _check_environments(found: Findings, opened: Any, tasks: str, policy: Policy | None) -> None:
    with found.about("members"):
        expect_members(opened, Environments)
        for name in ("name", "version"):
            value = getattr(opened, name)
            expect(isinstance(value, str) and bool(value), f"{name} is {value!r}: expected a text")
        expect(
            not re.fullmatch(r"v?\d\S*", opened.version),
            f"version is {opened.version!r}: expected the benchmark's name in it too, such as "
            f"'{opened.name} {opened.version}', as runs and published data show nothing else",
        )
        for name in ("T_max", "capacity"):
            value = getattr(opened, name)
            expect(isinstance(value, int) and value > 0, f"{name} is {value!r}: expected at least 1")
        expect(isinstance(opened.replay, Replay), f"replay is {opened.replay!r}: expected a Replay")
        names = opened.policies
        expect(not isinstance(names, str), f"policies is the text {names!r}: expected a tuple of names")
    with found.about("tasks") as say:
        first, again = (list(opened.tasks(tasks, seed=SEED)) for _ in range(2))
        expect(bool(first), f"tasks({tasks!r}) gives none: name some with --tasks")
        expect(all(isinstance(t, Task) for t in first), f"tasks() gives {first[0]!r}: expected Tasks")
        ids = [task.task_id for task in first]
        expect(len(set(ids)) == len(ids), "tasks() names a task twice: expected unique task_ids")
        expect(first == again, "tasks() gives others the second time: draw them with its seed")
        say(f"{len(first)}, the first is {ids[0]}")
    with found.about("policies") as say:
        for name in names:
            own = opened.policy(name)
            expect(callable(own), f"policy({name!r}) is {own!r}: expected one, for policies names it")
        stranger = opened.policy("a name of no policy")
        expect(stranger is None, f"policy() of an unknown name is {stranger!r}: expected None")
        say(", ".join(names) or "none of its own")
    player = policy or (opened.policy(names[0]) if names else babble)
    with found.about("open"):
        async with opened.open(first[0]) as env:
            await _check_environment(found, opened, env, player)
    with found.about("close"):
        await opened.close()


async def _check_environment(found: Findings, opened: Environments, env: Environment, player: Policy) -> None:
    how = EpisodeSettings(Author.STUDENT, opened.T_max, opened.T_max, lambda t: SEED + t)
    with found.about("reset and prompt"):
        expect_members(env, Environment)
        begun = await start(env, seed=SEED)
        expect(bool(begun.prompt), "prompt() gives no message: expected the task and the first observation")
        for message in begun.prompt:
            known = message.author in ("task", "environment")
            expect(known, f"prompt() has author {message.author!r}: expected task or environment")
    with found.about("play and reward") as say:
        episode = await play(env, player, begun, how)
        broken = (Status.ENVIRONMENT_ERROR, Status.RETRIEVER_FAILED, Status.STUDENT_FAILED)
        expect(episode.status not in broken, f"{episode.status} in turn {episode.length}: {episode.error}")
        reward = "none" if episode.reward is None else f"{episode.reward:g}"
        say(f"{episode.length} turn{'s' if episode.length != 1 else ''}, {episode.status}, R = {reward}")
    await _check_going_back(found, opened, env, episode)
    with found.about("turns that make no sense"):
        for text in NONSENSE:
            await start(env, seed=SEED)
            reply = await step(env, text)
            expect(not reply.done or reply.reward is not None, f"{text!r} ends the episode without a reward")


async def _check_going_back(
    found: Findings, opened: Environments, env: Environment, episode: Episode
) -> None:
    with found.about("replay from the same seed") as say:
        if opened.replay is Replay.NONE:
            say("replay = none: the teacher must take over in the running episode")
        else:
            await replay(env, episode.history, seed=SEED)
    if not can_fork(opened):
        return
    with found.about("snapshot and restore"):
        if not isinstance(env, Forks):
            raise Problem("forks is True, but snapshot() and restore() are not both there")
        await start(env, seed=SEED)
        state, replies = env.snapshot(), []
        for _ in range(2):
            env.restore(state)
            replies.append(await step(env, episode.history.turns[0].answer.text))
        expect(replies[0] == replies[1], f"a turn from one snapshot gives {replies[0]}, then {replies[1]}")


def _check_tokens(answer: Answer, traits: Traits) -> None:
    usage, ids, most = answer.usage, answer.token_ids, traits.most_output
    expect(usage.output > 0, "usage.output is 0: even an empty turn has a token that ended it; count it")
    expect(bool(usage.counter), "usage.counter is empty: name who counted")
    expect(most is None or usage.output <= most, f"{usage.output} tokens, but traits.most_output is {most}")
    expect(ids is None or bool(traits.tokenizer), "token_ids without traits.tokenizer: name their tokenizer")
    for name in traits.gives & {"token_ids", "logprob"}:
        expect(getattr(answer, name) is not None, f"traits.gives has {name}, the answer has none")
