"""Profiles and fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# Read when numpy is loaded: matrices of tests are small, so threads would only wait, twice the time in all.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from agentloop.environments.hotpotqa.retrieval.index import Bm25

pytest.register_assert_rewrite("toy_runs")
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"


def pytest_configure(config: pytest.Config) -> None:
    """64-bit words wrap in kernels; only uncompiled, and in any thread, does numpy warn of it."""
    if INTERPRETED:
        config.addinivalue_line("filterwarnings", "ignore:overflow encountered in scalar")


# No example fails for the time that it takes: another program may have the machine.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", TIMELESS, max_examples=25)
settings.register_profile("ci", TIMELESS, max_examples=60, derandomize=True, print_blob=True)
settings.register_profile("nightly", TIMELESS, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real benchmark data; missing data fail in CI and skip elsewhere."""
    folder = os.environ.get("FEWSTEPS_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    message = f"FEWSTEPS_DATA={folder!r} is not a folder: set it to the folder that holds alfworld/"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def real_index(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Bm25:
    """The index of all real HotpotQA paragraphs, built once in a run of the tests."""
    from agentloop.environments.hotpotqa.retrieval.index import open_bm25

    shared = tmp_path_factory.getbasetemp().parent / "hotpotqa-index"
    return open_bm25([data_dir / "hotpotqa" / "corpus.parquet"], cache=shared)


NOT_LOCKED = ("vllm", "inspect_ai", "FEWSTEPS_VALIDATORS")
"""Their pins conflict with the lock, so their tests run in environments of their own."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything is installed nothing is skipped: a skipped test in CI is a missing package."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = (
        [
            r
            for r in reporter.stats.get("skipped", [])
            if not any(name in str(r.longrepr) for name in NOT_LOCKED)
        ]
        if reporter
        else []
    )
    if os.environ.get("CI") and skipped:
        reporter.write_line(f"{len(skipped)} skipped in CI, expected none: install what make installs")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
