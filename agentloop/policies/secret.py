"""A key taken out of texts, in every form in which a server may repeat it, before anybody reads them."""

from __future__ import annotations

import re
from base64 import b64encode

LEAST = 8
"""A shorter key (`none`, `EMPTY`) is no secret, and may be a word of an answer."""
ENOUGH = 12
"""So many first letters of a key are taken for it: a server may cut what it repeats."""
SHOWN = "[key]"
_ESCAPES = ("u00", "\\x", "%", "&#")
"""One of them is in every escaped letter."""


class Secret:
    """A key that no text may hold: as it is, spaced out, in base64 or hex, or escaped (JSON, URLs, HTML)."""

    def __init__(self, key: str) -> None:
        letters = (
            [re.compile(_letter(c, blanks=at > 0), re.IGNORECASE) for at, c in enumerate(key)]
            if len(key) >= LEAST
            else []
        )
        self._rest = letters[ENOUGH:]
        start = "".join(letter.pattern for letter in letters[:ENOUGH])
        self._plain, self._encoded = key[:ENOUGH].lower(), [*_base64(key), key.encode().hex()]
        encoded = "|".join(re.escape(form) for form in self._encoded)
        self._start = re.compile(f"(?P<start>{start})|{encoded}", re.IGNORECASE) if letters else None

    def hidden(self, text: str) -> str:
        """The text with [key] in the place of the key."""
        if not self._may_hold(text):
            return text
        parts: list[str] = []
        done = 0
        for found in () if self._start is None else self._start.finditer(text):
            if found.start() < done:
                continue
            end = found.end()
            for letter in self._rest if found["start"] else ():
                if (more := letter.match(text, end)) is None:
                    break
                end = more.end()
            parts += [text[done : found.start()], SHOWN]
            done = end
        return "".join([*parts, text[done:]])

    def _may_hold(self, text: str) -> bool:
        """A fast test that no form of the key passes unseen: most answers end here."""
        lower = text.lower()
        return self._start is not None and (
            self._plain in lower
            or self._plain in "".join(lower.split())
            or any(mark in lower for mark in _ESCAPES)
            or any(form in text or form in lower for form in self._encoded)
        )


def _letter(c: str, *, blanks: bool) -> str:
    """One letter in any spelling, perhaps after blanks."""
    code = ord(c)
    return (r"\s{0,4}" if blanks else "") + (
        rf"(?:{re.escape(c)}|\\+u00{code:02x}|\\+x{code:02x}|%(?:25)*{code:02x}"
        rf"|&\#0*{code};|&\#x0*{code:x};)"
    )


def _base64(key: str) -> list[str]:
    """What base64 of any text with the key in it holds, at each of the three places in a group of bytes."""
    found = []
    for before in range(3):
        whole = b64encode(b"\0" * before + key.encode()).decode().rstrip("=")
        found.append(whole[(0, 2, 3)[before] : len(whole) - (len(whole) % 4 and 1)])
    return [*found, *(form.replace("+", "-").replace("/", "_") for form in found)]
