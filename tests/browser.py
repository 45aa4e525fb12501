"""Pages in a real browser: headless Chromium, from Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest
from waiting import HANG_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def dom(page: Path | str, **fragment: str) -> Elements:
    """The elements of a page (a file, an address) after its scripts have run; `fragment` follows #."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed")
    address = page if isinstance(page, str) else page.resolve().as_uri()
    address += f"#{urlencode(fragment)}" if fragment else ""
    # Its processes may still write into it when the first has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        how = [*flags, f"--user-data-dir={profile}", "--virtual-time-budget=20000", "--dump-dom"]
        done = subprocess.run([CHROMIUM, *how, address], capture_output=True, timeout=HANG_S, check=True)
    return Elements(done.stdout.decode("utf-8"))


class Elements(HTMLParser):
    """Every element of a document: tag, attributes, and the text inside; `find` looks them up."""

    VOID = ("meta", "input", "img", "br", "link", "hr")

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.all: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text: list[str] = []
        self.all.append((tag, dict(attrs), text))
        if tag not in self.VOID:
            self._open.append((tag, text))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, text in self._open:
            text.append(data)

    def find(self, tag: str, of_class: str = "") -> list[str]:
        """Texts of the elements with a tag and, if named, a class."""
        return [
            "".join(text) for t, a, text in self.all if t == tag and (not of_class or self.has(a, of_class))
        ]

    @staticmethod
    def has(attributes: dict[str, str | None], of_class: str) -> bool:
        """Whether a class is among an element's."""
        return of_class in (attributes.get("class") or "").split()
