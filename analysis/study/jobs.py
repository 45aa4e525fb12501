"""Jobs of a study, and the protocol `Workshop` that does them: train, train and evaluate, collect.

A job is a frozen record whose `out` is the folder of its result. It can be done again at any time: a finished
one returns at once, one that was stopped goes on where it was. Jobs travel to worker processes as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from occupancy.record.errors import InputError
from occupancy.record.recipe import Recipe
from occupancy.record.specs import Few, Positive, Seed, Size, check


@dataclass(frozen=True)
class Train:
    """Fine-tune the base model; the result is the chosen checkpoint, which is kept."""

    folders: tuple[Path, ...]
    """Run folders: D_BC for pi_1, D_BC and D_OP for a final student."""
    seed: Seed
    out: Path
    """Folder of the training: log, choice, and the one checkpoint OUT/epoch-NNN."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the training preset, by the names of `sft.settings.Settings`."""

    def __post_init__(self) -> None:
        _check_training(self)


@dataclass(frozen=True)
class Student:
    """Train a student and evaluate it: one cell. The result is the evaluation's run folder.

    The evaluation's table `trainings` has the row of the training.
    """

    folders: tuple[Path, ...]
    seed: Seed
    """Of the training."""
    out: Path
    """Folder of the evaluation; the training is in OUT.training until the evaluation is finished."""
    tasks: str
    attempts: Few = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As in `Train`."""
    keep: bool = False
    """Keep OUT.training with its checkpoint."""
    evaluation_seed: Seed = 0
    """Of the evaluation; equal for students that are compared, so that they play under equal draws."""

    def __post_init__(self) -> None:
        _check_training(self)


@dataclass(frozen=True)
class Collect:
    """Algorithm 1 on tasks; the result is a run folder."""

    recipe: Recipe
    student: Path | str
    """A checkpoint's folder, or a policy as `fewsteps collect --student` takes it."""
    teacher: str
    """As `fewsteps collect --teacher` takes it; the recipe gets this name."""
    tasks: str
    budget: Positive | None
    """C_i at most, in teacher tokens; None: no limit. A run that was stopped at its budget is finished."""
    seed: Seed
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `Settings` and `SpendingLimits` in agentloop.run.settings, e.g. {"pilot": True,
    "replicates": 2, "turn_tokens": 64}."""

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "recipe", replace(self.recipe, teacher=self.teacher))


Job = Train | Student | Collect
KINDS = {made.__name__.lower(): made for made in (Train, Student, Collect)}


class Workshop(Protocol):
    """Does jobs, as many at a time as it has workers."""

    async def do(self, job: Job) -> Path:
        """The folder of the job's result: a checkpoint, or a run folder.

        Raises:
            FewstepsError: the job cannot be done, or its worker died too often.
        """
        ...

    async def close(self) -> None:
        """End the workers."""
        ...


@dataclass(frozen=True)
class Equipment:
    """What every worker of a study has: model, engine, environment, and how students are trained."""

    base: str
    """Folder of pi_0, which every training starts from."""
    env: str
    """As `--env` takes it."""
    preset: str
    """Training settings, as `fewsteps train --preset` takes them; a job's `settings` change them."""
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    """As `--env-set` takes them."""
    workers: Few = 8
    """Tasks that one worker plays at a time, where the environment has such a setting."""
    per_gpu: Few = 1
    """Workers on one GPU: a small model leaves most of it idle."""
    engine: Literal["vllm", "transformers"] = "vllm"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the student's policy, as after `vllm:FOLDER`: max_tokens, temperature, cache_gib."""
    turn_tokens: Size = 0
    """Most ids of a teacher turn that is trained on; 0: no limit."""
    overflow: Literal["drop", "head", "tail"] = "drop"
    """What happens to rows that are too long."""

    def __post_init__(self) -> None:
        check(self, of="equipment")


def to_json(record: Job | Equipment) -> dict[str, Any]:
    """Plain values; a job with its `kind`."""
    plain = {name: _plain(value) for name, value in vars(record).items()}
    if isinstance(record, Collect):
        # A folder and the name of a policy are both texts.
        plain["student_is"] = "folder" if isinstance(record.student, Path) else "policy"
    return plain if isinstance(record, Equipment) else {"kind": type(record).__name__.lower(), **plain}


def from_json(plain: Mapping[str, Any]) -> Job:
    """Inverse of `to_json` for a job."""
    given = dict(plain)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise InputError(f"job of kind {kind!r}: expected one of {', '.join(KINDS)}")
    if "folders" in given:
        given["folders"] = tuple(Path(folder) for folder in given["folders"])
    folder = given.pop("student_is", "folder") == "folder"
    for name in ("out", "student") if folder else ("out",):
        if name in given:
            given[name] = Path(given[name])
    if "recipe" in given:
        given["recipe"] = Recipe.from_dict(given["recipe"])
    job: Job = KINDS[kind](**given)
    return job


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Recipe):
        return value.to_dict()
    return dict(value) if isinstance(value, Mapping) else value


def _check(job: Job) -> None:
    check(job, of=f"job {job.__class__.__name__.lower()} into {job.out}")


def _check_training(job: Train | Student) -> None:
    object.__setattr__(job, "folders", tuple(Path(folder) for folder in job.folders))
    _check(job)
    if not job.folders:
        raise InputError(f"a training into {job.out} has no run folder: name those to train on")
    if "seed" in job.settings:
        raise InputError(f"a training into {job.out}: the seed is a field of the job, not of its settings")
