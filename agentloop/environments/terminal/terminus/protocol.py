"""The JSON protocol of Terminus-2: a turn's text as commands, with its warnings, repairs and errors.

A turn is one JSON object: analysis, plan, commands (keystrokes and duration each), and task_complete, which
counts when it is said twice in a row. Texts that the model reads back are those of Terminus-2 in Harbor 0.26,
so that what is collected here fits what is collected there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from occupancy.record.finish import after_reasoning
from occupancy.record.rows import storable

LONGEST_S = 60.0
"""Most seconds that a command is waited for, whatever a turn says."""
DEFAULT_S = 1.0
MOST_BYTES = 10_000
"""Bytes of an observation's terminal output, in UTF-8; of a longer one the middle is left out."""
FIELDS = ("analysis", "plan", "commands")
CONFIRM = (
    "Current terminal state:\n{seen}\n\nAre you sure you want to mark the task as complete? This will "
    "trigger your solution to be graded and you won't be able to make any further corrections. If so, "
    'include "task_complete": true in your JSON response again.'
)


@dataclass(frozen=True, slots=True)
class Command:
    """Keystrokes for the terminal."""

    keystrokes: str
    duration_s: float
    """Seconds to wait, from 0 to `LONGEST_S`."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a turn's text says."""

    commands: tuple[Command, ...] = ()
    complete: bool = False
    error: str = ""
    """Why nothing of it is played; empty for a turn that can be."""
    warnings: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The parse status: ok, warnings, or invalid."""
        return "invalid" if self.error else "warnings" if self.warnings else "ok"

    def told(self) -> str:
        """The warnings as the model reads them."""
        return "\n".join(f"- {warning}" for warning in self.warnings)


def parse_turn(text: str) -> Parsed:
    """A turn's text as commands; a text with an error is repaired where one of two simple repairs does it.

    Reasoning in the text is left out, as Terminus-2 reads a provider's answer without it.
    """
    said = after_reasoning(text)
    parsed = _parse(said)
    if parsed.error and said != text and not (whole := _parse(text)).error:
        return whole  # keystrokes may hold what ends a block of reasoning
    if not parsed.error:
        return parsed
    for name, repair in _REPAIRS:
        mended = repair(said, parsed.error)
        better = _parse(mended) if mended is not None else parsed
        if not better.error:
            told = f"AUTO-CORRECTED: {name} - please fix this in future responses"
            return replace(better, warnings=(told, *better.warnings))
    return parsed


def after_error(parsed: Parsed) -> str:
    """What is said to a turn that could not be parsed."""
    warnings = f"\nWARNINGS: {parsed.told()}" if parsed.warnings else ""
    return (
        f"Previous response had parsing errors:\nERROR: {parsed.error}{warnings}\n\n"
        "Please fix these issues and provide a proper JSON response."
    )


def after_commands(parsed: Parsed, seen: str) -> str:
    """What is said to a turn whose commands were played, and which is not the end.

    seen  the terminal's output, as `shortened` makes it
    """
    if parsed.complete:
        return CONFIRM.format(seen=seen)
    if parsed.warnings:
        return f"Previous response had warnings:\nWARNINGS: {parsed.told()}\n\n{seen}"
    return seen


def shortened(output: str) -> str:
    """An output of at most `MOST_BYTES`: both ends of a longer one, and how much is left out."""
    data = output.encode("utf-8", "backslashreplace")
    if len(data) <= MOST_BYTES:
        return output
    half = MOST_BYTES // 2
    head, tail = (part.decode("utf-8", "ignore") for part in (data[:half], data[-half:]))
    left = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... output limited to {MOST_BYTES} bytes; {left} interior bytes omitted ...]\n{tail}"


def turn_text(analysis: str, plan: str, commands: list[tuple[str, float]], *, complete: bool = False) -> str:
    """A turn in the protocol, as scripted policies write it; `commands` are keystrokes and seconds."""
    turn: dict[str, Any] = {
        "analysis": analysis,
        "plan": plan,
        "commands": [{"keystrokes": keys, "duration": seconds} for keys, seconds in commands],
    }
    return json.dumps(turn | ({"task_complete": True} if complete else {}), ensure_ascii=False, indent=1)


class _Invalid(Exception):
    """Why nothing of a turn can be played."""


def _parse(text: str) -> Parsed:
    warnings: list[str] = []
    commands: list[Command] = []
    complete, error = False, ""
    try:
        data = _read_object(text, warnings)
        said = data.get("task_complete", False)
        complete = said.lower() in ("true", "1", "yes") if isinstance(said, str) else bool(said)
        commands = _commands(data["commands"], warnings)
    except _Invalid as invalid:
        error = str(invalid)
    if error and complete:
        warnings.append(error)
        error = ""
    return Parsed(tuple(commands), complete, error, tuple(warnings))


def _first_object(text: str) -> tuple[str, list[str]]:
    """The first text between balanced braces, strings and escapes respected, and what is around it."""
    start, depth, in_string, escaped = -1, 0, False, False
    for i, letter in enumerate(text):
        if escaped or letter == "\\":
            escaped = not escaped
        elif letter == '"':
            in_string = not in_string
        elif letter == "{" and not in_string:
            start = i if depth == 0 else start
            depth += 1
        elif letter == "}" and not in_string:
            depth -= 1
            if depth == 0 and start >= 0:
                around = {"before": text[:start], "after": text[i + 1 :]}
                extra = [where for where, part in around.items() if part.strip()]
                return text[start : i + 1], [f"Extra text detected {where} JSON object" for where in extra]
    return "", ["No valid JSON object found"]


def _read_object(text: str, warnings: list[str]) -> dict[str, Any]:
    content, around = _first_object(text)
    warnings += around
    if not content:
        raise _Invalid("No valid JSON found in response")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        shown = f"Content: {content!r}" if len(content) < 200 else f"Content preview: {content[:100]!r}..."
        raise _Invalid(f"Invalid JSON: {error} | {shown}") from None
    if not isinstance(data, dict):
        raise _Invalid("Response must be a JSON object")
    if missing := [name for name in FIELDS if name not in data]:
        raise _Invalid(f"Missing required fields: {', '.join(missing)}")
    strange = [name for name in FIELDS[:2] if not isinstance(data[name], str)]
    warnings += [f"Field '{name}' should be a string" for name in strange]
    if not isinstance(data["commands"], list):
        raise _Invalid("Field 'commands' must be an array")
    if not isinstance(data.get("task_complete", False), bool | str):
        warnings.append("Field 'task_complete' should be a boolean or string")
    places = {name: at.start() for name in FIELDS if (at := re.search(rf'"{name}"\s*:', content))}
    known, found = list(places), sorted(places, key=places.__getitem__)
    if found != known:
        told = f"Found: {' → '.join(found)}, expected: {' → '.join(known)}"
        warnings.append(f"Fields appear in wrong order. {told}")
    return data


def _commands(given: list[Any], warnings: list[str]) -> list[Command]:
    commands = []
    for i, command in enumerate(given, start=1):
        if not isinstance(command, dict):
            raise _Invalid(f"Command {i} must be an object")
        if "keystrokes" not in command:
            raise _Invalid(f"Command {i} missing required 'keystrokes' field")
        keystrokes, seconds = command["keystrokes"], command.get("duration", DEFAULT_S)
        if not isinstance(keystrokes, str):
            raise _Invalid(f"Command {i} 'keystrokes' must be a string")
        if "duration" not in command:
            warnings.append(f"Command {i}: Missing duration field, using default {DEFAULT_S}")
        elif not isinstance(seconds, int | float):
            warnings.append(f"Command {i}: Invalid duration value, using default {DEFAULT_S}")
            seconds = DEFAULT_S
        if unknown := [name for name in command if name not in ("keystrokes", "duration")]:
            warnings.append(f"Command {i}: Unknown fields: {', '.join(unknown)}")
        if i < len(given) and not keystrokes.endswith("\n"):
            warnings.append(
                f"Command {i} should end with newline when followed by another command. Otherwise the two "
                "commands will be concatenated together on the same line."
            )
        commands.append(Command(storable(keystrokes), _seconds(seconds)))
    return commands


def _seconds(given: float) -> float:
    """A duration that can be waited: JSON also has negative and infinite numbers, and NaN."""
    if isinstance(given, float) and math.isnan(given):
        return DEFAULT_S
    return float(min(max(given, 0), LONGEST_S))


def _close_braces(text: str, error: str) -> str | None:
    missing = text.count("{") - text.count("}")
    mendable = any(sign in error for sign in ("Invalid JSON", "No valid JSON found"))
    return text + "}" * missing if mendable and missing > 0 else None


def _any_object(text: str, error: str) -> str | None:
    """The first part of the text that looks like an object, two levels deep, and is one."""
    for found in re.finditer(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", text):
        try:
            json.loads(found[0])
        except (ValueError, RecursionError):
            continue
        return found[0]
    return None


_REPAIRS: tuple[tuple[str, Callable[[str, str], str | None]], ...] = (
    ("Fixed incomplete JSON by adding missing closing brace", _close_braces),
    ("Extracted JSON from mixed content", _any_object),
)
