"""What of a terminal is compared when turns are played again: no times, no load, no names that were drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .tasks.task import HOME

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_TMP = re.compile(r"/tmp/tmp[.\w]+")
_CHANGING = (
    (
        re.compile(
            rf"\b(?:{_MONTHS})\s+\d{{1,2}}\s+(?:\d\d:\d\d(?::\d\d)?(?:\s+(?:UTC\s+)?\d{{4}})?|\d{{4}})"
        ),
        "DATE",
    ),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?: ?[+-]\d{4}|Z)?"), "DATE"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d(?:\.\d+)?)?\b"), "TIME"),
    (re.compile(r"\b1[6-9]\d{8}(?:\.\d+)?\b"), "TIME"),  # seconds since 1970
    (re.compile(r"\b(?:\d+m)?\d+\.\d+ ?s(?:ec(?:onds?)?)?\b"), "DURATION"),
    (re.compile(r"\[\d+\] \d+"), "JOB"),
    (_TMP, "TMP"),
    (re.compile(r"\b0x[0-9a-f]{8,16}\b"), "ADDRESS"),
    (re.compile(r"\bload average: [\d., ]+"), "LOAD"),
    (re.compile(r"\bDevice: \S+\s+Inode: \d+\s+"), "INODE "),
    # What ps says of a process's memory and state.
    (re.compile(r"^(\S+ +\d+) +\d+\.\d +\d+\.\d +\d+ +\d+ +(\S+) +\S+ ", re.MULTILINE), r"\1 USE \2 "),
    # /proc has as many links as the machine has processes, and ls makes its column as wide as they need.
    (re.compile(r"^([-bcdlps][rwxsStT-]{9}[.+]?)\s+\d+\s+(\S+)\s+(\S+)\s+", re.MULTILINE), r"\1 N \2 \3 "),
)


def comparable_text(text: str) -> str:
    """A text without what differs from one play of the same turns to the next."""
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return text


def comparable_changes(changed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Path and state of each changed file; without dot files at home, and names of temporary files.

    What Python compiles holds the time of its source, and is compared by its name.
    """
    return sorted(
        (_TMP.sub("/tmp/TMP", path), "" if path.endswith(".pyc") else told)
        for path, told in changed.items()
        if not path.startswith(f"{HOME}/.")
    )
