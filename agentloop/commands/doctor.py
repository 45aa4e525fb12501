"""`fewsteps doctor`: what this machine has of everything that is optional, and how to get what it lacks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from occupancy.record.errors import install_command, installed_version
from occupancy.record.show import Unbroken, add_json, show

if TYPE_CHECKING:
    from agentloop.environments.terminal.machine import Check


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `doctor`."""
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine has of the optional parts, and how to get the others",
        description="Look at the extras, the GPU, the benchmark data and the sandbox of terminal tasks. Exit "
        "code 1 where something that --need names is missing.",
    )
    doctor.add_argument(
        "--need",
        default="",
        metavar="GROUP,...",
        help="parts that have to work: extras, gpu, data, terminal, or the name of an extra",
    )
    doctor.add_argument(
        "--make-image",
        metavar="FOLDER",
        help="make a Debian root file system for terminal tasks there, then look (needs root and mmdebstrap)",
    )
    add_json(doctor)
    doctor.set_defaults(handler=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from dataclasses import asdict
    from pathlib import Path

    from agentloop.environments.terminal.machine import check_sandbox
    from agentloop.environments.terminal.sandbox.images import make_debian
    from occupancy.record.errors import InputError

    if given.make_image:
        make_debian(Path(given.make_image))
    checks = [*check_extras(), check_gpu(), *check_data(), *check_sandbox()]
    needed = set(filter(None, given.need.split(",")))
    known = {check.group for check in checks} | {check.name for check in checks if check.group == "extras"}
    if unknown := needed - known:
        raise InputError(f"--need {', '.join(sorted(unknown))}: expected {', '.join(sorted(known))}")
    lacking = [c for c in checks if c.needed and not c.good and {c.group, c.name} & needed]
    report = {"good": not lacking, "checks": [asdict(check) for check in checks]}
    show(given, report, lambda: _shown(checks, lacking))
    return 1 if lacking else 0


def _shown(checks: Sequence[Check], lacking: Sequence[Check]) -> Iterator[str]:
    """The answer, then what is missing with the commands that get it, then what was found."""
    missing = [check for check in checks if not check.good]
    works = f"{len(checks) - len(missing)} of {len(checks)} parts work"
    if lacking:
        yield f"Needed and missing: {', '.join(map(_name, lacking))}. {works}."
    else:
        yield f"{works}; missing: {', '.join(map(_name, missing))}." if missing else f"{works}."
    for check in missing:
        optional = "" if check.needed else " (optional)"
        yield f"\nmissing: {_name(check)}{optional}: {check.found}"
        yield Unbroken(f"    {check.remedy}")
    yield ""
    for check in checks:
        if check.good:
            yield f"works: {_name(check)}: {check.found}"


def _name(check: Check) -> str:
    return check.name if check.group == check.name else f"{check.name} ({check.group})"


def check_extras() -> list[Check]:
    """Whether the packages of each extra are installed; nothing is imported."""
    import re
    from importlib import metadata

    from agentloop.environments.terminal.machine import Check

    wanted: dict[str, dict[str, str]] = {}
    try:
        declared = metadata.requires("fewsteps") or []
    except metadata.PackageNotFoundError:
        return [Check("extras", "fewsteps", False, "not installed", "pip install -e . (in the clone)")]
    for line in declared:
        found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*);.*extra == ['\"]([\w-]+)['\"]", line)
        if found:
            wanted.setdefault(found[3], {})[found[1]] = found[2].strip()
    checks = []
    for extra, packages in sorted(wanted.items()):
        installed = {name: installed_version(name) for name in packages}
        missing = [name for name, version in installed.items() if not version]
        told = ", ".join(f"{name} {version}" for name, version in installed.items() if version)
        said = f"no {', '.join(missing)}" if missing else told
        checks.append(Check("extras", extra, not missing, said, install_command(extra)))
    return checks


def check_gpu() -> Check:
    """Whether the driver of a GPU answers."""
    import shutil
    import subprocess

    from agentloop.environments.terminal.machine import Check

    remedy = "train, vllm and large models need an NVIDIA GPU with its driver; everything else does not"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("gpu", "gpu", False, "no nvidia-smi", remedy)
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("gpu", "gpu", False, f"nvidia-smi does not answer: {error}", remedy)
    lines = "; ".join(done.stdout.split("\n")).strip("; ")
    good = done.returncode == 0 and bool(lines)
    return Check("gpu", "gpu", good, lines or " ".join(done.stderr.split())[:200], remedy)


def check_data() -> list[Check]:
    """Whether the benchmarks' data are in the folder that FEWSTEPS_DATA names."""
    import os
    from pathlib import Path

    from agentloop.environments.task_specs import HOW_TO_GET
    from agentloop.environments.terminal.machine import Check

    setting = os.environ.get("FEWSTEPS_DATA")
    if not setting:
        return [
            Check("data", "FEWSTEPS_DATA", False, "not set", "set it to the folder of the benchmarks' data")
        ]
    there = {name: Path(setting, name).is_dir() for name in HOW_TO_GET}
    return [
        Check("data", name, there[name], f"{'' if there[name] else 'not '}in {setting}", remedy)
        for name, remedy in HOW_TO_GET.items()
    ]
