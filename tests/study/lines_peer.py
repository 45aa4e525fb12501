"""A process for tests of `analysis.study.lines`: it adds, prints, raises, and dies in several ways."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from analysis.study.lines import serve
from occupancy.record.errors import DataError


async def answer(request: dict[str, Any]) -> Any:
    match request:
        case {"add": [a, b]}:
            sys.stdout.write("a line that is no JSON, and would be read as an answer\n")
            sys.stdout.flush()
            await asyncio.sleep(0.05 * a)
            return a + b
        case {"print": characters}:
            return "x" * characters
        case {"raise": "ours"}:
            raise DataError("the table has no row")
        case {"raise": _}:
            raise ZeroDivisionError("division by\nzero")
        case {"fork": file}:
            if (child := os.fork()) == 0:
                while True:
                    time.sleep(60)
            Path(file).write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
    return os.getpgid(0)


if __name__ == "__main__":
    asyncio.run(serve(answer))
