"""Processes of an engine end with the process that started them, however that ended."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import active_count

import pytest
from waiting import ends, running

from agentloop.policies.orphans import end_with, parent_of

STARTED = """
import subprocess, sys, time
from agentloop.policies import orphans
orphans.LOOK_S = 0.01
owner, deeper = int(sys.argv[1]), int(sys.argv[2])
if deeper:
    subprocess.Popen([sys.executable, "-c", sys.argv[3], str(owner), str(deeper - 1), sys.argv[3]])
else:
    orphans.end_with(owner)
    print("watched", flush=True)
time.sleep(600)
"""
OWNER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2], sys.argv[1]])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("deeper", [0, 1])
def test_an_engine_ends_after_its_owner_was_killed(deeper: int) -> None:
    """In a process of its own, and with a worker below it, as on a CPU."""
    command = [sys.executable, "-c", OWNER, STARTED, str(deeper)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        core = int(owner.stdout.readline())
        assert owner.stdout.readline() == b"watched\n"
        assert running(core)
        owner.kill()
        assert ends(core)
        assert not owner.stdout.read(), "the worker has ended too: nobody holds the pipe"


def test_nobody_is_watched_whose_owner_is_neither_parent_nor_grandparent() -> None:
    """Under Ray it is another machine's; where the engine is in this process, it is this one."""
    threads = active_count()
    for owner in (os.getpid(), 2**31):
        end_with(owner)
    assert active_count() == threads
    assert parent_of(os.getpid()) == os.getppid()
    assert parent_of(2**31) == 0
