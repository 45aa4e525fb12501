"""Lines of JSON between fewsteps and the agent that it plays through, in two processes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

LONGEST_LINE = 64 << 20
"""Bytes of one line: a command's output in JSON."""


async def sent(writer: asyncio.StreamWriter, record: dict[str, Any]) -> None:
    """Send one record."""
    writer.write(json.dumps(record).encode() + b"\n")
    await writer.drain()


async def said(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next record; None where the other side has closed or sends something else."""
    try:
        line = await reader.readline()
        record = json.loads(line) if line else None
    except (ValueError, OSError):
        return None
    return record if isinstance(record, dict) else None
