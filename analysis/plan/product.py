"""The product's own trainer, `fewsteps plan --train FILE.toml`: `fewsteps train`, then `fewsteps evaluate`.

base = "HuggingFaceTB/SmolLM2-135M-Instruct"     # checkpoint to start from: the pilot's student
preset = "alfworld"                              # of `fewsteps train`
tasks = "valid_seen:140"                         # of the evaluation: none of the pilot's
engine = "vllm"                                  # or transformers
attempts = 1
gpus = 1
[set]                                            # settings of the training
epochs = 2
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from occupancy.record.errors import InputError, RunError
from occupancy.record.reading import read_toml
from occupancy.runs import Run


@dataclass(frozen=True)
class Product:
    """Settings of small trainings, the same for all of them."""

    base: str
    preset: str
    tasks: str
    """Of the evaluation, as the environment reads them."""
    env: str = ""
    """Empty: the pilot's."""
    engine: str = "vllm"
    """Policy that loads a checkpoint: vllm or transformers."""
    attempts: int = 1
    gpus: int = 1
    same_student: bool = False
    """`base` is the pilot's student, although the names differ."""
    keep_students: bool = False
    """Checkpoints are kept after their evaluation."""
    hub: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)
    env_set: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.gpus < 1:
            raise InputError(f"attempts={self.attempts}, gpus={self.gpus}: expected at least 1")

    @property
    def name(self) -> str:
        """Kept trainings are read where the settings are the same."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return f"fewsteps train {blake2b(text.encode(), digest_size=6).hexdigest()}"

    def __call__(self, folders: list[Path], seed: int) -> Path:
        """The folder of an evaluation of a student trained on the folders; see `trainer.Trainer`."""
        own = folders[0].parent
        place = own.parent if own.name == "cells" else own
        student = place / "students" / f"{folders[0].name}-{seed}"
        evaluation = place / "evaluations" / f"{folders[0].name}-{seed}"
        log = place / "logs" / f"{folders[0].name}-{seed}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        launch = (
            ["-m", "torch.distributed.run", "--nproc-per-node", str(self.gpus), "-m", "sft.commands"]
            if self.gpus > 1
            else ["-m", "analysis.cli"]
        )
        changes = [f"--set={name}={_text(value)}" for name, value in {"seed": seed, **self.set}.items()]
        hub = ["--hub"] if self.hub else []
        given = [
            "--base",
            self.base,
            "--preset",
            self.preset,
            "--out",
            str(student),
            *changes,
            *hub,
            "--json",
        ]
        report = run_command([*launch, "train", *map(str, folders), *given], log)
        played = ["--policy", f"{self.engine}:{report['chosen']}", "--tasks", self.tasks]
        played += ["--attempts", str(self.attempts), "--seed", "0", "--out", str(evaluation)]
        played += [f"--env-set={name}={_text(value)}" for name, value in self.env_set.items()]
        run_command(["-m", "analysis.cli", "evaluate", "--env", self.env, *played, "--json"], log)
        if not self.keep_students:
            shutil.rmtree(student, ignore_errors=True)
        return evaluation


def read_product(file: str | Path, pilot: Run) -> Product:
    """The trainer of a TOML file; InputError where its student is not the pilot's."""
    given = read_toml(file, what="--train", error=InputError)
    known = {f.name for f in fields(Product)}
    wrong = sorted(set(given) - known) or sorted({"base", "preset", "tasks"} - set(given))
    if wrong:
        raise InputError(
            f"--train {file} has an unknown or missing entry {wrong[0]!r}: expected base, preset and tasks, "
            f"and where they apply {', '.join(sorted(known - {'base', 'preset', 'tasks'}))}"
        )
    given.setdefault("env", str(pilot.info.get("environment", "")).partition(" ")[0])
    product = Product(**given)
    student = str(pilot.info.get("student", ""))
    if Path(product.base).name not in student and not product.same_student:
        raise InputError(
            f"--train {file} starts from {product.base}, and the pilot's student is {student}: trainings of "
            f"another student say nothing of it; name its checkpoint, or set same_student = true if it is "
            f"the same"
        )
    return product


def run_command(arguments: list[str], log: Path) -> dict[str, Any]:
    """The JSON that a command of fewsteps printed; RunError with its last line where it failed."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    with log.open("a", encoding="utf-8") as handle:
        handle.write(f"$ {' '.join(arguments)}\n{done.stderr}\n")
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
        raise RunError(
            f"{last} (whole output: {log}); trainings made before are kept, the same command goes on"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
