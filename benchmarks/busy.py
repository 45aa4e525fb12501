"""What processes use, and who is busy while a `with` runs: engine, environments, GPU."""

from __future__ import annotations

import os
import platform
import threading
import time
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Self

ENGINE, WORKER = b"EngineCore", b"agentloop.environments.alfworld.worker"
"""What the command lines of the engine's process and of the environments' hold."""


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident memory of a process now (VmRSS) or at its peak (VmHWM), in MB (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024 / 1e6


class Watch:
    """Runs `_watch` in a thread of its own over a `with`."""

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        raise NotImplementedError


class Cores(Watch):
    """CPU seconds of the engine's and the environments' processes over a `with`."""

    def __enter__(self) -> Self:
        self._spent: dict[tuple[bytes, int], tuple[float, float]] = {}
        self._look(first=True)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._look()

    def used(self, name: bytes) -> float:
        """Seconds of the processes called so; one that ends loses what it used since the last look."""
        return sum(last - first for (kind, _), (first, last) in self._spent.items() if kind == name)

    def _watch(self) -> None:
        # A look takes this process some 20 ms.
        while not self._stop.wait(2):
            self._look()

    def _look(self, *, first: bool = False) -> None:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (place / "cmdline").read_bytes()
                for name in (name for name in (ENGINE, WORKER) if name in command):
                    used, key = cpu_s(int(place.name)), (name, int(place.name))
                    # A process that came later has used all of its time within the `with`.
                    began = self._spent.get(key, (used if first else 0.0, used))[0]
                    self._spent[key] = began, used


class Gpu(Watch):
    """Share of the time that the GPU ran anything, by its driver, over a `with`; None without a GPU."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    @property
    def share(self) -> float | None:
        return sum(self._seen) / len(self._seen) / 100 if self._seen else None

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self._stop.wait(0.25):
            self._seen.append(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)


def machine(*packages: str) -> dict[str, Any]:
    """Where this runs, and with which versions; None for a package that is not there."""
    import torch

    installed = {found.metadata["Name"].lower(): found.version for found in distributions()}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version()} | {name: installed.get(name) for name in packages},
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
