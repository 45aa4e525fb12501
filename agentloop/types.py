"""What an episode is made of, and the two protocols that models and environments implement.

Message      one entry of a context, with its author
Ask, Answer  what a policy is given for one turn, and what it gives back
Usage        tokens of one answer, as the provider (or a named counter) counts them
Traits       which parts of an answer a policy can give, and what one call can cost at most
Reply, Turn  what the environment gives back; one assistant turn with the reply to it
Policy       async (Ask) -> Answer: a language model, a scripted expert, a replay
PolicyFailed, CallFailed, ContextOverflow, EnvironmentFailed  what can go wrong at the seams
Environment  one task that can be reset and stepped; opened by Environments. Status: how an episode ended

Optional members are protocols of their own, with their defaults in the docstring: HasTraits, Closes for a
policy; Normalises, Forks, Ends for an environment; Forking, OffersTools, Stops, Cautions for a benchmark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


class Author(StrEnum):
    """Who wrote a turn; stored with it, never guessed."""

    STUDENT = "student"
    TEACHER = "teacher"


class Status(StrEnum):
    """How an episode ended; one status an episode, set once."""

    FINISHED = "finished"
    """The environment ended it."""
    HORIZON = "horizon"
    """T_max turns were played."""
    CAPPED = "capped"
    """The teacher played K turns and the episode was not over: it has no terminal reward."""
    TURN_LENGTH = "turn_length"
    """A turn was cut at the policy's token limit."""
    BAD_PARSE = "bad_parse"
    """A turn could not be parsed, in a run that ends there; its text is kept, and is never a target."""
    CONTEXT = "context"
    """The context would not fit the policy's window."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment failed."""
    RETRIEVER_FAILED = "retriever_failed"
    """A search agent's retriever could not be reached, or answered nonsense."""
    TEACHER_FAILED = "teacher_failed"
    """The teacher could not answer."""
    STUDENT_FAILED = "student_failed"
    """The student could not answer."""
    WALL_TIME = "wall_time"
    """The episode took longer than its limit in seconds: no reward, since a faster machine might have won."""
    SWITCHED = "switched"
    """The teacher took over live: how the student would have ended is not known."""
    REPLAY_DESYNC = "replay_desync"
    """A replayed observation differed from the recorded one."""
    BUDGET_STOPPED = "budget_stopped"
    """The budget was spent; the run can be resumed."""


class Replay(StrEnum):
    """What an environment promises when recorded turns are played again."""

    EXACT = "exact"
    """Same turns, same observations, by construction."""
    CHECKED = "checked"
    """Expected to be the same; every observation's hash is compared."""
    NONE = "none"
    """Cannot be replayed: the teacher must take over live."""


def _check(good: bool, name: str, value: object) -> None:
    """Refuse a value that does not fit the tables where it is made, before it is stored."""
    if not good:
        raise ValueError(f"{name} is {str(value)[:60]!r}: expected what agentloop.types says of it")


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a context."""

    role: str
    """system, user, assistant or tool."""
    content: str
    author: str
    """student or teacher for an assistant turn, else task or environment."""
    token_ids: tuple[int, ...] | None = None
    """Sampled ids of an assistant turn, in its author's tokenizer."""

    def __post_init__(self) -> None:
        _check(self.role in ("system", "user", "assistant", "tool"), "role", self.role)
        _check(isinstance(self.content, str), "content", self.content)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; None where the provider does not say."""

    output: int
    """Output tokens, reasoning included."""
    counter: str
    """Who counted: a provider's name, a tokenizer, or a named counter."""
    reasoning: int = 0
    prompt: int | None = None
    cached: int | None = None
    """Part of `prompt` that was read from a cache."""
    reported: bool = True
    """False where the provider named no usage: `output` is then our own count, never 0 for a text."""

    def __post_init__(self) -> None:
        for name in ("output", "reasoning", "prompt", "cached"):
            value = getattr(self, name)
            known = isinstance(value, int) and 0 <= value < 2**31
            _check(known or (value is None and name in ("prompt", "cached")), name, value)


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's turn."""

    text: str
    usage: Usage
    finish_reason: str = "stop"
    """stop; length where the turn was cut; 'unknown: WORD' where a server ended it for reasons of its own."""
    token_ids: tuple[int, ...] | None = None
    """Sampled ids, where the policy knows them: they are what is trained."""
    logprob: float | None = None
    """Summed log probability of the sampled ids under the policy, in nats."""
    cut_by: str = ""
    """The server's word for a cut where it is not `length`, as the episode's error tells it."""

    def __post_init__(self) -> None:
        _check(isinstance(self.text, str), "text", self.text)
        _check(isinstance(self.usage, Usage), "usage", self.usage)
        known = self.finish_reason in ("stop", "length") or self.finish_reason.startswith("unknown: ")
        _check(known, "finish_reason", self.finish_reason)
        ids = self.token_ids
        whole = ids is None or (isinstance(ids, tuple) and all(isinstance(i, int) for i in ids))
        _check(whole, "token_ids", ids)
        _check(self.logprob is None or isinstance(self.logprob, int | float), "logprob", self.logprob)


@dataclass(frozen=True, slots=True)
class Reply:
    """The environment's answer to a turn, or its first observation."""

    observation: str
    done: bool = False
    reward: float | None = None
    """Terminal reward R in [0, 1]; None before the end."""
    parse_status: str = "ok"
    """ok, or what was wrong with the turn's text; a bad turn is data, not a crash."""
    state_id: int | None = None
    """Environment state, where there is one."""
    role: str = "user"
    """Role of the message that carries the observation: user, or tool for the answer to a tool call."""

    def __post_init__(self) -> None:
        _check(isinstance(self.observation, str), "observation", self.observation)
        _check(isinstance(self.parse_status, str), "parse_status", self.parse_status)
        _check(self.state_id is None or isinstance(self.state_id, int), "state_id", self.state_id)
        _check(self.role in ("user", "tool"), "role", self.role)


@dataclass(frozen=True, slots=True)
class Turn:
    """a_t with o_t, numbered absolutely from 1."""

    t: int
    author: Author
    answer: Answer
    reply: Reply


@dataclass(frozen=True, slots=True)
class Ask:
    """All that a policy is given for one turn."""

    context: Sequence[Message]
    """h_{t-1}: the task, then each turn and its observation; it only grows."""
    t: int
    """The turn to be played, from 1."""
    seed: int
    """Seed of this very turn, from (run, task, proposal, replicate, turn)."""
    env: Environment
    """For scripted policies, which may ask the environment; a language model reads `context` only."""
    episode_id: str = ""
    context_id: str = ""
    """Hash of `context`."""
    order: int = 0
    """Place of the episode's unit in the run: earlier ones are served first when a budget gets short."""


Policy = Callable[[Ask], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy says of itself, in its attribute `traits`."""

    gives: frozenset[str] = frozenset({"text"})
    """Parts of an answer that it fills: text, usage, reasoning, token_ids, logprob."""
    most_output: int | None = None
    """Most output tokens of one call, reasoning included; None where nothing bounds them."""
    more_prompt: int = 0
    """Most prompt tokens beside the context: tool descriptions."""
    tokenizer: str = ""
    """Name of the tokenizer of `token_ids`: ids are passed on only between equal names."""
    paid: bool = False
    """Whether a call costs money: then a student's calls are in the ledger too."""


@runtime_checkable
class HasTraits(Protocol):
    """Optional for a policy. Default: `Traits()`, a policy that gives text and names no limit."""

    traits: Traits


@runtime_checkable
class Closes(Protocol):
    """Optional for a policy: a server's connections, a model's memory. Default: nothing to close."""

    async def close(self) -> None:
        """Give back what the policy holds."""


def traits_of(policy: Policy) -> Traits:
    """The policy's `traits`; those of a plain function are the defaults."""
    return policy.traits if isinstance(policy, HasTraits) else Traits()


class PolicyFailed(Exception):
    """A policy could not answer; the message says why. Recorded as `teacher_failed`, never a crash."""

    kind = "refused"
    """timeout, rate_limit, server, connection, unreadable (no HTTP or no JSON), malformed (JSON without
    a turn), refused, filtered, or forbidden (as every call will be)."""
    billed = "no"
    """no, perhaps or yes."""
    usage: Usage | None = None
    """What the provider says it billed, where it says so in spite of the failure."""


class ContextOverflow(PolicyFailed):
    """The context and the turn's tokens do not fit the policy's window. Recorded as `context`."""


@dataclass(eq=False)
class CallFailed(PolicyFailed):
    """One call to a provider gave no answer."""

    message: str
    _: KW_ONLY
    kind: str = "server"
    billed: str = "no"
    usage: Usage | None = None
    retry: bool = False
    """Whether the same call may do better a little later."""
    wait_s: float | None = None
    """Seconds that the provider asks to wait; None where it does not say."""

    def __str__(self) -> str:
        return self.message


class EnvironmentFailed(Exception):
    """An environment broke; recorded as `status`, never a crash."""

    status = Status.ENVIRONMENT_ERROR
    kind, billed, usage = "environment", "no", None
    """In the ledger, where a scripted policy asked the environment."""


class Environment(Protocol):
    """One task; not shared between concurrent episodes. Optional: `Normalises`, `Forks`."""

    async def reset(self, seed: int) -> Reply:
        """Start an episode; the same seed gives the same first observation."""

    async def step(self, text: str) -> Reply:
        """Play one assistant turn, given its raw text."""

    def prompt(self, first: Reply) -> Sequence[Message]:
        """q with the first observation: the context before turn 1."""

    async def ask(self, question: str, **arguments: Any) -> Any:
        """Answer a scripted policy's question (an expert's next action, say)."""


@runtime_checkable
class Normalises(Protocol):
    """Optional, for texts that differ from one replay to the next (dates). Default: texts are compared."""

    def normalise(self, text: str) -> str:
        """What a replay compares in place of `text`, which is stored unchanged."""


@runtime_checkable
class Forks(Protocol):
    """Optional for an environment whose state can be copied; its benchmark then says `forks = True`.

    Default: a continuation replays the recorded turns and compares them.
    """

    def snapshot(self) -> object:
        """The present state."""

    def restore(self, snapshot: Any) -> None:
        """Go back to a state; the same one may be restored several times."""


@runtime_checkable
class Ends(Protocol):
    """Optional for an environment. Default: nobody tells it how an episode ended."""

    def ended(self, status: Status, error: str) -> None:
        """An episode has ended."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a benchmark."""

    task_id: str
    cluster_id: str
    """What errors are clustered by: the game, the question; never the seed."""
    split: str
    kind: str = ""
    """Task type, for reports by type."""


class Environments(Protocol):
    """A benchmark: its tasks, and a bounded pool that opens them. Runs record `version`: name and version.

    Optional: `Forking`, `OffersTools`, `Stops`, `Cautions`.
    """

    name: str
    version: str
    replay: Replay
    T_max: int
    capacity: int
    """How many tasks can be open at once."""
    policies: Sequence[str]
    """Names of the policies that the benchmark brings, for messages."""

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Tasks named by `spec`: a split, `split:N` for N drawn with `seed`, or `@file` of task ids."""

    def policy(self, spec: str) -> Policy | None:
        """A policy that the benchmark brings, or None where `spec` names none of them."""

    def open(self, task: Task) -> AbstractAsyncContextManager[Environment]:
        """Open one task; waits while `capacity` tasks are open."""

    async def close(self) -> None:
        """End every worker."""


@runtime_checkable
class Forking(Protocol):
    """Optional for a benchmark. Default: `forks = False`; with True its environments have `Forks`."""

    forks: bool


@runtime_checkable
class OffersTools(Protocol):
    """Optional for a benchmark. Default: no tools, and turns are plain text."""

    tools: Sequence[dict[str, Any]]
    """Descriptions in the form of OpenAI's `tools`."""


@runtime_checkable
class Stops(Protocol):
    """Optional for a benchmark. Default: a turn ends where the model ends it."""

    stop: Sequence[str]
    """Strings that end a turn."""


@runtime_checkable
class Cautions(Protocol):
    """Optional for a benchmark. Default: nothing to be careful about."""

    def cautions(self, tasks: Sequence[Task]) -> Sequence[str]:
        """What a reader of these tasks' scores should know, a sentence each."""


def can_fork(environments: Environments) -> bool:
    """Whether states can be copied, so that no turn is ever replayed."""
    return isinstance(environments, Forking) and environments.forks
