"""The errors a user can cause, each with the exit code of the command line.

    FewstepsError
    ├── InputError(ValueError)        exit 2: what was given cannot be used
    │   ├── RecipeError               an impossible recipe or mix
    │   ├── DataError                 a table, batch or run folder that breaks its contract
    │   └── MissingExtra(ImportError) a package that an extra installs
    ├── RunError(RuntimeError)        exit 1: the work was tried and failed
    └── BudgetStopped                 exit 3: the budget is spent; the run can be resumed

Every message says what was given, what was expected and what to do.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_CLONE = Path(__file__).parents[2]
_PACKAGES = ("occupancy", "simulate", "agentloop", "sft", "analysis")
_OURS = tuple(str(_CLONE / package) + os.sep for package in _PACKAGES)


class FewstepsError(Exception):
    """Root of every error raised on purpose."""

    exit_code = 1


class InputError(FewstepsError, ValueError):
    """What was given cannot be used."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe or mix that no run could follow."""


class DataError(InputError):
    """A batch, table or run folder that breaks its contract."""


def one_of(allowed: Collection[str], *, error: type[InputError] = InputError, **given: object) -> None:
    """Refuse a value that is not allowed, by the name that it is given under."""
    for name, value in given.items():
        if value not in allowed:
            raise error(f"{name}={value!r}: expected one of {', '.join(allowed)}")


class MissingExtra(InputError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package, self.extra = package, extra

    def __str__(self) -> str:
        return (
            f"{self.package} is not installed: it comes with the extra '{self.extra}'; "
            f"run: {install_command(self.extra)}"
        )


def imported(module: str, extra: str, package: str = "") -> Any:
    """A module that comes with an extra; MissingExtra, which names its package, where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(package or module.partition(".")[0], extra) from error


def installed_version(package: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def own_version() -> str:
    """The version of this package, or that it has none."""
    return installed_version("fewsteps") or "run from its source, not installed"


def install_command(extra: str) -> str:
    """The `pip install` of an extra: from the clone that this is, as no package index has fewsteps."""
    clone = str(_CLONE) if (_CLONE / "pyproject.toml").exists() else "PATH_OF_THE_CLONE"
    if extra == "alfworld":  # without spaCy, which a dependency declares and no game uses
        lock = shlex.quote(f"{clone}/locks/alfworld.txt")
        return f"pip install -e {shlex.quote(clone)} && pip install --no-deps -r {lock}"
    return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"


class RunError(FewstepsError, RuntimeError):
    """The work was tried and failed."""


class BudgetStopped(FewstepsError):
    """The budget is spent; the run folder is valid and can be resumed."""

    exit_code = 3


def frame_of(error: BaseException) -> str:
    """' (FILE, line N)' of the innermost frame that is a user's own code; empty where there is none."""
    found, trace = "", error.__traceback__
    libraries = (os.path.dirname(os.__file__) + os.sep, *_OURS)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((*libraries, "<")) and "site-packages" not in file:
            shown = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
            found = f" ({shown}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found
