"""A program that looks like `harbor run` to fewsteps: its container is a local sandbox, its result is given.

FAKE_RESULT=JSON python fake_harbor.py run ... --ak socket=PATH --jobs-dir FOLDER; FAKE_RESULT=crash ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

from agentloop.environments.terminal.harbor.trial import LONGEST_LINE, said, sent
from agentloop.environments.terminal.sandbox.images import open_image
from agentloop.environments.terminal.sandbox.sandbox import open_sandbox


async def main(arguments: list[str]) -> None:
    given = dict(pairwise(arguments))
    if os.environ["FAKE_RESULT"] == "crash":
        sys.exit("no daemon is running")
    async with open_sandbox(open_image().layers) as sandbox:
        socket = given["--ak"].removeprefix("socket=")
        reader, writer = await asyncio.open_unix_connection(socket, limit=LONGEST_LINE)
        await sent(writer, {"instruction": "Write hello to out.txt."})
        while (asked := await said(reader)) is not None and "run" in asked:
            ran = await sandbox.run(asked["run"])
            await sent(writer, {"output": ran.output.decode(), "code": ran.code})
        solved = (await sandbox.run("grep -qx hello out.txt")).code == 0
    folder = Path(given["--jobs-dir"]) / "job" / "hello__1"
    folder.mkdir(parents=True)
    verdict = {"rewards": {"reward": float(solved)}}
    result = {"task_name": "hello", "trial_name": "hello__1", "verifier_result": verdict}
    (folder / "result.json").write_text(json.dumps(result | json.loads(os.environ["FAKE_RESULT"])))


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        sys.stdout.write("0.26.0\n")
    else:
        asyncio.run(main(sys.argv[2:]))
