"""Episodes as rows of the run folder's tables; occupancy/record/tables.py says what every column means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentloop.run.episode import Episode, context_ids, messages_of, teacher_turns
from agentloop.run.filters import phi_verdicts, psi_verdicts
from agentloop.run.types import EpisodeSpec, OpenTask, Switch
from agentloop.types import Author, Message
from occupancy.record.finish import retained_tokens
from occupancy.record.rows import episode_row, evaluation_row, proposal_row, trace_row, turn_row


def write_episode(opened: OpenTask, spec: EpisodeSpec, episode: Episode, *, seed: int, wall_s: float) -> None:
    """A row of `episodes`, and a row of `turns` for each turn that is not the parent's."""
    settings, key, history = opened.setup.settings, spec.key, episode.history
    opened.write(
        "episodes",
        episode_row(
            key,
            policy=settings.teacher if spec.author is Author.TEACHER else settings.student,
            environment=opened.setup.environments.version,
            length=episode.length,
            R=episode.reward,
            cluster_id=opened.unit.task.cluster_id,
            status=str(episode.status),
            prompt=[_message(m) for m in history.prompt],
            parent=spec.parent,
            teacher=settings.teacher if spec.switch_turn else "",
            prefix_policy=settings.student if spec.parent else "",
            switch_turn=spec.switch_turn,
            K=spec.K,
            teacher_turns=sum(turn.author is Author.TEACHER for turn in history.turns),
            task_kind=opened.unit.task.kind,
            phi=phi_verdicts(episode.reward, settings.recipe, episode=episode),
            error=episode.error,
            seed=seed,
            wall_s=wall_s,
        ),
    )
    ids, first = list(context_ids(history)), 1 if spec.start is None else len(spec.start.turns) + 1
    for turn in history.turns[first - 1 :]:
        answer, usage = turn.answer, turn.answer.usage
        row = turn_row(
            key,
            turn.t,
            author=turn.author,
            text=answer.text,
            observation=turn.reply.observation,
            context_id=ids[turn.t - 1],
            output_tokens=usage.output,
            counter=usage.counter,
            state_id=history.state_before(turn.t),
            reasoning_tokens=usage.reasoning,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            finish_reason=answer.finish_reason,
            parse_status=turn.reply.parse_status,
            logprob=answer.logprob,
        )
        opened.write("turns", row)


def write_trace(opened: OpenTask, spec: EpisodeSpec, episode: Episode) -> None:
    """A row of `traces`: the student's turns before the switch are context, the teacher's are targets."""
    context, taught = episode.history.before(spec.switch_turn), episode.history.turns[spec.switch_turn - 1 :]
    targets = teacher_turns(taught)
    messages = [_message(message, train=False) for message in context.context()]
    for turn in taught[: targets[-1].t - spec.switch_turn + 1]:
        said, reply = messages_of(turn)
        messages += [_message(said, train=turn in targets), _message(reply, train=False)]
    for message in messages:
        # Sampled ids are kept where the student's tokenizer made them.
        if message["author"] == Author.TEACHER and not opened.setup.teacher_ids:
            message.pop("token_ids", None)
    opened.write(
        "traces",
        trace_row(
            spec.key,
            recipe_hash=opened.setup.settings.recipe.hash,
            messages=messages[:-1],  # the reply to the last turn is stored with the turn and in no context
            target_turns=len(targets),
            C_tr=sum(
                retained_tokens(t.answer.text, t.answer.usage.output, t.answer.usage.reasoning)
                for t in targets
            ),
        ),
    )


def write_proposal(opened: OpenTask, rollout: Episode | None, switch: Switch, outcome: str) -> None:
    """A row of `proposals`; `rollout` is None where the teacher plays from the start."""
    key, recipe = opened.unit.key, opened.setup.settings.recipe
    opened.write(
        "proposals",
        proposal_row(
            replace(key, proposal=max(key.rollout, key.continuation), continuation=-1),
            cluster_id=opened.unit.task.cluster_id,
            recipe_hash=recipe.hash,
            outcome=outcome,
            T=0 if rollout is None else rollout.length,
            R=None if rollout is None else rollout.reward,
            t_prime=switch.t_prime,
            probability=switch.probability,
            psi={} if rollout is None else psi_verdicts(rollout, recipe),
        ),
    )


def write_score(opened: OpenTask, episode: Episode) -> None:
    """A row of `evaluations`: an attempt without a reward counts as a failure, and its status says so."""
    policy, task, score = opened.setup.settings.student, opened.unit.task, episode.reward or 0.0
    row = evaluation_row(
        policy,
        task.task_id,
        attempt=opened.unit.key.replicate,
        score=score,
        status=str(episode.status),
        cluster_id=task.cluster_id,
    )
    opened.write("evaluations", row)


def _message(message: Message, **more: Any) -> dict[str, Any]:
    row = {"role": message.role, "content": message.content, "author": str(message.author), **more}
    return row if message.token_ids is None else row | {"token_ids": list(message.token_ids)}
