"""HotpotQA as an `Environments`: a question, passages on request, and an answer that is scored.

T_max turns, 5 by default, with the answer inside: at most four searches, and the observation before the last
turn says that it is the last. A last turn that does not answer ends the episode at its horizon with R = 0.
(Search-R1 counts otherwise: its max_turns searches are followed by one more turn for the answer.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from agentloop.policies import scripted
from agentloop.types import Message, Policy, Replay, Reply, Task
from occupancy.record.errors import InputError
from occupancy.record.specs import Few, Range, checked

from .actions import STOP, TOOLS, parse_action
from .catalogue import Catalogue, open_catalogue
from .observation import LEAST_BUDGET, Ends, harmless, observation, open_tokenizer, tokenizer_name
from .prompts import Prompts, load_prompts
from .questions import Question, find_folder
from .retrieval.passages import Passage
from .retrieval.retriever import Retriever, open_retriever
from .scoring import gold_report, score_answer
from .scripted import student, teacher
from .scripted.view import Step, View
from .search_r1 import reward_as_search_r1

T_MAX = 5


@dataclass(frozen=True)
class Rules:
    """What an episode depends on besides its question."""

    format: str
    turns: int
    """T_max, the answer's turn included."""
    k: int
    """Passages a search."""
    passage_tokens: int
    """Most tokens of an observation with passages."""
    ends: Ends
    prompts: Prompts
    scoring: str
    retriever: Retriever


class SearchEpisode:
    """One open question; an `Environment`."""

    def __init__(self, question: Question, rules: Rules) -> None:
        self._question, self._rules = question, rules
        self._steps: list[Step] = []
        self._texts: list[str] = []

    async def reset(self, seed: int) -> Reply:
        """Start an episode; nothing in it is random, so every seed gives the same one."""
        self._steps.clear()
        self._texts.clear()
        return Reply(harmless(self._question.text))

    async def step(self, text: str) -> Reply:
        """Play the first action in a turn's raw text; RetrieverFailed when no passages can be had."""
        rules = self._rules
        t = len(self._steps) + 1
        if t > rules.turns:
            raise InputError(f"turn {t} of an episode of {rules.turns}: use --set T_max={rules.turns}")
        action = parse_action(text, format=rules.format)
        passages: tuple[Passage, ...] = ()
        role, seen = "user", ""
        if action.kind != "answer" and t < rules.turns:
            notice = rules.prompts.last_turn if t + 1 == rules.turns else ""
            if action.kind == "search":
                passages = tuple(await rules.retriever.search(action.content, rules.k))[: rules.k]
                role = "tool" if rules.format == "tools" else "user"
                seen = observation(
                    passages,
                    format=rules.format,
                    budget=rules.passage_tokens,
                    ends=rules.ends,
                    nothing_found=rules.prompts.nothing_found,
                    notice=notice,
                )
            else:
                seen = "\n\n".join(filter(None, (rules.prompts.invalid, notice)))
        self._steps.append(Step(action, passages, seen))
        self._texts.append(text)
        status = "late_search" if action.kind == "search" and t == rules.turns else action.status
        # Search-R1 scores an episode without an answer too: as the example in its prompt.
        if action.kind == "answer" or (t == rules.turns and rules.scoring == "search-r1"):
            return Reply("", done=True, reward=self._reward(action.content), parse_status=status)
        return Reply(seen, parse_status=status, role=role)

    def prompt(self, first: Reply) -> Sequence[Message]:
        """The words of the prompt around the question."""
        prompts, turns = self._rules.prompts, self._rules.turns
        task = prompts.task.replace("{turns}", str(turns))
        if turns == 1:
            task += f"\n\n{prompts.last_turn}"
        messages = [Message("user", task.replace("{question}", first.observation), "task")]
        return ([Message("system", prompts.system, "task")] if prompts.system else []) + messages

    async def ask(self, question: str, **arguments: Any) -> Any:
        """`view`: the question with its golds and the turns so far, for scripted policies."""
        scripted.check_question(question, arguments, "view")
        return View(self._question, tuple(self._steps), self._rules.turns, self._rules.format)

    def _reward(self, answer: str) -> float:
        if self._rules.scoring == "exact":
            return float(score_answer(answer, self._question.golds).exact)
        played = zip(self._texts, (step.observation for step in self._steps), strict=True)
        return reward_as_search_r1(self._question.text, played, self._question.golds)


class HotpotQA:
    """The benchmark; an `Environments`."""

    name = "hotpotqa"
    replay = Replay.CHECKED
    policies = (teacher.NAME, scripted.NAME)

    def __init__(self, catalogue: Catalogue, rules: Rules, *, version: str, workers: int) -> None:
        self.catalogue, self.rules, self.version, self.capacity = catalogue, rules, version, workers
        self.T_max = rules.turns
        self.stop = STOP[rules.format]
        self.tools = TOOLS if rules.format == "tools" else ()
        self._free = asyncio.Semaphore(workers)

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Tasks named by `spec`; see `catalogue`."""
        return self.catalogue.tasks(spec, seed=seed)

    def cautions(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many golds normalise to nothing: only the very same text matches them."""
        golds = [gold for task in tasks for gold in self.catalogue.question(task.task_id).golds]
        empty = gold_report(golds).empty
        if not empty:
            return ()
        some = ", ".join(map(repr, empty[:3]))
        return (
            f"{len(empty)} of {len(golds)} golds normalise to nothing ({some}): only the same text matches "
            f"them",
        )

    def policy(self, spec: str) -> Policy | None:
        """`teacher`, or `scripted` with settings as in `scripted:vague=0.5`; None for any other name."""
        teachers = {teacher.NAME: teacher.scripted_teacher}
        return scripted.own_policy(spec, teachers, student.StudentSettings, student.scripted_student)

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[SearchEpisode]:
        """One question; waits while `workers` are open."""
        async with self._free:
            yield SearchEpisode(self.catalogue.question(task.task_id), self.rules)

    async def close(self) -> None:
        """End the retriever's connections."""
        await self.rules.retriever.close()


@checked
def open_hotpotqa(
    *,
    workers: Few = 32,
    format: Literal["tags", "tools"] = "tags",
    turns: Few = T_MAX,
    k: Few = 3,
    passage_tokens: Annotated[int, Range(LEAST_BUDGET)] = 500,
    tokenizer: str = scripted.WORDS_AND_MARKS,
    scoring: Literal["exact", "search-r1"] = "exact",
    retriever: str = "bm25",
    corpus: str = "",
    prompts: str = "",
    cache: str = "",
) -> HotpotQA:
    """The benchmark in the folder that FEWSTEPS_DATA names; settings are those of `--env-set`.

    Args:
        workers: questions that are open at once.
        format: tags or tools, see `actions`.
        turns: T_max, the answer's turn included.
        k: passages a search.
        passage_tokens: most tokens of an observation with passages, tags and notice included.
        tokenizer: what counts them: words-and-marks, or a tokenizer.json.
        scoring: exact, or search-r1 for its scorer with its quirks.
        retriever: bm25, http://host:port, or package.module:function; see `retrieval`.
        corpus: .parquet or .jsonl files with commas between; default: corpus.parquet of the data folder.
        prompts: TOML file with other words; see `prompts`.
        cache: folder of stored indexes; default: see `retrieval.index`.

    Raises:
        InputError: a setting out of its range, or no data.
    """
    folder = find_folder()
    files = [Path(name) for name in corpus.split(",")] if corpus else [folder / "corpus.parquet"]
    words = load_prompts(format, Path(prompts) if prompts else None)
    found = open_retriever(retriever, corpus=files, cache=Path(cache) if cache else None)
    rules = Rules(format, turns, k, passage_tokens, open_tokenizer(tokenizer), words, scoring, found)
    version = (
        f"hotpotqa 1 format={format} turns={turns} k={k} passage_tokens={passage_tokens} "
        f"tokenizer={tokenizer_name(tokenizer)} scoring={scoring} prompts={words.hash} "
        f"retriever=({found.name})"
    )
    return HotpotQA(open_catalogue(folder), rules, version=version, workers=workers)
