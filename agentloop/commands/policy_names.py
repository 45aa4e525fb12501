"""What the policies of one `evaluate` are called, by what they differ in, and which folder each is in.

What all policies of a call share says nothing about one of them: vllm:STUDENTS/bc/epoch-005,max_tokens=160
and vllm:STUDENTS/op/epoch-005,max_tokens=160 are `bc` and `op`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentloop.run.evaluate import Evaluation
from occupancy.record.distinct import differences
from occupancy.record.errors import InputError
from occupancy.runs import open_run

LONGEST = 60
"""Letters of a name: of four bytes each at most, and file systems take names of 255 bytes."""
_NAMED = re.compile(r"(\w[\w.+-]*)=(.+)")


def split_name(text: str) -> tuple[str, str]:
    """Name and policy of NAME=POLICY; the name of a policy alone is empty.

    A policy's own settings come after a colon or a comma, which no name has.
    """
    named = _NAMED.fullmatch(text)
    return (named[1], named[2]) if named else ("", text)


def names_of(policies: Sequence[str], given: Sequence[str]) -> list[str]:
    """A name for each policy, as given or else by what distinguishes it; a policy alone keeps its text.

    Several names are those of folders, and differ even where a disk ignores the case of letters.

    Args:
        policies: [P] as runs record them, without the address of a server.
        given: [P] names by the user; empty where there is none.

    Raises:
        InputError: Two policies, or two given names, are the same.
    """
    if len(policies) == 1:
        return [given[0] or policies[0]]
    for texts in (policies, [name.casefold() for name in given if name]):
        for text, count in Counter(texts).items():
            if count > 1:
                raise InputError(
                    f"--policy {text} is given {count} times, and would share the folder; give each once, or "
                    f"evaluate it in a call of its own"
                )
    own = [_plain(text) for text in differences(policies)]
    made = [name or other for name, other in zip(given, own, strict=True)]
    alike = Counter(map(str.casefold, made))
    fits = [0 < len(name) <= LONGEST and alike[name.casefold()] == 1 for name in made]
    each = zip(given, made, fits, policies, strict=True)
    return [name if kept or chosen else _marked(name, policy) for chosen, name, kept, policy in each]


def folders_of(out: Path, names: Sequence[str], settings: Sequence[Evaluation]) -> list[Path]:
    """The folder of each evaluation: `out` for one; of several OUT/NAME, or where the same one was begun.

    An evaluation that was begun under another name, by an earlier version or beside other policies, goes on
    there and is not played again.
    """
    if len(names) == 1:
        return [out]
    # Older runs say nothing of the parse statuses that they end on: there were none.
    before: dict[str, Any] = {"end_on": []}
    begun = {file.parent: {**before, **open_run(file.parent).info} for file in out.glob("*/run.json")}

    def folder(name: str, asked: Evaluation) -> Path:
        own = out / name
        same = sorted(at for at, info in begun.items() if asked.info.items() <= info.items())
        if same:
            return own if own in same else same[0]
        others = own in begun and begun[own].get("student") != asked.policy
        return out / _marked(_plain(asked.policy), asked.policy) if others else own

    return [folder(name, asked) for name, asked in zip(names, settings, strict=True)]


def _plain(text: str) -> str:
    """The text without what disks or shells take for something else."""
    return re.sub(r"[^\w.=-]+", "-", text).strip("-.")


def _marked(name: str, policy: str) -> str:
    """The name with a digest of the whole policy."""
    digest = blake2b(policy.encode(), digest_size=4).hexdigest()
    return f"{name[: LONGEST - len(digest) - 1]}-{digest}".lstrip("-")
