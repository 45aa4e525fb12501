"""What a command prints: one JSON object under --json and nothing else, or texts and tables for a person."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NoReturn

from occupancy.record.errors import FewstepsError, InputError
from occupancy.record.rows import storable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, those that turn the direction of writing, and half characters,
which a terminal's encoding does not have."""
_WRONG_PLACE = {
    *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
}
"""Errors of a file where a folder is expected, the other way round, and of a place that cannot be written."""
_OUTPUTS = "out", "page", "figure", "figures", "make_image"
"""Options of all commands that name what is written."""
EVERY_S = 30.0
"""Between lines of progress where there is no terminal."""
Advance = Callable[..., None]
"""(done, of), of None where that is not known, and note= at the end of the bar."""


def printable(text: str) -> str:
    """The text with control characters as visible escapes: data must not command a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(line: str) -> None:
    """Write one line on standard error."""
    sys.stderr.write(f"{printable(' '.join(line.split()))}\n")


def exit_code(command: str, run: Callable[[], int]) -> int:
    """What `run` returns; a failure becomes one line on standard error and its exit code."""
    try:
        return run()
    except FewstepsError as error:
        said, code = str(error), error.exit_code
    except KeyboardInterrupt:
        said, code = "stopped; what is finished is kept: run the same command again", 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except (OSError, sqlite3.Error) as error:
        code = InputError.exit_code if getattr(error, "errno", None) in _WRONG_PLACE else 1
        then = "see to the file or the disk and run the same command again"
        said = f"{error}: {then if code == 1 else 'name another file or folder'}"
    say(f"{command}: {said}")
    return code


def _check_place(name: str) -> None:
    """Refuse a place that nothing can be written to, before the work that is to be written there."""
    path = Path(name).absolute()
    try:
        folder = path if path.is_dir() else next(above for above in path.parents if above.exists())
        TemporaryFile(dir=folder).close()
    except OSError as error:
        if error.errno not in _WRONG_PLACE:
            raise
        raise InputError(f"{name} cannot be written ({error.strerror}): name another place") from error


class Unbroken(str):
    """A line that `show` breaks nowhere, so that a command in it can be copied."""


class _Usage(InputError):
    """Arguments that cannot be used; its text names the command."""


class Parser(argparse.ArgumentParser):
    """Usage errors in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        message = _nearest(message.removeprefix("argument "))
        raise _Usage(f"{self.prog}: {message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; an option that does not exist is named before what is missing."""
        given = sys.argv[1:] if args is None else list(args)
        options = [] if self._subparsers else given[: given.index("--") if "--" in given else None]
        for name in (text.partition("=")[0] for text in options if text.startswith("--")):
            if not any(known.startswith(name) for known in self._option_string_actions):
                near = get_close_matches(name, self._option_string_actions, n=1, cutoff=0.7)
                self.error(f"there is no option {name}{f', did you mean {near[0]}?' if near else ''}")
        return super().parse_known_args(given, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The value of one argument; a text that is empty (an unset shell variable) or no UTF-8 is none."""
        for text in () if action.nargs == argparse.PARSER else arg_strings:
            if not text.strip():
                raise argparse.ArgumentError(action, "is empty: expected a name or a value")
            if storable(text) != text:  # no file of rows can be written to such a path
                raise argparse.ArgumentError(
                    action, f"{text!r} is no UTF-8 text: rename it, or set a locale such as C.UTF-8"
                )
        return super()._get_values(action, arg_strings)


def _nearest(message: str) -> str:
    """Argparse's message on a wrong choice with the most similar choice instead of all of them, if one is."""
    found = re.search(r"(invalid choice: '(.*)') \(choose from (.*)\)$", message)
    near = get_close_matches(found[2], re.findall(r"[^\s',]+", found[3]), n=1) if found else []
    return f"{message[: found.end(1)]}, did you mean {near[0]!r}?" if found and near else message


def _make_streams_usable() -> None:
    """Make a closed stream /dev/null, letters that stdout's encoding lacks escapes, and logs free of bars."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # else a run's file could get its number, and what C code prints
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # A log is no place for the bars of transformers, TRL and others, all of which use tqdm.
    if sys.stderr.closed or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def command_line(top: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name, by its `handler`; returns the exit code."""
    _make_streams_usable()
    try:
        given = top.parse_args(arguments)
    except _Usage as error:
        say(str(error))
        return error.exit_code
    command = getattr(given, "command", "")

    def handled() -> int:
        for name in _OUTPUTS:
            if (place := getattr(given, name, None)) is not None:
                _check_place(place)
        given.stdout = sys.stdout
        # What a user's module prints is no part of the one JSON object.
        with redirect_stdout(sys.stderr) if getattr(given, "json", False) else nullcontext():
            return int(given.handler(given) or 0)

    return exit_code(f"{top.prog} {command}".strip(), handled)


def safe_console(**how: Any) -> Console:
    """A rich console that takes no markup and passes no control character on, wherever it is shown."""
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        def render(self, *given: Any, **more: Any) -> Iterator[Segment]:
            for part in super().render(*given, **more):
                yield part if part.control else Segment(printable(part.text), part.style)

    return Safe(markup=False, highlight=False, **how)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --json."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def show(given: argparse.Namespace, report: dict[str, Any], shown: str | Callable[[], Iterable[Any]]) -> None:
    """Print `report` as JSON where the command was given --json, else a text, or what `shown` makes."""
    if given.json:
        getattr(given, "stdout", sys.stdout).write(f"{json.dumps(report)}\n")
        return
    console = safe_console()
    for part in (shown,) if isinstance(shown, str) else shown():
        console.print(part, soft_wrap=isinstance(part, Unbroken))


def fitting_table(**how: Any) -> Table:
    """A rich table; where its longest words do not fit beside each other, each row is a line of its own."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    class Fitting(Table):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            if Measurement.get(console, options.update(width=10_000), self).minimum <= options.max_width:
                yield from super().__rich_console__(console, options)
                return
            heads = [_one_line(column.header) for column in self.columns]
            yield from () if self.title is None else (self.title,)
            for row in zip(*(column.cells for column in self.columns), strict=True):
                cells = ((head, _one_line(cell)) for head, cell in zip(heads, row, strict=True))
                line = ", ".join(f"{head} {cell}".strip() for head, cell in cells if cell)
                yield Text(line if heads[0] else line.replace(", ", " ", 1))

    return Fitting(**how)


def _one_line(cell: object) -> str:
    return " ".join(str(cell).replace("-\n", "").split())


def table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[str]
) -> Table:
    """A table for a person; the columns named in `left` hold words, the others numbers."""
    from rich.text import Text

    made = fitting_table(title=Text(title) if title else None)
    for head in heads:
        made.add_column(Text(head), justify="left" if head in left else "right")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


@contextmanager
def progress(name: str) -> Iterator[Advance]:
    """A bar on standard error; without a terminal a line every EVERY_S seconds; both with the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        with _lines(name) as advance:
            yield advance
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    note = TextColumn("{task.fields[note]}")
    console = safe_console(stderr=True)
    with Progress(*columns, note, TimeRemainingColumn(), console=console, transient=True) as bar:
        line = bar.add_task(name, total=None, note="")
        yield lambda done, of, note="": bar.update(line, completed=done, total=of, note=note)


def _time(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))


@contextmanager
def _lines(name: str) -> Iterator[Advance]:
    """A line every EVERY_S seconds, also while nothing is finished: a first step may take minutes."""
    began, ended = time.monotonic(), Event()
    first: tuple[float, int] | None = None
    last: tuple[float, int, int | None, str] = (began, 0, None, "")

    def advance(done: int, of: int | None, note: str = "") -> None:
        nonlocal first, last
        last = time.monotonic(), done, of, note
        first = last[:2] if first is None or done < first[1] else first

    def speak() -> None:
        while not ended.wait(EVERY_S):
            at, done, of, note = last
            parts = (
                [f"{done:,}" if of is None else f"{done:,} of {of:,}"] if done else ["nothing finished yet"]
            )
            parts += [note, f"{_time(time.monotonic() - began)} passed"]
            if of is not None and first is not None and done > first[1]:
                parts.append(f"{_time((of - done) * (at - first[0]) / (done - first[1]))} left")
            say(f"{name}: {', '.join(filter(None, parts))}")

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield advance
    finally:
        ended.set()
        speaker.join()
