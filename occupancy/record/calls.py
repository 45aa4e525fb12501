"""Tool calls as part of a turn's text, in the one form that runs store.

What was said, then each call as Hermes' templates write it, the arguments byte for byte as the model gave
them:

    <tool_call>
    {"name": "search", "arguments": {"query": "..."}}
    </tool_call>
"""

from __future__ import annotations

import json
from collections.abc import Sequence


def turn_text(content: str | None, calls: Sequence[tuple[str, str]]) -> str:
    """One text from what was said and its calls, each a name and the raw text of its arguments."""
    blocks = [
        f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}\n</tool_call>'
        for name, arguments in calls
    ]
    return "\n".join([*([content] if content else []), *blocks])


def with_thought(thought: str | None, content: str) -> str:
    """A turn's text with the reasoning that a provider gave beside it."""
    return f"<think>{thought}</think>\n{content}" if thought else content
