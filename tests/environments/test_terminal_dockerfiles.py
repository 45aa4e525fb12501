"""Start states from Dockerfiles: what is done of the format, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_terminal_folders import benchmark, cache, graded, harbor

from agentloop.environments.terminal.tasks.dockerfile import read_steps
from occupancy.record.errors import InputError

__all__ = ["cache"]


def test_a_start_state_is_built(tmp_path: Path, cache: Path) -> None:
    docker = r"""# syntax=docker/dockerfile:1
FROM python:3.12-slim AS base
ARG WHO=me
ENV GREETING="hello you" A=1
WORKDIR /srv/place
COPY data.txt sub/ ./
COPY data.txt /etc/data
RUN echo one > made && \
    # a comment
    echo $GREETING $WHO >> made
RUN <<EOF
echo two >> made
rm /srv/place/gone
EOF
CMD ["bash"]
"""
    place = harbor(tmp_path / "tasks" / "built", docker=docker)
    (place / "environment" / "data.txt").write_text("data\n")
    (place / "environment" / "sub").mkdir()
    for name in ("kept", "gone"):
        (place / "environment" / "sub" / name).write_text(name)
    check = """cat made kept data.txt /etc/data > /tmp/got
same=$(cmp -s /tmp/got /tests/want && [ ! -e gone ] && [ "$A" = 1 ] && echo 1)
echo ${same:-0} > /logs/verifier/reward.txt
"""
    (place / "tests" / "test.sh").write_text(check)
    (place / "tests" / "want").write_text("one\nhello you me\ntwo\nkeptdata\ndata\n")
    opened = benchmark(tmp_path / "tasks")
    assert graded(opened, "built") == 1
    assert graded(opened, "built", "rm made") == 0


def test_files_are_copied_behind_links_and_into_the_images_own_folders(tmp_path: Path, cache: Path) -> None:
    docker = r"""FROM debian
RUN ln -s /app /data && mkdir -m 1777 /wide
WORKDIR /usr/src/place
WORKDIR ../four
COPY --chmod=755 tool /usr/local/bin/tool
COPY tree/ /
COPY tool /data/here
COPY tool /wide/
COPY <<EOF /usr/share/words
a word
EOF
RUN cat <<< "no text follows" && echo $((1<<2)) > four
ENV A=${B:-none}
RUN [ $(tool)$(other) = twice ] && [ -L /bin ] && [ -f /app/here ] && [ -f /wide/tool ] && \
    [ "$(stat -c %a /wide /private | tr '\n' ' ')" = "1777 700 " ] && [ $A$(cat four) = none4 ] && \
    grep -q "a word" /usr/share/words && pwd > /app/where
WORKDIR /app
"""
    context = (
        harbor(tmp_path / "tasks" / "copied", docker=docker.replace("RUN cat", "RUN\tcat")) / "environment"
    )
    for name, text in (("tool", "printf tw"), ("tree/bin/other", "printf ice"), ("tree/private/file", "")):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(f"#!/bin/sh\n{text}\n")
        (context / name).chmod(0o644 if name == "tool" else 0o755)
    (context / "tree" / "private").chmod(0o700)
    done = "echo hello > /app/out.txt; [ $(cat /app/where)$(tool) = /usr/src/fourtw ] || rm /app/out.txt"
    assert graded(benchmark(tmp_path / "tasks"), "copied", done) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("FROM a\nFROM b\n", "several stages"),
        ("FROM a\nCOPY --from=x /a /b\n", "several stages"),
        ("FROM a\nVOLUME /x\n", "VOLUME is not supported"),
        ("FROM a\nRUN cat <<EOF\nno end\n", "a line EOF after it"),
    ],
)
def test_dockerfiles_that_are_not_supported_are_refused(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_steps(text, of="Dockerfile")


def test_a_build_that_fails_says_why(tmp_path: Path, cache: Path) -> None:
    for name, docker, told in (
        ("net", "FROM a\nRUN echo before; curl -sS http://1.1.1.1/ || exit 7\n", "failed without a network"),
        ("away", "FROM a\nCOPY ../../tests /tests\n", "no such file in the folder"),
        ("user", "FROM a\nUSER somebody\n", "tasks run as root"),
        ("work", "FROM a\nWORKDIR /usr/src/app\n", "WORKDIR /usr/src/app: .* cannot be verified here"),
        ("owner", "FROM a\nCOPY --chown=1000 . /app\n", "options are not supported"),
        ("quote", "FROM a\nENV A=it's\n", "quotes in pairs"),
        ("round", "FROM a\nRUN ln -s /a /b && ln -s /b /a\nWORKDIR /a/x\n", "too many links"),
    ):
        harbor(tmp_path / "tasks" / name, docker=docker)
        with pytest.raises(InputError, match=told):
            graded(benchmark(tmp_path / "tasks"), name)
