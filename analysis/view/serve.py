"""The viewer of a run on this machine alone, for runs whose page would be too large.

The page holds the list of episodes and asks for the turns of the one that is looked at. The server listens
on the loopback address, answers three requests and reads no other file: `/TOKEN/` is the page, `turns?e=3`
the turns of an episode, `find?q=mug` the episodes with a text. The token keeps other users of the machine
out, the check of the host other people's web pages.
"""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from analysis.view.data import Texts, Viewed, viewed
from analysis.view.page import as_json, page_of
from occupancy.record.errors import RunError
from occupancy.runs import open_run

HOST = "127.0.0.1"
Answer = Callable[[str], tuple[str, bytes] | None]
"""From what follows the token in an address to a content type and a body; None: there is nothing."""


class Viewer(ThreadingTCPServer):
    """Serves a run until it is shut down; `address` is where."""

    allow_reuse_address = True
    daemon_threads = True  # an answer on its way does not hold Ctrl-C up

    def __init__(self, answer: Answer, port: int) -> None:
        self.answer = answer
        self.token = token_urlsafe(16)
        super().__init__((HOST, port), _Handler)
        self.port = int(self.server_address[1])
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        self.address = f"http://{HOST}:{self.port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone away is no event."""


def viewer(run: str | Path, *, port: int = 0, rendered: dict[str, Any] | None = None) -> Viewer:
    """A server of a run's viewer, ready for `serve_forever`; arguments as of `analysis.view.page.view`.

    Args:
        port: 0 takes a free one.

    Raises:
        RunError: The port is taken or not allowed.
    """
    answer = answers(viewed(open_run(run), rendered=rendered))
    try:
        return Viewer(answer, port)
    except OSError as error:
        raise RunError(f"cannot listen at {HOST}:{port} ({error.strerror}): name another --port") from error


def answers(seen: Viewed) -> Answer:
    """What a viewer answers."""
    page = page_of({**seen.index, "texts": seen.texts.all}).encode("utf-8", "replace")
    begins = seen.index["first_turn"]
    episodes = {str(e): e for e in range(len(begins) - 1)}

    def answer(request: str) -> tuple[str, bytes] | None:
        asked = urlsplit(request)
        given = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if asked.path == "":
            return "text/html; charset=utf-8", page
        if asked.path == "turns" and (e := episodes.get(given.get("e", ""))) is not None:
            texts = Texts()
            turns = seen.told(begins[e], begins[e + 1], texts)
            return "application/json", as_json({"turns": turns, "texts": texts.all})
        if asked.path == "find" and given.get("q"):
            return "application/json", as_json(_find(seen, given["q"].lower()))
        return None

    return answer


def _find(seen: Viewed, needle: str) -> list[int]:
    """Episodes with a turn or an observation that holds `needle`, in small letters."""
    hit = np.zeros(len(seen.turns), dtype=bool)
    for name in ("text", "observation"):
        hit |= seen.turns[name].str.lower().str.contains(needle, regex=False).to_numpy(bool)
    after = np.searchsorted(seen.index["first_turn"], np.flatnonzero(hit), side="right")
    return [int(e) for e in np.unique(after) - 1]


class _Handler(BaseHTTPRequestHandler):
    server: Viewer
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer a request that comes from this machine's own page."""
        prefix = f"/{self.server.token}/"
        begins, rest = self.path[: len(prefix)], self.path[len(prefix) :]
        if self.headers.get("Host") not in self.server.hosts:
            self._send(403, "text/plain", b"expected this machine's own name as the host")
        elif compare_digest(begins.encode(), prefix.encode()) and (found := self.server.answer(rest)):
            self._send(200, *found)
        else:
            self._send(404, "text/plain", b"nothing is here: use the address that fewsteps view printed")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: Any) -> None:
        """Nothing: the terminal shows the address alone."""
