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


class MissingExtra(InputError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package, self.extra = package, extra

    def __str__(self) -> str:
        return (
            f"{self.package} is not installed: it comes with the extra '{self.extra}'; "
            f"run: pip install 'fewsteps[{self.extra}]'"
        )


class RunError(FewstepsError, RuntimeError):
    """The work was tried and failed."""


class BudgetStopped(FewstepsError):
    """The budget is spent; the run folder is valid and can be resumed."""

    exit_code = 3
