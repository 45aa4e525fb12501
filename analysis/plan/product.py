"""The product's own trainer, `fewsteps plan --train FILE.toml`: `fewsteps train`, then `fewsteps evaluate`.

base = "HuggingFaceTB/SmolLM2-135M-Instruct"     # what every training starts from: the pilot's student, or
                                                 # pi_0 where the student was made of runs in --already
preset = "alfworld"                              # of `fewsteps train`
tasks = "valid_seen:140"                         # of the evaluation: none of the pilot's
attempts = 1
gpus = 1
[set]                                            # settings of the training
epochs = 2

Environment, engine and sampling are the pilot's, unless the file says otherwise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agentloop.run.collect import environment_of
from occupancy.record.errors import InputError, RunError
from occupancy.record.reading import read_toml
from occupancy.record.show import say
from occupancy.record.specs import Few, check, record_of
from occupancy.runs import Run, open_run
from sft.settings import preset

ENGINES = ("vllm", "transformers")
SHOWN = ("train: ", "evaluate: ", "fewsteps ")
"""Beginnings of the lines that are shown; models and engines write many others, which are in the log."""
_DIES_WITH_PARENT = ["setpriv", "--pdeathsig", "TERM"]
"""Of util-linux: a command ends when the process that waits for it is killed; else both would train on."""


@dataclass(frozen=True)
class Product:
    """Settings of small trainings, the same for all of them."""

    base: str
    preset: str
    tasks: str
    """Of the evaluation, as the environment reads them."""
    env: str = ""
    """Empty: the pilot's."""
    engine: Literal["vllm", "transformers"] = "vllm"
    """Policy that loads a checkpoint. By default the pilot's student's."""
    sampling: str = ""
    """Settings of that policy, as max_tokens=512,temperature=0.7. By default the pilot's student's."""
    attempts: Few = 1
    gpus: Few = 1
    same_student: bool = False
    """`base` is the pilot's student, although the names differ."""
    keep_students: bool = False
    """Checkpoints are kept after their evaluation."""
    hub: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)
    env_set: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment. By default the pilot's."""

    def __post_init__(self) -> None:
        check(self, of="small trainings")
        if empty := [name for name in ("base", "tasks") if not getattr(self, name).strip()]:
            raise InputError(f"small trainings: {empty[0]}='': expected a text")
        if "seed" in self.set:
            raise InputError("small trainings: [set] has a seed: each training has its own; leave it out")
        made = preset(self.preset).replace(**self.set)  # refuses what `train` would refuse later
        object.__setattr__(self, "set", {name: getattr(made, name) for name in self.set})

    @property
    def name(self) -> str:
        """Kept trainings are read where the settings that make a student and its score are the same."""
        same = replace(self, gpus=1, same_student=False, keep_students=False, hub=False)
        told = {name: value for name, value in asdict(same).items() if name != "sampling" or value}
        text = json.dumps(told, sort_keys=True, default=str)
        return f"fewsteps train {blake2b(text.encode(), digest_size=6).hexdigest()}"

    def __call__(self, folders: list[Path], seed: int) -> Path:
        """The folder of an evaluation of a student trained on the folders; see `trainer.Trainer`.

        Where they hold no trace, the student is the base.
        """
        own = folders[0].parent
        place = own.parent if own.name == "cells" else own
        # Other settings, and other runs beside the cut, make another student of it.
        made = "\n".join([self.name, *(str(folder.resolve()) for folder in folders[1:])])
        name = f"{folders[0].name}-{blake2b(made.encode(), digest_size=4).hexdigest()}-{seed}"
        student, evaluation = place / "students" / name, place / "evaluations" / name
        log = place / "logs" / f"{name}.txt"
        if evaluation.exists() and not student.exists():
            return evaluation  # The student goes once it is evaluated: only the answer was lost.
        if any(len(open_run(folder).read("traces", columns=["C_tr"])) for folder in folders):
            policy = self.train(folders, student, seed=seed, log=log)
        else:  # the filter of a small cut may have accepted nothing
            policy = self._policy(self.base, *(["hub=1"] if self.hub else []))
        given = ["--policy", policy, "--tasks", self.tasks, "--attempts", str(self.attempts), "--seed", "0"]
        given += [f"--env-set={name}={_text(value)}" for name, value in self.env_set.items()]
        command = ["evaluate", "--env", self.env, *given, "--out", str(evaluation), "--json"]
        run_command(["-m", "analysis.cli", *command], log)
        if not self.keep_students:
            shutil.rmtree(student, ignore_errors=True)
        return evaluation

    def train(self, folders: list[Path], student: Path, *, seed: int, log: Path) -> str:
        """Train on the folders into `student`, or go on with it; returns the policy that plays it."""
        launch = ["-m", "analysis.cli"]
        if self.gpus > 1:
            launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(self.gpus), "-m", "sft.commands"]
        changes = [f"--set={name}={_text(value)}" for name, value in {"seed": seed, **self.set}.items()]
        given = ["--base", self.base, "--preset", self.preset, "--out", str(student), *changes]
        given += ["--hub"] if self.hub else []
        report = run_command([*launch, "train", *map(str, folders), *given, "--json"], log)
        return self._policy(report["chosen"])

    def _policy(self, model: str, *more: str) -> str:
        return ",".join(filter(None, (f"{self.engine}:{model}", self.sampling, *more)))


def read_product(file: str | Path, pilot: Run, *, beside: bool = False) -> Product:
    """The trainer of a TOML file; InputError where its student is not the pilot's.

    beside: every training is on further runs too, from which the pilot's student was made: `base` is pi_0.
    """
    given = read_toml(file, what="--train", error=InputError)
    product = record_of(Product, given, of=f"--train {file}")
    student = str(pilot.info.get("student", ""))
    env, env_set = environment_of(pilot.info)
    if product.env in ("", env):
        product = replace(product, env=env, env_set={**env_set, **product.env_set})
    engine, colon, rest = student.partition(":")
    if colon and engine in ENGINES:
        own: dict[str, Any] = {"engine": engine, "sampling": rest.partition(",")[2]}
        product = replace(product, **{name: own[name] for name in own if name not in given})
    if not beside and Path(product.base).name not in student and not product.same_student:
        raise InputError(
            f"--train {file} starts from {product.base}, and the pilot's student is {student}: trainings of "
            f"another student say nothing of it; name its checkpoint, set same_student = true if it is the "
            f"same, or name the runs that it was made of in --already"
        )
    return product


def run_command(arguments: list[str], log: Path) -> dict[str, Any]:
    """The JSON that a command of fewsteps printed; RunError with its last line where it failed.

    Args:
        arguments: of Python.
        log: gets the command line and everything that it says, as it says it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    last = "no message"
    with log.open("a", encoding="utf-8") as kept, tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        kept.write(f"$ {' '.join(arguments)}\n")
        with subprocess.Popen(
            [*(_DIES_WITH_PARENT if shutil.which("setpriv") else []), sys.executable, *arguments],
            stdout=answer,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                kept.write(line)
                kept.flush()
                last = line.strip() or last
                if line.startswith(SHOWN):
                    say(line)
        answer.seek(0)
        said = [line for line in answer.read().splitlines() if line.startswith("{")]
    if process.returncode or not said:
        raise RunError(
            f"{last} (whole output: {log}); trainings made before are kept, the same command goes on"
        )
    found: dict[str, Any] = json.loads(said[-1])
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
