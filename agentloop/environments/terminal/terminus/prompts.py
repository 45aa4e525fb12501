"""The words before turn 1: the protocol, the task, and the terminal as it is at the start.

The default is our own wording of the protocol. For numbers that are to be compared with Terminus-2's, give
its template as a file: a text with {instruction} and {terminal_state}, in which {{ and }} stand for braces.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from occupancy.record.errors import InputError

DEFAULT = """\
You work in a Linux terminal to solve a task. In each turn you read what the terminal shows and answer with
one JSON object, and with nothing else:

{{
  "analysis": "what the terminal shows, and what that means for the task",
  "plan": "what you do next, and what you expect of it",
  "commands": [{{"keystrokes": "ls -la\\n", "duration": 0.1}}],
  "task_complete": false
}}

"analysis", "plan" and "commands" are required, in this order. The keystrokes are typed as they are, one
command after the other: end each command line with \\n, or it is not run. C-c or C-d as the whole
keystrokes press Ctrl with that key. "duration" is how many seconds to wait after typing (1.0 if it is left
out, 60 at most). For more time, send empty keystrokes in the next turn. The list may be empty.

Say "task_complete": true when the task is solved. You are then asked to confirm: say it again in the next
turn.

Task:
{instruction}

The terminal now:
{terminal_state}"""


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with its two places."""

    text: str

    @property
    def hash(self) -> str:
        """Names the template in a run's version."""
        return blake2b(self.text.encode(), digest_size=4).hexdigest()

    def fill(self, instruction: str, terminal_state: str) -> str:
        """The prompt of one episode."""
        return self.text.format(instruction=instruction, terminal_state=terminal_state)


def load_template(file: Path | None = None) -> Template:
    """The template in a file, or the default; InputError for one without both places."""
    if file is None:
        return Template(DEFAULT)
    try:
        template = Template(file.read_text("utf-8-sig"))
        filled = template.fill("{an instruction}", "{a state}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"prompt {file}: {error}; expected a text file") from error
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            f"prompt {file}: {error!r}; expected {{instruction}} and {{terminal_state}}, other braces doubled"
        ) from error
    if not ("{an instruction}" in filled and "{a state}" in filled):
        raise InputError(f"prompt {file}: expected {{instruction}} and {{terminal_state}} in it")
    return template
