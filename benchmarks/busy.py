"""Who is busy while a `with` runs: the engine's process, the environments' processes, the GPU; and where."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

ENGINE, WORKER = b"EngineCore", b"agentloop.environments.alfworld.worker"
"""What the command lines of the engine's process and of the environments' hold."""


class Cores:
    """CPU seconds of the engine's and the environments' processes over a `with`."""

    def __enter__(self) -> Cores:
        self._spent: dict[tuple[bytes, int], tuple[float, float]] = {}
        self._look(first=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def used(self, name: bytes) -> float:
        """Seconds of the processes called so; one that ends loses what it used since the last look."""
        return sum(last - first for (kind, _), (first, last) in self._spent.items() if kind == name)

    def _watch(self) -> None:
        # A look takes this process some 20 ms.
        while not self._stop.wait(2):
            self._look()

    def _look(self, *, first: bool = False) -> None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                command = stat.with_name("cmdline").read_bytes()
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            for name in (ENGINE, WORKER):
                if name in command:
                    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    key = name, int(stat.parent.name)
                    # A process that came later has used all of its time within the `with`.
                    began = self._spent.get(key, (used if first else 0.0, used))[0]
                    self._spent[key] = began, used


class Gpu:
    """Share of the time that the GPU ran anything, by its driver, over a `with`; None without a GPU."""

    def __enter__(self) -> Gpu:
        self._seen: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.share = sum(self._seen) / len(self._seen) / 100 if self._seen else None

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self._stop.wait(0.25):
            self._seen.append(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)


def machine() -> dict[str, Any]:
    """Where this ran, and with what."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "cores": len(os.sched_getaffinity(0))}
    found["versions"] = {"python": platform.python_version()}
    for name in ("vllm", "torch", "transformers", "tokenizers"):
        try:
            found["versions"][name] = version(name)
        except PackageNotFoundError:
            found["versions"][name] = None
    import torch

    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return found
