"""The viewer that serves a run: the same episodes as the page shows, to this machine's browser alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browser import dom
from test_view import HOSTILE, PILOT, hostile_run
from waiting import HANG_S

from analysis.cli import main
from analysis.view.data import view_data
from analysis.view.page import view
from analysis.view.serve import Viewer, viewer
from occupancy.record.errors import RunError
from occupancy.runs import open_run


def running(run: Path) -> Iterator[Viewer]:
    with viewer(run) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Viewer]:
    yield from running(PILOT)


def get(server: Viewer, path: str, *, host: str = "") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host or f"localhost:{server.port}")
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_served_run_shows_what_its_page_shows(server: Viewer, tmp_path: Path) -> None:
    name = [e for e in open_run(PILOT).read("episodes")["episode_id"].to_pylist() if "#handback" in e][3]
    where = {"e": name, "t": "2", "q": "desklamp 1"}
    one, other = dom(view(PILOT, tmp_path / "page.html"), **where), dom(server.address, **where)
    for tag in ("h2", "article", "dd", "div", "mark"):
        assert one.find(tag) == other.find(tag)
        assert one.find(tag)


def test_turns_are_those_of_the_run(server: Viewer) -> None:
    data = view_data(open_run(PILOT))
    for e in (0, len(data["first_turn"]) - 2):
        status, body = get(server, f"/{server.token}/turns?e={e}")
        found, (first, last) = json.loads(body), data["first_turn"][e : e + 2]
        assert status == 200
        assert found["turns"]["t"] == data["turns"]["t"][first:last]
        said = [found["texts"][at] for at in found["turns"]["text"]]
        assert said == [data["texts"][at] for at in data["turns"]["text"][first:last]]


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/../run.json", "/wrong/", "/wrong/turns?e=0", "http://elsewhere/{}/", "*", "/\u00e9/"),
        *("/{}/../../etc/passwd", "/{}//etc/passwd", "/{}/%2e%2e/run.json", "/{}/run.json", "/{}"),
        *("/{}/turns?e=999999", "/{}/turns?e=-1", "/{}/turns", "/{}/find?q="),
        f"/{{}}/turns?e={'9' * 5000}",
    ],
)
def test_nothing_else_is_answered(server: Viewer, path: str) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    request = f"GET {path.format(server.token)} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n"
    connection.connect()
    connection.sock.sendall(request.encode("latin-1"))
    answer = connection.sock.makefile("rb").readline()
    connection.close()
    assert answer.split()[1] == b"404"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "localhost", "127.0.0.1.evil.example:{}"]
)
def test_another_host_is_refused(server: Viewer, host: str) -> None:
    path = f"/{server.token}/"
    assert get(server, path, host=host.format(server.port))[0] == 403
    assert get(server, path)[0] == get(server, path, host=f"127.0.0.1:{server.port}")[0] == 200


def test_hostile_text_is_text_when_it_is_served(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "<img src=x onerror=alert(1)>")
    for server in running(run.folder):
        found = dom(server.address, q=HOSTILE[:30])
        tags = [tag for tag, _, _ in found.all]
        assert tags.count("script") == 2
        assert not {"img", "svg"} & set(tags)
        assert HOSTILE in found.find("div", "said")
        assert found.find("mark")


def test_a_taken_port_and_a_port_without_a_server_are_one_line(
    server: Viewer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunError, match="another --port"):
        viewer(PILOT, port=server.port)
    assert main(["view", str(PILOT), "--out", str(tmp_path / "p.html"), "--port", "8000"]) == 2
    assert main(["view", str(PILOT), "--serve", "--out", str(tmp_path / "p.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_ctrl_c_ends_it_though_a_browser_keeps_its_connection_open() -> None:
    run = f"raise SystemExit(main(['view', {str(PILOT)!r}, '--serve', '--json']))"
    # A shell's background jobs ignore SIGINT.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    patient = "from analysis.view import serve; serve._Handler.timeout = 3600"  # it waits for no connection
    command = [sys.executable, "-c", f"{heard}; {patient}; from analysis.cli import main; {run}"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ, **pipes) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            port = int(address.split(":")[2].split("/")[0])
            with socket.create_connection(("127.0.0.1", port)):
                process.send_signal(signal.SIGINT)
                assert process.wait(HANG_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()
