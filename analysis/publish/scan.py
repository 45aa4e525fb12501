"""What must not be published unseen: keys, paths and addresses, found in every text, or taken out of it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentloop.policies.secret import Secret

KINDS = {
    "key": (
        r"\b(?:sk|rk|pk)-[\w-]{20,}",
        r"\b(?:gh[opusr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|AIza[\w-]{35})",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)",
        r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@",
        r"(?i:\bbearer\s+[\w.~+/-]{20,}=*)",
        r"(?i:\b(?:api[_-]?key|secret|access[_-]?token|passw(?:or)?d)\b[\"']?\s*[:=]\s*[\"']?[\w/+.-]{16,})",
    ),
    "path": (
        r"(?<![\w.])/(?:home|Users|root|mnt|private|scratch|workspace)(?:/[^\s\"'`<>|:;,)\]}]*)?",
        r"\b[A-Za-z]:\\{1,2}Users\\[^\s\"'`<>|]*",
    ),
    "address": (
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b",
        r"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])",
    ),
}
"""Kind -> patterns; a key may also be one that this process has in its environment."""
_NAMED = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
_PATTERNS = {kind: re.compile("|".join(patterns)) for kind, patterns in KINDS.items()}


@dataclass
class Scan:
    """Texts taken in by `clean`, and what was found in them."""

    redact: bool
    keep: frozenset[str] = frozenset()
    """Kinds that stay as they are."""
    found: Counter[str] = field(default_factory=Counter)
    """Kind -> how often it was found."""
    places: dict[str, str] = field(default_factory=dict)
    """Kind -> where it was found first, and its first letters."""
    _secrets: list[Secret] = field(default_factory=lambda: [*map(Secret, keys_here())])

    def clean(self, value: Any, place: str) -> Any:
        """The value with its findings counted, and with `redact` replaced; texts inside lists and objects."""
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, list | tuple):
            return [self.clean(item, place) for item in value]
        if isinstance(value, Mapping):
            return {name: self.clean(item, place) for name, item in value.items()}
        return value

    def refused(self) -> list[str]:
        """What is found and neither taken out nor allowed: kind, number and first place."""
        if self.redact:
            return []
        left = [kind for kind in self.found if kind not in self.keep]
        return [f"{self.found[kind]:,} of kind {kind} (first: {self.places[kind]})" for kind in left]

    def _text(self, text: str, place: str) -> str:
        for secret in self._secrets:
            hidden = secret.hidden(text)
            if hidden != text:
                self._note("key", "a key of this machine's environment", place)
                text = hidden if self.redact else text
        for kind, pattern in _PATTERNS.items():

            def seen(match: re.Match[str], kind: str = kind) -> str:
                self._note(kind, f"{match[0][:4]}…" if kind == "key" else match[0][:40], place)
                return f"[{kind}]" if self.redact and kind not in self.keep else match[0]

            text = pattern.sub(seen, text)
        return text

    def _note(self, kind: str, what: str, place: str) -> None:
        self.found[kind] += 1
        self.places.setdefault(kind, f"{what!r} in {place}")


def keys_here() -> list[str]:
    """Values of environment variables that are named like keys."""
    return [value for name, value in os.environ.items() if _NAMED.search(name) and len(value) >= 16]
