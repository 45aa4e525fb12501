"""What a finished job leaves in its folder: job.json, by which it is known again and not done twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentloop.policies.token_policy import TokenSpec
from analysis.study.jobs import Equipment, Job, to_json
from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError
from occupancy.record.reading import read_json
from occupancy.record.specs import read

FILE = "job.json"
BESIDE_OTHERS = {"cache_gib": 4, "at_once": 64}
"""What vLLM may take of a GPU on which students are trained too, and perhaps other workers work."""
MACHINES_OWN = ("memory", "cache_gib", "at_once", "eager", "logprobs", "hub")
"""Settings of a policy that change no turn."""


def finished(job: Job, equipment: Equipment, study: Path) -> Path | None:
    """The job's result where it is finished; None where there is anything left to do.

    Raises:
        DataError: the folder holds the result of another job.
    """
    file = job.out / FILE
    if not file.exists():
        return None
    found = read_json(file, then=f"remove {job.out}")
    wanted = _described(job, equipment, study)
    if found.get("job") != wanted:
        differ = sorted(k for k in wanted if found.get("job", {}).get(k) != wanted[k])
        raise DataError(
            f"{job.out} holds the result of another job (its {', '.join(differ)} differ): name a new folder"
        )
    result = job.out / found["result"]
    # Checkpoints need not have come along to this machine.
    return result if any((result / name).exists() for name in ("run.json", "config.json")) else None


def finish(
    job: Job, equipment: Equipment, study: Path, *, result: Path, seconds: Mapping[str, float], **also: Any
) -> None:
    """Write the job's job.json: what it was, its result, what it took; the last step of a job."""
    said = {
        "job": _described(job, equipment, study),
        "result": str(result.relative_to(job.out)),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        **also,
    }
    write_whole(job.out / FILE, json.dumps(said, indent=2, sort_keys=True) + "\n")


def student_name(student: Path | str, equipment: Equipment, study: Path) -> str:
    """What a student is called in run folders: the same on every machine.

    A checkpoint is named after its training, since that has one result.
    """
    if isinstance(student, str):
        return student
    spec = sampling(equipment, "")
    changed = (f"{name}={getattr(spec, name)}" for name in equipment.sampling if name not in MACHINES_OWN)
    return ",".join([f"{equipment.engine}:{_relative(student, study)}", *sorted(changed)])


def sampling(equipment: Equipment, folder: str | Path) -> TokenSpec:
    """The policy of a student: the equipment's settings, and room on the GPU for a training."""
    settings = {**(BESIDE_OTHERS if equipment.engine == "vllm" else {}), **equipment.sampling}
    texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in settings.items()}
    given = [f"{name}={text}" for name, text in texts.items()]
    return read(TokenSpec, given, of="sampling", folder=str(folder))


def _described(job: Job, equipment: Equipment, study: Path) -> dict[str, Any]:
    """The job and what of the equipment its result depends on, without paths of this machine."""
    described = {name: value for name, value in to_json(job).items() if name not in ("out", "keep")}
    if "folders" in described:
        described["folders"] = [_relative(Path(folder), study) for folder in described["folders"]]
        described |= {"preset": equipment.preset, "base": _relative(Path(equipment.base), study)}
        described |= {"turn_tokens": equipment.turn_tokens, "overflow": equipment.overflow}
    if described.get("student_is") == "folder":
        described["student"] = _relative(Path(described["student"]), study)
    if described["kind"] != "train":
        kept = {name: value for name, value in equipment.sampling.items() if name not in MACHINES_OWN}
        described |= {"sampling": kept, "env": equipment.env, "env_settings": dict(equipment.env_settings)}
    plain: dict[str, Any] = json.loads(json.dumps(described))
    return plain


def _relative(path: Path, study: Path) -> str:
    inside = path.resolve().is_relative_to(study.resolve())
    name = str(path.resolve().relative_to(study.resolve())) if inside else path.name
    return re.sub(r"/epoch-\d+$", "", name)
